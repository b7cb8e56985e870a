package petrel.javastore;

import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * Everything that a broker serves, as JSON: topics, groups, committed offsets, delay offsets, and of each queue its bounds and its
 * messages by queue offset; what queries for their keys find. Each message is also asked for by its id, and must be the same.
 */
final class Snapshot {
    /** 1024 queues that nobody writes to. */
    private static final String BENCHMARK_TOPIC = "BenchmarkTest";
    /** Fewer than any broker limits a query to, so that nothing is cut off. */
    private static final int MAX_QUERY = 32;

    private final Link link;
    /** Only what is in this one is asked for by key and by id; null: everything. */
    private final JsonObject wanted;
    private final Set<String> wantedOffsets = new HashSet<>();
    private final JsonObject queues = new JsonObject();
    /** Keys by topic; unique ones are marked. */
    private final Map<String, Set<String>> keys = new TreeMap<>();
    private final Map<String, Set<String>> uniqueKeys = new TreeMap<>();

    private Snapshot(Link link, JsonObject wanted) {
        this.link = link;
        this.wanted = wanted;
        if (wanted != null) {
            messages(wanted).forEach(message -> wantedOffsets.add(message.get("physicalOffset").getAsString()));
        }
    }

    static JsonObject take(Link link) throws Exception {
        return new Snapshot(link, null).take();
    }

    /** As {@link #take}, but asks by key and by id only for what is in an earlier snapshot; with none, for nothing. */
    static JsonObject take(Link link, JsonObject earlier) throws Exception {
        return new Snapshot(link, earlier).take();
    }

    static List<JsonObject> messages(JsonObject snapshot) {
        List<JsonObject> messages = new ArrayList<>();
        if (snapshot.has("queues")) {
            snapshot.getAsJsonObject("queues").entrySet().forEach(queue ->
                queue.getValue().getAsJsonObject().getAsJsonObject("messages").entrySet().forEach(message ->
                    messages.add(message.getValue().getAsJsonObject())));
        }
        return messages;
    }

    private JsonObject take() throws Exception {
        JsonObject topics = link.table(Link.GET_ALL_TOPICS);
        JsonObject groups = link.table(Link.GET_ALL_GROUPS);
        JsonObject offsets = link.table(Link.GET_ALL_CONSUMER_OFFSETS);
        JsonObject taken = new JsonObject();
        taken.add("topicsVersion", topics.get("dataVersion"));
        taken.add("topics", topics.get("topicConfigTable"));
        taken.add("groupsVersion", groups.get("dataVersion"));
        taken.add("groups", groups.get("subscriptionGroupTable"));
        taken.add("consumerOffsets", offsets.get("offsetTable"));
        taken.add("delayOffsets", link.table(Link.GET_ALL_DELAY_OFFSETS).get("offsetTable"));
        for (Map.Entry<String, JsonElement> topic : topics.getAsJsonObject("topicConfigTable").entrySet()) {
            if (!topic.getKey().equals(BENCHMARK_TOPIC)) {
                JsonObject config = topic.getValue().getAsJsonObject();
                int count = Math.max(config.get("readQueueNums").getAsInt(), config.get("writeQueueNums").getAsInt());
                for (int queueId = 0; queueId < count; queueId++) {
                    addQueue(topic.getKey(), queueId);
                }
            }
        }
        taken.add("queues", queues);
        taken.add("queries", queries());
        return taken;
    }

    private void addQueue(String topic, int queueId) throws Exception {
        long max = link.offset(Link.GET_MAX_OFFSET, topic, queueId);
        if (max == 0) {
            return;
        }
        long min = link.offset(Link.GET_MIN_OFFSET, topic, queueId);
        JsonObject messages = new JsonObject();
        JsonArray foreign = new JsonArray();
        for (MessageExt message : link.pull(topic, queueId, min)) {
            JsonObject described = describe(message);
            if (!message.getTopic().equals(topic)) {
                foreign.add(described); // what fills the place of a damaged record
                continue;
            }
            String offset = Long.toString(message.getQueueOffset());
            if (messages.has(offset)) {
                throw new IllegalStateException("two messages of " + topic + " " + queueId + " have the queue offset " + offset);
            }
            messages.add(offset, described);
            noteKeys(message);
            if (wanted == null || wantedOffsets.contains(Long.toString(message.getCommitLogOffset()))) {
                checkView(message, described);
            }
        }
        JsonObject queue = new JsonObject();
        queue.addProperty("min", min);
        queue.addProperty("max", max);
        queue.add("messages", messages);
        if (!foreign.isEmpty()) {
            queue.add("foreign", foreign);
        }
        queues.add(topic + "/" + queueId, queue);
    }

