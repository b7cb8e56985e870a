package petrel.javastore;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.zip.DeflaterOutputStream;

import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.sysflag.MessageSysFlag;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Messages of every kind, and what else fills a store: topics, groups, committed offsets. What is delivered later by the broker (delay
 * levels, retries, timers) is waited for, unless it is meant to stay pending.
 */
final class Writer {
    static final String PRODUCER_GROUP = "javastore-producers";
    private static final String READERS = "javastore-readers";
    private static final String LATE_READERS = "javastore-late-readers";
    private static final String POPPERS = "javastore-poppers";
    /** The longest. The retry topic of what it pops needs two bytes for its length. */
    private static final String LONG_GROUP = "javastore-" + "g".repeat(110);

    private static final int PLAIN_MESSAGES = 160;
    private static final int PLAIN_QUEUES = 4;
    private static final String RETRY_PREFIX = "%RETRY%";
    private static final String DLQ_PREFIX = "%DLQ%";
    private static final String HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC";
    private static final String OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC";

    private final Link link;
    private final String label;
    /** What not every broker can do: timer, pop, transaction, attributes. */
    private final Set<String> features;
    private final Acknowledged acknowledged;
    private final Random random = new Random(4);

    Writer(Link link, String label, Set<String> features, Acknowledged acknowledged) {
        this.link = link;
        this.label = label;
        this.features = features;
        this.acknowledged = acknowledged;
    }

    void write() throws Exception {
        topicsAndGroups();
        long delayed = max("Delay", 0);
        delay();
        if (features.contains("timer")) {
            timer();
        }
        plain();
        batch();
        ordered();
        large();
        properties();
        request();
        sendBacks();
        if (features.contains("transaction")) {
            transactions();
        }
        if (features.contains("pop")) {
            pop();
        }
        commitOffsets();
        registerFilter();
        reaches("Delay", 0, delayed + 2);
    }

    private void topicsAndGroups() throws Exception {
        for (String topic : List.of("Batch", "Ordered", "Large", "Properties", "Delay", "Timer", "Transaction", "Request", "Pop")) {
            createTopic(topic, 2, 2, 6, false);
        }
        createTopic("Plain", PLAIN_QUEUES, PLAIN_QUEUES, 6, false);
        createTopic("Declared-" + label, 3, 5, 4, true);
        createGroup(READERS, 16, true);
        createGroup(LATE_READERS, 16, true);
        createGroup(POPPERS, 16, true);
        createGroup(LONG_GROUP, 16, true);
        createGroup("javastore-stopped-" + label, 3, false);
    }

    private void createTopic(String topic, int writeQueues, int readQueues, int perm, boolean order) throws Exception {
        var fields = Link.fields(
            "topic", topic, "defaultTopic", "TBW102", "readQueueNums", readQueues, "writeQueueNums", writeQueues, "perm", perm,
            "topicFilterType", "SINGLE_TAG", "topicSysFlag", 0, "order", order);
        if (features.contains("attributes") && order) {
            fields.put("attributes", "+message.type=NORMAL");
        }
        link.call(Link.CREATE_TOPIC, fields, null);
    }

    private void createGroup(String group, int retryMaxTimes, boolean consumeEnable) throws Exception {
        String config = "{\"groupName\":\"" + group + "\",\"consumeEnable\":" + consumeEnable + ",\"consumeFromMinEnable\":true,"
            + "\"consumeBroadcastEnable\":true,\"retryQueueNums\":1,\"retryMaxTimes\":" + retryMaxTimes
            + ",\"brokerId\":0,\"whichBrokerWhenConsumeSlowly\":1,\"notifyConsumerIdsChangedEnable\":true}";
        link.call(Link.CREATE_GROUP, Link.fields(), bytes(config));
    }

