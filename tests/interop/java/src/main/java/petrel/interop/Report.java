package petrel.interop;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.atomic.AtomicInteger;

/** Prints the names of the cases first, then one line for each when it ends. */
final class Report {
    private static final int REASON_LENGTH = 500;

    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final AtomicInteger failures = new AtomicInteger();

    Report(Set<String> cases) {
        out.println("CASES " + String.join(" ", cases));
    }

    void run(String name, Case body, String namesrv) {
        try (Fixture fixture = new Fixture(namesrv, name)) {
            body.run(fixture);
            out.println("PASS " + name);
        } catch (Throwable failure) {
            failures.incrementAndGet();
            out.println("FAIL " + name + ": " + reason(failure));
            failure.printStackTrace();
        }
    }

    /** One line with the first and the last of the causes. */
    private static String reason(Throwable failure) {
        Throwable root = failure;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        String text = root == failure ? failure.toString() : failure + " <- " + root;
        String line = text.replaceAll("\\s+", " ");
        return line.length() <= REASON_LENGTH ? line : line.substring(0, REASON_LENGTH) + "…";
    }

    boolean allPassed() {
        return failures.get() == 0;
    }
}