    private void noteKeys(MessageExt message) {
        String unique = message.getProperty(MessageConst.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX);
        if (unique != null) {
            uniqueKeys.computeIfAbsent(message.getTopic(), topic -> new TreeSet<>()).add(unique);
        }
        String words = message.getKeys();
        if (words != null) {
            for (String key : words.split(" ")) {
                if (!key.isEmpty()) {
                    keys.computeIfAbsent(message.getTopic(), topic -> new TreeSet<>()).add(key);
                }
            }
        }
    }

    private void checkView(MessageExt message, JsonObject described) throws Exception {
        RemotingCommand answer = link.call(Link.VIEW_MESSAGE, "offset", message.getCommitLogOffset());
        List<MessageExt> viewed = Link.decode(answer.getBody());
        if (viewed.size() != 1 || !describe(viewed.get(0)).equals(described)) {
            throw new IllegalStateException("message " + message.getMsgId() + " is another one when it is asked for by its id");
        }
    }

    private JsonArray queries() throws Exception {
        JsonArray found = new JsonArray();
        if (wanted != null) {
            for (JsonElement query : wanted.has("queries") ? wanted.getAsJsonArray("queries") : new JsonArray()) {
                JsonObject earlier = query.getAsJsonObject();
                found.add(query(earlier.get("topic").getAsString(), earlier.get("key").getAsString(), earlier.get("unique").getAsBoolean()));
            }
            return found;
        }
        for (Map.Entry<String, Set<String>> topic : keys.entrySet()) {
            for (String key : topic.getValue()) {
                found.add(query(topic.getKey(), key, false));
            }
        }
        for (Map.Entry<String, Set<String>> topic : uniqueKeys.entrySet()) {
            for (String key : topic.getValue()) {
                found.add(query(topic.getKey(), key, true));
            }
        }
        return found;
    }

    private JsonObject query(String topic, String key, boolean unique) throws Exception {
        Map<String, String> fields = Link.fields(
            "topic", topic, "key", key, "maxNum", MAX_QUERY, "beginTimestamp", 0, "endTimestamp", Long.MAX_VALUE);
        if (unique) {
            fields.put("_UNIQUE_KEY_QUERY", "true");
        }
        RemotingCommand answer = link.ask(Link.QUERY_MESSAGE, fields, null);
        Set<Long> offsets = new TreeSet<>();
        if (answer.getCode() == Link.SUCCESS) {
            Link.decode(answer.getBody()).forEach(message -> offsets.add(message.getCommitLogOffset()));
        } else if (answer.getCode() != Link.QUERY_NOT_FOUND) {
            throw new IllegalStateException("query of " + key + " is refused with " + answer.getCode() + " " + answer.getRemark());
        }
        JsonObject query = new JsonObject();
        query.addProperty("topic", topic);
        query.addProperty("key", key);
        query.addProperty("unique", unique);
        JsonArray list = new JsonArray();
        offsets.forEach(list::add);
        query.add("offsets", list);
        return query;
    }

    static JsonObject describe(MessageExt message) {
        JsonObject described = new JsonObject();
        described.addProperty("topic", message.getTopic());
        described.addProperty("queueId", message.getQueueId());
        described.addProperty("physicalOffset", message.getCommitLogOffset());
        described.addProperty("size", message.getStoreSize());
        described.addProperty("msgId", message.getMsgId());
        described.addProperty("bodyCrc", message.getBodyCRC());
        described.addProperty("bodySha256", sha256(message.getBody()));
        described.addProperty("flag", message.getFlag());
        described.addProperty("sysFlag", message.getSysFlag());
        described.addProperty("bornTimestamp", message.getBornTimestamp());
        described.addProperty("bornHost", String.valueOf(message.getBornHost()));
        described.addProperty("storeTimestamp", message.getStoreTimestamp());
        described.addProperty("storeHost", String.valueOf(message.getStoreHost()));
        described.addProperty("reconsumeTimes", message.getReconsumeTimes());
        described.addProperty("preparedTransactionOffset", message.getPreparedTransactionOffset());
        JsonObject properties = new JsonObject();
        if (message.getProperties() != null) {
            new TreeMap<>(message.getProperties()).forEach(properties::addProperty);
        }
        described.add("properties", properties);
        return described;
    }

    static String sha256(byte[] body) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(body == null ? new byte[0] : body));
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }
}
