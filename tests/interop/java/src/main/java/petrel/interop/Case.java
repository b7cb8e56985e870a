package petrel.interop;

/** One behaviour to prove; fails by throwing. */
@FunctionalInterface
interface Case {
    void run(Fixture fixture) throws Exception;
}
