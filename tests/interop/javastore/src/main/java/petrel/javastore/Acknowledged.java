package petrel.javastore;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.google.gson.JsonObject;
import org.apache.rocketmq.common.message.MessageDecoder;

/** Messages that a broker said it has: where, and with which body and unique key. */
final class Acknowledged {
    private final Map<Long, JsonObject> byPhysicalOffset = new HashMap<>();

    synchronized void add(String offsetMsgId, String uniqueKey, byte[] body) throws Exception {
        JsonObject message = new JsonObject();
        message.addProperty("bodySha256", Snapshot.sha256(body));
        message.addProperty("uniqueKey", uniqueKey);
        JsonObject before = byPhysicalOffset.put(MessageDecoder.decodeMessageId(offsetMsgId).getOffset(), message);
        if (before != null) {
            throw new IllegalStateException("two messages were acknowledged at " + offsetMsgId);
        }
    }

    synchronized int count() {
        return byPhysicalOffset.size();
    }

    synchronized JsonObject toJson() {
        JsonObject all = new JsonObject();
        byPhysicalOffset.forEach((offset, message) -> all.add(Long.toString(offset), message));
        return all;
    }

    /** Those that a snapshot does not hold. */
    static List<String> missing(JsonObject acknowledged, JsonObject snapshot) {
        Map<String, JsonObject> served = new HashMap<>();
        Snapshot.messages(snapshot).forEach(message -> served.put(message.get("physicalOffset").getAsString(), message));
        List<String> problems = new ArrayList<>();
        acknowledged.entrySet().forEach(entry -> {
            JsonObject wanted = entry.getValue().getAsJsonObject();
            JsonObject found = served.get(entry.getKey());
            if (found == null || !found.get("bodySha256").equals(wanted.get("bodySha256"))
                || !wanted.get("uniqueKey").equals(found.getAsJsonObject("properties").get("UNIQ_KEY"))) {
                problems.add("acknowledged at " + entry.getKey() + ": " + wanted + ", served: " + found);
            }
        });
        return problems;
    }
}
