package petrel.javastore;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;

/**
 * Two programs in one.
 *
 * <p>{@code broker NAMESRV_PORT CONF} serves a store until its standard input ends, then stops in order.
 * {@code client} reads commands, one a line, and answers each with {@code OK ...} or {@code FAIL reason}; see {@link Client}.
 */
public final class Main {
    private Main() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        // Brokers and clients print what they like; the answers are the only thing on standard output.
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        if (args.length == 3 && args[0].equals("broker")) {
            Server.start(Integer.parseInt(args[1]), args[2]);
            answers.println("READY");
            answers.flush();
            while (commands.readLine() != null) {
                // only the end counts
            }
            System.exit(0); // the broker's own shutdown hook stops it in order
        } else if (args.length == 1 && args[0].equals("client")) {
            new Client().run(commands, answers);
            Runtime.getRuntime().halt(0);
        } else {
            System.err.println("usage: Main broker NAMESRV_PORT CONF | Main client");
            System.exit(2);
        }
    }
}
