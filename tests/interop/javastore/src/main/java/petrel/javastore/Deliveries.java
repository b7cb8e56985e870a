package petrel.javastore;

import java.util.List;

import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;

/** What was left for the broker to deliver. */
final class Deliveries {
    private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";

    private Deliveries() {
    }

    static void await(Link link, String topic, int queueId, String key) throws Exception {
        Await.until("message " + key + " in " + topic + " " + queueId, () -> find(link, topic, queueId, key) != null);
    }

    /** Commits a half message that an earlier broker has taken. */
    static void decide(Link link, String key) throws Exception {
        MessageExt half = find(link, HALF_TOPIC, 0, key);
        if (half == null) {
            throw new IllegalStateException("there is no half message of key " + key);
        }
        link.call(Link.END_TRANSACTION, "producerGroup", Writer.PRODUCER_GROUP, "tranStateTableOffset", half.getQueueOffset(),
            "commitLogOffset", half.getCommitLogOffset(), "commitOrRollback", MessageSysFlag.TRANSACTION_COMMIT_TYPE,
            "fromTransactionCheck", false, "msgId", half.getProperty("UNIQ_KEY"), "transactionId", half.getProperty("UNIQ_KEY"),
            "topic", half.getProperty("REAL_TOPIC"));
        await(link, half.getProperty("REAL_TOPIC"), Integer.parseInt(half.getProperty("REAL_QID")), key);
    }

    private static MessageExt find(Link link, String topic, int queueId, String key) throws Exception {
        List<MessageExt> messages = link.pull(topic, queueId, link.offset(Link.GET_MIN_OFFSET, topic, queueId));
        for (MessageExt message : messages) {
            if (message.getKeys() != null && List.of(message.getKeys().split(" ")).contains(key)) {
                return message;
            }
        }
        return null;
    }
}
