package petrel.filter;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.rocketmq.broker.filter.MessageEvaluationContext;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Prints what the published filter answers. Rows: {@code set NAME PROPERTIES}, then {@code expr EXPRESSION RESULTS}, where RESULTS is
 * {@code REFUSED} or one letter for each set: M matches, N does not, E fails while it is evaluated (and so does not match).
 */
public final class Table {
    private final Map<String, String> sets = new LinkedHashMap<>();
    private final Set<String> expressions = new LinkedHashSet<>();

    public static void main(String[] arguments) throws Exception {
        Table table = new Table();
        for (String line : Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            table.read(line);
        }
        RandomExpressions random = new RandomExpressions(new Random(Long.parseLong(arguments[2])));
        for (int wanted = Integer.parseInt(arguments[1]); wanted > 0; wanted--) {
            table.expressions.add(random.next());
        }
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        table.print(out);
        out.flush();
        System.exit(0);
    }

    /** {@code #} a comment, {@code @name key=value…} separated by tabs, {@code @@name text}, else an expression. */
    private void read(String line) {
        if (line.isEmpty() || line.startsWith("#")) {
            return;
        }
        if (line.startsWith("@@")) {
            String[] parts = line.substring(2).split("\t", 2);
            sets.put(parts[0], Escapes.decode(parts[1]));
        } else if (line.startsWith("@")) {
            String[] parts = line.substring(1).split("\t");
            StringBuilder text = new StringBuilder();
            for (int i = 1; i < parts.length; i++) {
                text.append(Escapes.decode(parts[i]).replaceFirst("=", "\u0001")).append('\u0002');
            }
            sets.put(parts[0], text.toString());
        } else {
            expressions.add(Escapes.decode(line));
        }
    }

    private void print(PrintStream out) {
        List<Map<String, String>> properties = new ArrayList<>();
        sets.forEach((name, text) -> {
            out.print("set\t" + name + "\t" + Escapes.encode(text) + "\n");
            properties.add(MessageDecoder.string2messageProperties(text));
        });
        for (String expression : expressions) {
            out.print("expr\t" + Escapes.encode(expression) + "\t" + results(expression, properties) + "\n");
        }
    }

    private static String results(String expression, List<Map<String, String>> properties) {
        Expression compiled;
        try {
            compiled = FilterFactory.INSTANCE.get("SQL92").compile(expression);
        } catch (Throwable refused) {
            return "REFUSED";
        }
        StringBuilder results = new StringBuilder();
        for (Map<String, String> one : properties) {
            results.append(result(compiled, one));
        }
        return results.toString();
    }

    private static char result(Expression compiled, Map<String, String> properties) {
        try {
            Object result = compiled.evaluate(new MessageEvaluationContext(properties));
            return Boolean.TRUE.equals(result) ? 'M' : 'N';
        } catch (Throwable failed) {
            return 'E';
        }
    }
}
