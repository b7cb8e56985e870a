package petrel.javastore;

import java.util.concurrent.Callable;

/** Waiting for a condition, with a deadline. */
final class Await {
    private static final long SECONDS = 30;

    private Await() {
    }

    static void until(String what, Callable<Boolean> condition) throws Exception {
        long deadline = System.nanoTime() + SECONDS * 1_000_000_000L;
        while (!condition.call()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("waited " + SECONDS + " s in vain for " + what);
            }
            Thread.sleep(20);
        }
    }
}