    /** So many that the log, the queues and the index have several files. */
    private void plain() throws Exception {
        for (int number = 0; number < PLAIN_MESSAGES; number++) {
            Outgoing message = new Outgoing("Plain", number % PLAIN_QUEUES, text("plain " + number, 600 + number))
                .keys(label + "-k" + number + " " + label + "-tens" + number / 10)
                .with("number", number);
            if (number % 3 != 0) {
                message.tags(number % 3 == 1 ? "A" : "B");
            }
            message.send(link, acknowledged);
        }
    }

    private void batch() throws Exception {
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 10; number++) {
            Message message = new Message("Batch", "A", label + "-batch" + number, text("batch " + number, 100));
            MessageClientIDSetter.setUniqID(message);
            messages.add(message);
        }
        Outgoing envelope = new Outgoing("Batch", 1, MessageDecoder.encodeMessages(messages));
        envelope.properties.remove(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX); // each message has its own
        RemotingCommand answer = link.call(Link.SEND_BATCH, envelope.header(true), envelope.body);
        String[] ids = answer.getExtFields().get("msgId").split(",");
        for (int number = 0; number < ids.length; number++) {
            Message message = messages.get(number);
            acknowledged.add(ids[number], MessageClientIDSetter.getUniqID(message), message.getBody());
        }
        if (ids.length != messages.size()) {
            throw new IllegalStateException(ids.length + " of " + messages.size() + " messages of a batch were acknowledged");
        }
    }

    private void ordered() throws Exception {
        for (int number = 0; number < 12; number++) {
            new Outgoing("Ordered", number % 2, text("ordered " + number, 50))
                .keys(label + "-order" + number % 2).with("__SHARDINGKEY", number % 2).send(link, acknowledged);
        }
    }

    /** One body that compression makes small, one that it does not. */
    private void large() throws Exception {
        ByteArrayOutputStream compressed = new ByteArrayOutputStream();
        try (DeflaterOutputStream deflater = new DeflaterOutputStream(compressed)) {
            deflater.write(text("large", 200_000));
        }
        new Outgoing("Large", 0, compressed.toByteArray()).flags(MessageSysFlag.COMPRESSED_FLAG).keys(label + "-large").send(link, acknowledged);
        byte[] noise = new byte[9_000];
        random.nextBytes(noise);
        new Outgoing("Large", 1, noise).keys(label + "-noise").send(link, acknowledged);
    }

    private void properties() throws Exception {
        Outgoing message = new Outgoing("Properties", 0, bytes(label + " Grüße, 你好, 🐦")).keys("größe-" + label + " " + label + "-键").tags("étiquette");
        for (int number = 0; number < 150; number++) {
            message.with("property-" + number, "value " + number + " ü");
        }
        message.send(link, acknowledged);
        new Outgoing("Properties", 1, bytes(label)).with("blank", " ").with("WAIT", "false").send(link, acknowledged);
    }

    /** Two that are delivered soon, and one on a level of hours. */
    private void delay() throws Exception {
        for (int number = 0; number < 2; number++) {
            new Outgoing("Delay", 0, text("soon " + number, 60)).keys(label + "-soon" + number).tags("A").with("DELAY", 1).send(link, acknowledged);
        }
        new Outgoing("Delay", 1, text("some time", 60)).keys(label + "-later").tags("B").with("DELAY", 3).send(link, acknowledged);
        new Outgoing("Delay", 1, text("late", 60)).keys(label + "-late").with("DELAY", 18).send(link, acknowledged);
    }

    /** One that is delivered soon, one in half a minute, and one in a day. */
    private void timer() throws Exception {
        long delivered = max("Timer", 0);
        new Outgoing("Timer", 0, text("soon", 60)).keys(label + "-timer-soon").with("TIMER_DELAY_SEC", 2).send(link, acknowledged);
        new Outgoing("Timer", 1, text("some time", 60)).keys(label + "-timer-later").with("TIMER_DELAY_MS", 30_000).send(link, acknowledged);
        new Outgoing("Timer", 1, text("late", 60)).keys(label + "-timer-late")
            .with("TIMER_DELIVER_MS", System.currentTimeMillis() + 86_400_000).send(link, acknowledged);
        reaches("Timer", 0, delivered + 1);
    }

    private void request() throws Exception {
        String correlation = label + "-correlation";
        new Outgoing("Request", 0, text("request", 40))
            .with("CORRELATION_ID", correlation).with("REPLY_TO_CLIENT", "javastore-client").with("TTL", 3000).send(link, acknowledged);
        Outgoing reply = new Outgoing("DefaultCluster_REPLY_TOPIC", 0, text("reply", 40))
            .with("CORRELATION_ID", correlation).with("REPLY_TO_CLIENT", "javastore-client").with("TTL", 3000).with("MSG_TYPE", "reply");
        long before = max(reply.topic, 0);
        // The one who asked is not there to take it: the answer says so, and the reply is stored.
        link.ask(Link.SEND_REPLY, reply.header(false), reply.body);
        reaches(reply.topic, 0, before + 1);
    }

    /** A message that comes again, and one that has failed too often. */
    private void sendBacks() throws Exception {
        List<MessageExt> consumed = link.pull("Ordered", 0, 0);
        long retried = max(RETRY_PREFIX + READERS, 0);
        long dead = max(DLQ_PREFIX + READERS, 0);
        sendBack(consumed.get(consumed.size() - 1), 1);
        sendBack(consumed.get(consumed.size() - 2), -1);
        reaches(RETRY_PREFIX + READERS, 0, retried + 1);
        reaches(DLQ_PREFIX + READERS, 0, dead + 1);
    }

    private void sendBack(MessageExt message, int delayLevel) throws Exception {
        link.call(Link.SEND_BACK, "offset", message.getCommitLogOffset(), "group", READERS, "delayLevel", delayLevel, "originMsgId",
            message.getMsgId(), "originTopic", message.getTopic(), "unitMode", false, "maxReconsumeTimes", 16);
    }

    /** One committed, one rolled back, one that nobody has decided upon. */
    private void transactions() throws Exception {
        long delivered = max("Transaction", 0);
        int ops = finishedHalves();
        RemotingCommand committed = half(0);
        RemotingCommand rolledBack = half(1);
        half(2);
        end(committed, MessageSysFlag.TRANSACTION_COMMIT_TYPE);
        end(rolledBack, MessageSysFlag.TRANSACTION_ROLLBACK_TYPE);
        reaches("Transaction", 0, delivered + 1);
        Await.until("the marks of finished transactions", () -> finishedHalves() == ops + 2);
        // Older brokers make this topic when they look through it for the first time.
        Await.until("topic " + HALF_TOPIC, () -> exists(HALF_TOPIC));
    }

    private RemotingCommand half(int number) throws Exception {
        return new Outgoing("Transaction", 0, text("half " + number, 80)).keys(label + "-half" + number).tags("T")
            .with("TRAN_MSG", true).with("PGROUP", PRODUCER_GROUP)
            .flags(MessageSysFlag.TRANSACTION_PREPARED_TYPE).send(link, acknowledged);
    }

    private void end(RemotingCommand half, int decision) throws Exception {
        String id = half.getExtFields().get("msgId");
        link.call(Link.END_TRANSACTION, "producerGroup", PRODUCER_GROUP, "tranStateTableOffset", half.getExtFields().get("queueOffset"),
            "commitLogOffset", MessageDecoder.decodeMessageId(id).getOffset(), "commitOrRollback", decision, "fromTransactionCheck", false,
            "msgId", String.valueOf(half.getExtFields().get("transactionId")), "transactionId", String.valueOf(half.getExtFields().get("transactionId")),
            "topic", "Transaction");
    }

    /** How many halves the operation topic names. */
    private int finishedHalves() throws Exception {
        int count = 0;
        if (!exists(OP_TOPIC)) {
            return (int) max(OP_TOPIC, 0); // older brokers keep no configuration of it, and write one message for each
        }
        for (MessageExt op : link.pull(OP_TOPIC, 0, 0)) {
            count += new String(op.getBody(), StandardCharsets.UTF_8).split(",").length;
        }
        return count;
    }

    /** Taken for an hour, taken for a moment and come again, and not taken. */
    private void pop() throws Exception {
        for (int number = 0; number < 6; number++) {
            new Outgoing("Pop", 0, text("pop " + number, 50)).keys(label + "-pop" + number).send(link, acknowledged);
        }
        String retryTopic = RETRY_PREFIX + LONG_GROUP + "_Pop";
        long before = max(retryTopic, 0);
        take(POPPERS, 3_600_000);
        take(LONG_GROUP, 1_000);
        reaches(retryTopic, 0, before + 1);
    }

    private void take(String group, int invisibleMs) throws Exception {
        RemotingCommand answer = link.call(Link.POP, "consumerGroup", group, "topic", "Pop", "queueId", 0, "maxMsgNums", 4,
            "invisibleTime", invisibleMs, "pollTime", 0, "bornTime", System.currentTimeMillis(), "initMode", 0, "expType", "TAG", "exp", "*",
            "order", false, "attemptId", label);
        if (Link.decode(answer.getBody()).isEmpty()) {
            throw new IllegalStateException("nothing was popped: " + answer.getExtFields());
        }
    }

    /** How far readers have read. */
    private void commitOffsets() throws Exception {
        for (int queueId = 0; queueId < PLAIN_QUEUES; queueId++) {
            commit(READERS, "Plain", queueId, max("Plain", queueId) - 20);
            commit(LATE_READERS, "Plain", queueId, 10);
        }
        commit(READERS, "Ordered", 1, max("Ordered", 1));
        commit("javastore-stopped-" + label, "Ordered", 0, 3);
    }

    private void commit(String group, String topic, int queueId, long offset) throws Exception {
        link.call(Link.UPDATE_CONSUMER_OFFSET, "consumerGroup", group, "topic", topic, "queueId", queueId, "commitOffset", offset);
    }

    /** A consumer that selects by properties, which brokers keep in consumerFilter.json. */
    private void registerFilter() throws Exception {
        String subscription = "{\"topic\":\"Properties\",\"subString\":\"number > 3\",\"expressionType\":\"SQL92\",\"subVersion\":1,"
            + "\"classFilterMode\":false,\"codeSet\":[],\"tagsSet\":[]}";
        String heartbeat = "{\"clientID\":\"javastore-" + label + "\",\"producerDataSet\":[],\"consumerDataSet\":[{\"groupName\":\"javastore-selectors\","
            + "\"consumeType\":\"CONSUME_PASSIVELY\",\"messageModel\":\"CLUSTERING\",\"consumeFromWhere\":\"CONSUME_FROM_FIRST_OFFSET\","
            + "\"unitMode\":false,\"subscriptionDataSet\":[" + subscription + "]}]}";
        link.call(Link.HEART_BEAT, Link.fields(), bytes(heartbeat));
    }

    private boolean exists(String topic) throws Exception {
        return link.table(Link.GET_ALL_TOPICS).getAsJsonObject("topicConfigTable").has(topic);
    }

    private long max(String topic, int queueId) throws Exception {
        RemotingCommand answer = link.ask(Link.GET_MAX_OFFSET, Link.fields("topic", topic, "queueId", queueId), null);
        String offset = answer.getExtFields() == null ? null : answer.getExtFields().get("offset");
        return offset == null ? 0 : Long.parseLong(offset);
    }

    private void reaches(String topic, int queueId, long offset) throws Exception {
        Await.until(topic + " " + queueId + " to reach offset " + offset, () -> max(topic, queueId) >= offset);
    }

    private byte[] text(String what, int length) {
        StringBuilder text = new StringBuilder();
        while (text.length() < length) {
            text.append(label).append(' ').append(what).append(' ');
        }
        return bytes(text.substring(0, length));
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
