package petrel.interop;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Objects;

/** Assertions that say what was expected and what came instead. */
final class Check {
    static final Duration PATIENCE = Duration.ofSeconds(60);

    private Check() {
    }

    /** A condition that may throw. */
    @FunctionalInterface
    interface Condition {
        boolean holds() throws Exception;
    }

    static void that(boolean condition, String expectation) {
        if (!condition) {
            throw new AssertionError(expectation);
        }
    }

    static void equal(Object expected, Object actual, String what) {
        that(Objects.equals(expected, actual), what + ": expected " + expected + ", got " + actual);
    }

    /** Same elements, each as often, in any order. */
    static void sameElements(Collection<String> expected, Collection<String> actual, String what) {
        List<String> missing = without(expected, actual);
        List<String> extra = without(actual, expected);
        that(missing.isEmpty() && extra.isEmpty(), what + ": expected " + expected.size() + " messages, got "
            + actual.size() + ", missing " + missing + ", unexpected " + extra);
    }

    /** Takes away one element for each of the others. */
    private static List<String> without(Collection<String> elements, Collection<String> others) {
        List<String> left = new ArrayList<>(elements);
        others.forEach(left::remove);
        return left.stream().sorted().toList();
    }

    static void eventually(String expectation, Condition condition) throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!condition.holds()) {
            that(System.nanoTime() < deadline, "not within " + PATIENCE.toSeconds() + " s: " + expectation);
            Thread.sleep(50);
        }
    }
}
