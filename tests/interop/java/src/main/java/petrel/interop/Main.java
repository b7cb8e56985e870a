package petrel.interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/** Runs the cases, all at once, against the name server given as first argument or in NAMESRV_ADDR. */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        String namesrv = args.length > 0 ? args[0] : System.getenv("NAMESRV_ADDR");
        if (namesrv == null) {
            System.err.println("usage: Main NAMESRV [CASE...]");
            System.exit(2);
        }
        Map<String, Case> cases = cases();
        if (args.length > 1) {
            cases.keySet().retainAll(List.of(args));
        }
        Path home = Files.createTempDirectory("interop-java-");
        // The clients keep logs and broadcast offsets below the home folder.
        System.setProperty("user.home", home.toString());
        boolean passed = run(cases, namesrv);
        delete(home);
        // Client threads that are not daemons must not hold the process.
        Runtime.getRuntime().halt(passed ? 0 : 1);
    }

    private static Map<String, Case> cases() {
        Map<String, Case> cases = new LinkedHashMap<>();
        SendCases.register(cases);
        PushCases.register(cases);
        PullCases.register(cases);
        RetryCases.register(cases);
        GroupCases.register(cases);
        QueryCases.register(cases);
        BodyCases.register(cases);
        SqlCases.register(cases);
        TransactionCases.register(cases);
        return cases;
    }

    private static boolean run(Map<String, Case> cases, String namesrv) throws InterruptedException {
        Report report = new Report(cases.keySet());
        List<Thread> threads = new ArrayList<>();
        cases.forEach((name, body) -> {
            Thread thread = new Thread(() -> report.run(name, body, namesrv), name);
            threads.add(thread);
            thread.start();
        });
        for (Thread thread : threads) {
            thread.join();
        }
        return report.allPassed();
    }

    private static void delete(Path folder) throws IOException {
        try (Stream<Path> paths = Files.walk(folder)) {
            paths.sorted((a, b) -> b.compareTo(a)).forEach(path -> path.toFile().delete());
        }
    }
}
