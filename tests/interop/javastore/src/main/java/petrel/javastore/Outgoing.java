package petrel.javastore;

import java.util.LinkedHashMap;
import java.util.Map;

import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** A message on its way. */
final class Outgoing {
    final String topic;
    final int queueId;
    final byte[] body;
    final Map<String, String> properties = new LinkedHashMap<>();
    int sysFlag;

    Outgoing(String topic, int queueId, byte[] body) {
        this.topic = topic;
        this.queueId = queueId;
        this.body = body;
        properties.put(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX, MessageClientIDSetter.createUniqID());
        properties.put(MessageConst.PROPERTY_WAIT_STORE_MSG_OK, "true");
    }

    Outgoing with(String name, Object value) {
        properties.put(name, String.valueOf(value));
        return this;
    }

    Outgoing keys(String keys) {
        return with(MessageConst.PROPERTY_KEYS, keys);
    }

    Outgoing tags(String tags) {
        return with(MessageConst.PROPERTY_TAGS, tags);
    }

    Outgoing flags(int flags) {
        sysFlag = flags;
        return this;
    }

    String uniqueKey() {
        return properties.get(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
    }

    Map<String, String> header(boolean batch) {
        return Link.fields(
            "a", Writer.PRODUCER_GROUP, "b", topic, "c", "TBW102", "d", 4, "e", queueId, "f", sysFlag, "g", System.currentTimeMillis(),
            "h", 7, "i", MessageDecoder.messageProperties2String(properties), "j", 0, "k", false, "m", batch);
    }

    /** Sends, and notes that the broker has it. */
    RemotingCommand send(Link link, Acknowledged acknowledged) throws Exception {
        RemotingCommand answer = link.call(Link.SEND, header(false), body);
        acknowledged.add(answer.getExtFields().get("msgId"), uniqueKey(), body);
        return answer;
    }
}
