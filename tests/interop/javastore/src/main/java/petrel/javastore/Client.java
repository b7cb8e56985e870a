package petrel.javastore;

import java.io.BufferedReader;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;

/**
 * The commands:
 * <pre>
 * connect NAMESRV BROKER          the broker that the commands behind it are about
 * write LABEL FEATURE,...         messages of every kind; see {@link Writer}
 * flood LABEL ACKNOWLEDGED        sends until the broker is gone; what it acknowledged goes into the file
 * snapshot FILE                   writes what the broker serves into the file; all that was acknowledged since connect must be there
 * check FILE [OPTION...]          whether the broker serves all of a snapshot; options are at-rest, old-form (see {@link Comparison}),
 *                                 without-keys (no queries), lost=TOPIC/QUEUE/OFFSET, renumbered=TOPIC/QUEUE
 * acknowledged FILE               whether the broker serves all of what flood has written
 * delivered TOPIC QUEUE KEY       waits until the queue has a message of that key
 * decide KEY                      commits the pending half message of that key and waits for it
 * read GROUP TOPIC [QUEUE/OFFSET] a push consumer goes on at the group's offsets; the message named is lost
 * </pre>
 */
final class Client {
    private static final int SHOWN_PROBLEMS = 3;

    private final Gson gson = new Gson();
    private Acknowledged acknowledged;
    private Link link;
    private String namesrv;

    void run(BufferedReader commands, PrintStream answers) throws Exception {
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String answer;
            try {
                answer = ("OK " + execute(line.split(" "))).trim();
            } catch (Exception error) {
                error.printStackTrace();
                answer = "FAIL " + String.valueOf(error.getMessage()).replace('\n', ' ');
            }
            answers.println(answer);
            answers.flush();
        }
    }

    private String execute(String[] command) throws Exception {
        switch (command[0]) {
            case "connect" -> connect(command[1], command[2]);
            case "write" -> new Writer(link, command[1], Set.of(command[2].split(",")), acknowledged).write();
            case "flood" -> {
                return Flood.run(link, command[1], Path.of(command[2])) + " messages acknowledged";
            }
            case "snapshot" -> {
                return snapshot(Path.of(command[1]));
            }
            case "check" -> check(read(command[1]), List.of(command).subList(2, command.length));
            case "acknowledged" -> report(Acknowledged.missing(read(command[1]), Snapshot.take(link, new JsonObject())));
            case "delivered" -> Deliveries.await(link, command[1], Integer.parseInt(command[2]), command[3]);
            case "decide" -> Deliveries.decide(link, command[1]);
            case "read" -> {
                return Readers.goOn(link, namesrv, command[1], command[2], command.length > 3 ? command[3] : null) + " messages";
            }
            default -> throw new IllegalArgumentException("no such command: " + command[0]);
        }
        return "";
    }

    private void connect(String namesrv, String broker) {
        if (link != null) {
            link.close();
        }
        this.namesrv = namesrv;
        link = new Link(broker);
        acknowledged = new Acknowledged();
    }

    private String snapshot(Path file) throws Exception {
        JsonObject taken = Snapshot.take(link);
        report(Acknowledged.missing(acknowledged.toJson(), taken));
        Files.writeString(file, gson.toJson(taken));
        return Snapshot.messages(taken).size() + " messages, " + taken.getAsJsonArray("queries").size() + " keys";
    }

    private void check(JsonObject earlier, List<String> options) throws Exception {
        Set<String> renumbered = new HashSet<>();
        if (options.contains("without-keys")) {
            earlier.add("queries", new JsonArray());
        }
        for (String option : options) {
            String value = option.substring(option.indexOf('=') + 1);
            if (option.startsWith("lost=")) {
                lose(earlier, value.substring(0, value.lastIndexOf('/')), value.substring(value.lastIndexOf('/') + 1));
            } else if (option.startsWith("renumbered=")) {
                renumbered.add(value);
            } else if (!List.of("at-rest", "old-form", "without-keys").contains(option)) {
                throw new IllegalArgumentException("no such option: " + option);
            }
        }
        report(Comparison.problems(earlier, Snapshot.take(link, earlier), options.contains("at-rest"), options.contains("old-form"), renumbered));
    }

    /** Takes out a message that is known to be damaged. */
    private static void lose(JsonObject snapshot, String queue, String offset) {
        JsonObject lost = snapshot.getAsJsonObject("queues").getAsJsonObject(queue).getAsJsonObject("messages").remove(offset).getAsJsonObject();
        snapshot.getAsJsonArray("queries").forEach(query -> query.getAsJsonObject().getAsJsonArray("offsets").remove(lost.get("physicalOffset")));
    }

    private static JsonObject read(String file) throws Exception {
        return JsonParser.parseString(Files.readString(Path.of(file))).getAsJsonObject();
    }

    private static void report(List<String> problems) {
        problems.forEach(System.err::println);
        if (!problems.isEmpty()) {
            String more = problems.size() > SHOWN_PROBLEMS ? " and " + (problems.size() - SHOWN_PROBLEMS) + " more" : "";
            throw new IllegalStateException(String.join("; ", problems.subList(0, Math.min(SHOWN_PROBLEMS, problems.size()))) + more);
        }
    }
}
