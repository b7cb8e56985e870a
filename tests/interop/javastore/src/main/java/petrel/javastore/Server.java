package petrel.javastore;

import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.common.namesrv.NamesrvConfig;
import org.apache.rocketmq.namesrv.NamesrvController;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;

/** The published name server and broker, started as their own start classes do. */
final class Server {
    private Server() {
    }

    /** Returns when both serve. A broker that cannot start ends the process, as it always does. */
    static void start(int namesrvPort, String conf) throws Exception {
        NettyServerConfig network = new NettyServerConfig();
        network.setListenPort(namesrvPort);
        NamesrvController namesrv = new NamesrvController(new NamesrvConfig(), network);
        if (!namesrv.initialize()) {
            throw new IllegalStateException("the name server does not start on port " + namesrvPort);
        }
        namesrv.start();
        BrokerStartup.start(BrokerStartup.createBrokerController(new String[] {"-c", conf}));
    }
}
