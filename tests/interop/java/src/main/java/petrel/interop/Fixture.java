package petrel.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.UUID;
import java.util.stream.IntStream;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Names and clients of one case; closes every client it handed out. */
final class Fixture implements AutoCloseable {
    /** Expect what the Java broker does differently. */
    static final boolean JAVA_BROKER = System.getenv("INTEROP_JAVA_BROKER") != null;
    private static final String WARM_UP = "warm-up";

    final String topic;
    private final String namesrv;
    private final String unique;
    private final Deque<Runnable> shutdowns = new ArrayDeque<>();
    private int instances;
    private DefaultMQProducer producer;

    Fixture(String namesrv, String name) {
        this.namesrv = namesrv;
        this.unique = name + "-" + UUID.randomUUID().toString().substring(0, 8);
        this.topic = "interop-" + unique;
    }

    String group() {
        return "interop-group-" + unique;
    }

    /** A started producer, the same at each call. */
    DefaultMQProducer producer() throws MQClientException {
        if (producer == null) {
            producer = newProducer();
            producer.start();
        }
        return producer;
    }

    DefaultMQProducer newProducer() {
        DefaultMQProducer created = new DefaultMQProducer("interop-producer-" + unique);
        created.setNamesrvAddr(namesrv);
        created.setInstanceName(nextInstance());
        created.setSendMsgTimeout(10_000);
        shutdowns.push(created::shutdown);
        return created;
    }

    /** A started producer of the case's transaction group. */
    TransactionMQProducer transactionProducer(TransactionListener listener) throws MQClientException {
        TransactionMQProducer created = new TransactionMQProducer("interop-transactions-" + unique);
        created.setNamesrvAddr(namesrv);
        created.setInstanceName(nextInstance());
        created.setSendMsgTimeout(10_000);
        // The broker can ask only whom it knows by a heartbeat.
        created.setHeartbeatBrokerInterval(1_000);
        created.setTransactionListener(listener);
        created.start();
        shutdowns.push(created::shutdown);
        return created;
    }

    /** A push consumer, not started, that begins at the first message of a queue without a committed offset. */
    DefaultMQPushConsumer pushConsumer() {
        DefaultMQPushConsumer created = new DefaultMQPushConsumer(group());
        created.setNamesrvAddr(namesrv);
        created.setInstanceName(nextInstance());
        created.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        shutdowns.push(created::shutdown);
        return created;
    }

    DefaultMQPullConsumer pullConsumer() throws MQClientException {
        DefaultMQPullConsumer created = new DefaultMQPullConsumer("interop-reader-" + unique);
        created.setNamesrvAddr(namesrv);
        created.setInstanceName(nextInstance());
        created.start();
        shutdowns.push(created::shutdown);
        return created;
    }

    DefaultLitePullConsumer litePullConsumer() {
        DefaultLitePullConsumer created = new DefaultLitePullConsumer(group());
        created.setNamesrvAddr(namesrv);
        created.setInstanceName(nextInstance());
        created.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        shutdowns.push(created::shutdown);
        return created;
    }

    private String nextInstance() {
        return unique + "-" + instances++;
    }

    /** Creates the topic by a first message, which {@link Inbox} leaves out. */
    void createTopic() throws Exception {
        producer().send(new Message(topic, WARM_UP.getBytes(StandardCharsets.UTF_8)));
        awaitRoute(topic);
    }

    static boolean isWarmUp(MessageExt message) {
        return WARM_UP.equals(Inbox.body(message));
    }

    /** A consumer that starts before the route is there would look again only after 30 s. */
    void awaitRoute(String name) throws Exception {
        DefaultMQProducer asking = producer();
        Check.eventually("a route of " + name, () -> {
            try {
                return !asking.fetchPublishMessageQueues(name).isEmpty();
            } catch (MQClientException noRoute) {
                return false;
            }
        });
    }

    /** Consumers commit one-way as they shut down, so the commit may still be on its way. */
    static void awaitOneWayCommit() throws InterruptedException {
        Thread.sleep(500);
    }

    Message message(String body) {
        return new Message(topic, body.getBytes(StandardCharsets.UTF_8));
    }

    /** The bodies prefix-0 to prefix-(count - 1). */
    static List<String> bodies(String prefix, int count) {
        return IntStream.range(0, count).mapToObj(index -> prefix + "-" + index).toList();
    }

    void sendAll(List<String> bodies) throws Exception {
        for (String body : bodies) {
            producer().send(message(body));
        }
    }

    /** Reads every queue of a topic from its beginning until `count` messages came, in queue order. */
    List<MessageExt> readAll(String name, int count) throws Exception {
        awaitRoute(name);
        DefaultMQPullConsumer reader = pullConsumer();
        List<MessageExt> read = new ArrayList<>();
        Check.eventually(count + " messages in " + name, () -> {
            read.clear();
            for (MessageQueue queue : reader.fetchSubscribeMessageQueues(name)) {
                readQueue(reader, queue, read);
            }
            return read.size() >= count;
        });
        return read;
    }

    private static void readQueue(DefaultMQPullConsumer reader, MessageQueue queue, List<MessageExt> read)
        throws Exception {
        long offset = 0;
        while (true) {
            var result = reader.pull(queue, "*", offset, 32);
            if (result.getMsgFoundList() == null || result.getMsgFoundList().isEmpty()) {
                return;
            }
            result.getMsgFoundList().stream().filter(message -> !isWarmUp(message)).forEach(read::add);
            offset = result.getNextBeginOffset();
        }
    }

    @Override
    public void close() {
        shutdowns.forEach(Runnable::run);
    }
}
