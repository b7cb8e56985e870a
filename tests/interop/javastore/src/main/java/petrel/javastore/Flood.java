package petrel.javastore;

import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

import com.google.gson.Gson;

/** Senders that go on until their broker is gone. */
final class Flood {
    private static final int SENDERS = 4;
    private static final int QUEUES = 4;

    private Flood() {
    }

    /** How many messages the broker acknowledged; they are written to the file. */
    static int run(Link link, String label, Path file) throws Exception {
        Acknowledged acknowledged = new Acknowledged();
        List<Thread> senders = new ArrayList<>();
        for (int sender = 0; sender < SENDERS; sender++) {
            int first = sender;
            Thread thread = new Thread(() -> send(link, label, first, acknowledged));
            senders.add(thread);
            thread.start();
        }
        for (Thread thread : senders) {
            thread.join();
        }
        Files.writeString(file, new Gson().toJson(acknowledged.toJson()));
        return acknowledged.count();
    }

    private static void send(Link link, String label, int sender, Acknowledged acknowledged) {
        try {
            for (int number = sender; ; number += SENDERS) {
                byte[] body = (label + " flood " + number + " " + "x".repeat(number * 37 % 2000)).getBytes(StandardCharsets.UTF_8);
                new Outgoing("Plain", number % QUEUES, body).keys(label + "-flood" + number).tags("A").send(link, acknowledged);
            }
        } catch (Exception ended) {
            System.err.println("sender " + sender + " ends: " + ended.getMessage());
        }
    }
}
