package petrel.javastore;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;

/** Whether one snapshot holds all of an earlier one. */
final class Comparison {
    private static final String SYSTEM_GROUP_PREFIX = "@CID_RMQ_SYS_";
    /** Made anew by each broker from its own configuration. */
    private static final List<String> SYSTEM_TOPICS_OF_CONFIGURATION = List.of("TBW102");

    private final JsonObject earlier;
    private final JsonObject later;
    private final boolean oldForm;
    private final List<String> problems = new ArrayList<>();

    private Comparison(JsonObject earlier, JsonObject later, boolean oldForm) {
        this.earlier = earlier;
        this.later = later;
        this.oldForm = oldForm;
    }

    /**
     * What of the earlier one is missing in the later one, which may have more. {@code atRest}: nobody has used the store in between,
     * so committed offsets and versions are the same ones. {@code oldForm}: the broker does not know all members of topics and groups.
     * {@code renumbered}: queues that may have lost the number of one message.
     */
    static List<String> problems(JsonObject earlier, JsonObject later, boolean atRest, boolean oldForm, Set<String> renumbered) {
        Comparison comparison = new Comparison(earlier, later, oldForm);
        comparison.tables();
        if (atRest) {
            comparison.contains("topicsVersion", earlier.get("topicsVersion"), later.get("topicsVersion"));
            comparison.contains("groupsVersion", earlier.get("groupsVersion"), later.get("groupsVersion"));
        }
        comparison.offsets("consumerOffsets", atRest);
        comparison.offsets("delayOffsets", false);
        comparison.queues(renumbered);
        comparison.queries();
        return comparison.problems;
    }

    private void tables() {
        for (String table : List.of("topics", "groups")) {
            earlier.getAsJsonObject(table).entrySet().forEach(entry -> {
                JsonElement found = later.getAsJsonObject(table).get(entry.getKey());
                if (!SYSTEM_TOPICS_OF_CONFIGURATION.contains(entry.getKey())) {
                    contains(table + " " + entry.getKey(), oldForm ? known(entry.getValue(), found) : entry.getValue(), found);
                }
            });
        }
    }

    /** The members that the broker knows. */
    private static JsonElement known(JsonElement wanted, JsonElement found) {
        if (found == null) {
            return wanted;
        }
        JsonObject known = wanted.deepCopy().getAsJsonObject();
        known.keySet().retainAll(found.getAsJsonObject().keySet());
        return known;
    }

    private void offsets(String table, boolean exact) {
        for (Map.Entry<String, JsonElement> entry : object(earlier, table).entrySet()) {
            String place = table + " " + entry.getKey();
            JsonElement found = object(later, table).get(entry.getKey());
            if (entry.getValue().isJsonObject()) {
                boolean equal = exact && !entry.getKey().contains(SYSTEM_GROUP_PREFIX);
                entry.getValue().getAsJsonObject().entrySet().forEach(queue ->
                    number(place + " " + queue.getKey(), queue.getValue(),
                        found == null ? null : found.getAsJsonObject().get(queue.getKey()), equal));
            } else {
                number(place, entry.getValue(), found, exact);
            }
        }
    }

    private void number(String place, JsonElement wanted, JsonElement found, boolean equal) {
        if (found == null) {
            if (wanted.getAsLong() != 0) { // no progress need not be written down
                problems.add(place + " is missing, it was " + wanted);
            }
        } else if (found.getAsLong() < wanted.getAsLong() || equal && found.getAsLong() != wanted.getAsLong()) {
            problems.add(place + " is " + found + ", it was " + wanted);
        }
    }

    private void queues(Set<String> renumbered) {
        earlier.getAsJsonObject("queues").entrySet().forEach(entry -> {
            String name = entry.getKey();
            JsonObject wanted = entry.getValue().getAsJsonObject();
            JsonObject found = later.getAsJsonObject("queues").getAsJsonObject(name);
            if (found == null) {
                problems.add("queue " + name + " is missing");
                return;
            }
            if (found.get("min").getAsLong() != wanted.get("min").getAsLong()) {
                problems.add("queue " + name + " begins at " + found.get("min") + ", it began at " + wanted.get("min"));
            }
            long max = wanted.get("max").getAsLong() - (renumbered.contains(name) ? 1 : 0);
            if (found.get("max").getAsLong() < max) {
                problems.add("queue " + name + " ends at " + found.get("max") + ", it ended at " + max);
            }
            JsonObject messages = found.getAsJsonObject("messages");
            wanted.getAsJsonObject("messages").entrySet().forEach(message ->
                contains("message " + name + " " + message.getKey(), message.getValue(), messages.get(message.getKey())));
        });
    }

    private void queries() {
        Map<String, JsonArray> found = new HashMap<>();
        later.getAsJsonArray("queries").forEach(query -> found.put(nameOf(query.getAsJsonObject()), query.getAsJsonObject().getAsJsonArray("offsets")));
        earlier.getAsJsonArray("queries").forEach(query -> {
            String name = nameOf(query.getAsJsonObject());
            JsonArray wanted = query.getAsJsonObject().getAsJsonArray("offsets");
            JsonArray offsets = found.getOrDefault(name, new JsonArray());
            wanted.forEach(offset -> {
                if (!offsets.contains(offset)) {
                    problems.add("query " + name + " finds " + offsets + ", it found " + wanted);
                }
            });
        });
    }

    private static String nameOf(JsonObject query) {
        return query.get("topic").getAsString() + "#" + query.get("key").getAsString() + (query.get("unique").getAsBoolean() ? " (unique)" : "");
    }

    /** Each member of {@code wanted} is in {@code found}, which may have more. */
    private void contains(String place, JsonElement wanted, JsonElement found) {
        if (found == null) {
            problems.add(place + " is missing");
        } else if (wanted.isJsonObject() && found.isJsonObject()) {
            wanted.getAsJsonObject().entrySet().forEach(member ->
                contains(place + " " + member.getKey(), member.getValue(), found.getAsJsonObject().get(member.getKey())));
        } else if (!wanted.equals(found)) {
            problems.add(place + " is " + found + ", it was " + wanted);
        }
    }

    private static JsonObject object(JsonObject holder, String name) {
        JsonElement found = holder.get(name);
        return found == null || found.isJsonNull() ? new JsonObject() : found.getAsJsonObject();
    }
}
