#!/usr/bin/env python3
"""Apache's store in both directions: made by one broker, opened by the other, and back.

    main.py PETREL VERSION=CLASSES...       for example 5.5.0=target/interop/javastore-5.5.0

Prints CASES and the names of all cases, then PASS CASE, or FAIL CASE: REASON, for each.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading

# Nothing is to be written into the source tree.
sys.dont_write_bytecode = True

from servers import Client, Failed, Java, Petrel, Store, free_ports, java_broker, kill, read_line, wait_for_end

FEATURES = {"5.5.0": "timer,pop,transaction,attributes", "4.9.7": "transaction"}
PETREL_FEATURES = "transaction"
READERS = ("javastore-readers", "Plain")
LATE_READERS = ("javastore-late-readers", "Plain")
# What Petrel has no use for yet, and so leaves alone.
LEFT_ALONE = [
    "abort.bak", "compaction/**/*", "config/consumerOrderInfo.json", "config/timercheck",
    "config/timermetrics", "config/topicQueueMapping.json", "config/transactionMetrics", "lock", "rocksdbstore/*", "timerlog/*", "timerwheel",
]
DERIVED = ("consumequeue", "index", "checkpoint")
FLOOD_SECONDS = 1.5
BODY = 88


class Suite:
    """The cases of one Java version that build on each other."""

    def __init__(self, java, petrel, folder, report):
        self.java = java
        self.petrel = petrel
        self.folder = folder
        self.report = report
        self.client = None

    def run(self, cases):
        for position, (name, case) in enumerate(cases):
            try:
                if self.client is None:
                    self.client = Client(self.java, self.folder / f"client-{name}")
                case(self)
            except (Failed, OSError, subprocess.SubprocessError, ValueError, KeyError) as failure:
                self.report(f"{name}-{self.java.version}", str(failure) or repr(failure))
                for skipped, _ in cases[position + 1:]:
                    self.report(f"{skipped}-{self.java.version}", f"{name} has failed")
                break
            self.report(f"{name}-{self.java.version}")
        if self.client:
            self.client.close()

    def store(self, name, **settings):
        return Store(self.folder / name, **settings)

    def file(self, name):
        return self.folder / f"{name}.json"

    def write(self, label, features):
        self.client.do("write", label, features)
        self.client.do("snapshot", self.file(label))

    def check(self, label, *options):
        self.client.do("check", self.file(label), *options)

    def check_in_java(self, label, *options):
        """Java 4.9 does not know all that a topic or a group has since."""
        self.check(label, *options, *(["old-form"] if self.java.version.startswith("4.") else []))


# ---- begun by Java ----

def java_to_petrel(suite):
    """All is served as Java served it; groups go on, delays become due; more is written. It does not start while Java serves."""
    store = suite.store("from-java")
    with java_broker(suite.java, store) as addresses:
        suite.client.connect(addresses)
        suite.write("java-1", FEATURES[suite.java.version])
        refuse_petrel(suite)
    before = left_alone(store)
    with suite.petrel.serving(store) as addresses:
        suite.client.connect(addresses)
        suite.check("java-1", "at-rest")
        suite.client.do("read", *READERS)
        suite.client.do("delivered", "Delay", 1, "java-1-later")
        suite.write("petrel-1", PETREL_FEATURES)
    after = left_alone(store)
    changed = [name for name in before if before[name] != after.get(name)]
    if changed:
        raise Failed(f"petrel has changed {changed}")
    keeps_filter(store)


def java_refused(suite):
    """A Java broker that is started on a served store goes away again. It looks for the lock only after it has recovered the store, and so
    has thrown index files away by then, and the file of the log that is made ready: what was there is still served, and the next start
    has it too. (Keys and what is written meanwhile are not looked at.)"""
    store = suite.store("from-java").copy(suite.folder / "refused")
    process, addresses = suite.petrel.start_serving(store)
    try:
        suite.client.connect(addresses)
        refuse_java(suite, store)
        suite.check("java-1")
        suite.check("petrel-1")
        suite.client.do("read", *READERS)
    finally:
        kill(process)
    with suite.petrel.serving(store) as addresses:
        suite.client.connect(addresses)
        suite.check("java-1", "without-keys")
        suite.check("petrel-1", "without-keys")


def back_to_java(suite):
    """Java has all of both, delivers what is due, ends the transaction that was left, and writes more."""
    with java_broker(suite.java, suite.store("from-java")) as addresses:
        suite.client.connect(addresses)
        suite.check_in_java("java-1")
        suite.check_in_java("petrel-1")
        suite.client.do("read", *READERS)
        if "timer" in FEATURES[suite.java.version]:
            suite.client.do("delivered", "Timer", 1, "java-1-timer-later")
        suite.client.do("decide", "java-1-half2")
        suite.client.do("delivered", "Delay", 1, "petrel-1-later")
        suite.write("java-2", FEATURES[suite.java.version])
    keeps_filter(suite.store("from-java"))


def and_again(suite):
    """Petrel has all of both."""
    with suite.petrel.serving(suite.store("from-java")) as addresses:
        suite.client.connect(addresses)
        suite.check("java-1")
        suite.check("petrel-1", *(["old-form"] if suite.java.version.startswith("4.") else []))
        suite.check("java-2", "at-rest")
        suite.client.do("read", *READERS)
        suite.write("petrel-2", PETREL_FEATURES)


def keeps_filter(store):
    text = (store.root / "config" / "consumerFilter.json").read_text()
    if "javastore-selectors" not in text or "number > 3" not in text:
        raise Failed(f"the filter is gone: {text}")


def refuse_petrel(suite):
    store = Store(suite.folder / "other", storePathRootDir=suite.store("from-java").root)
    process = suite.petrel.start(store, "refused")
    try:
        line = read_line(process, 20)
        if line:
            raise Failed(f"petrel has started on the store of a running Java broker: {line}")
        wait_for_end(process, "petrel on the store of a running Java broker", 1)
    finally:
        kill(process)


def refuse_java(suite, store):
    # A configuration of its own: the broker that goes away must not take the other's place in the name server with it.
    other = Store(store.folder / "other", storePathRootDir=store.root)
    other.configure(free_ports(4) + 2, free_ports(1))
    process = suite.java.start("refused", other.folder / "home", "broker", free_ports(1), other.conf)
    try:
        line = read_line(process, 40)
        if line:
            raise Failed("the Java broker has started on the store of a running petrel")
        wait_for_end(process, "the Java broker on the store of a running petrel", 255)
    finally:
        kill(process)


def left_alone(store):
    return {str(path.relative_to(store.root)): path.read_bytes()
            for pattern in LEFT_ALONE for path in store.root.glob(pattern) if path.is_file()}


# ---- begun by Petrel ----

def petrel_to_java(suite):
    """A store that only Petrel has written; Java serves all of it and writes; Petrel serves both."""
    store = suite.store("from-petrel")
    with suite.petrel.serving(store) as addresses:
        suite.client.connect(addresses)
        suite.write("petrel-1", PETREL_FEATURES)
    for copy in ("rebuilt", "damaged"):
        store.copy(suite.folder / copy)
    with java_broker(suite.java, store) as addresses:
        suite.client.connect(addresses)
        suite.check_in_java("petrel-1")
        suite.client.do("read", *READERS)
        suite.write("java-1", FEATURES[suite.java.version])
    with suite.petrel.serving(store) as addresses:
        suite.client.connect(addresses)
        suite.check("petrel-1", *(["old-form"] if suite.java.version.startswith("4.") else []))
        suite.check("java-1", "at-rest")
        suite.client.do("read", *READERS)


def rebuilt_by_java(suite):
    """Without queues, index and checkpoint Java makes them from Petrel's log, and serves the same."""
    store = suite.store("rebuilt")
    store.remove(*DERIVED)
    with java_broker(suite.java, store) as addresses:
        suite.client.connect(addresses)
        suite.check_in_java("petrel-1")


def killed(suite):
    """Petrel is killed under load: Java has all that was acknowledged, and then Petrel."""
    # After a crash Java looks at no more than ten files of the log for what its queues miss; and it throws the newest index files away,
    # but with messageIndexSafe makes them anew from where they began.
    store = suite.store("killed", mappedFileSizeCommitLog=32 << 20, messageIndexSafe="true", maxHashSlotNum=10_000, maxIndexNum=20_000)
    acknowledged = suite.file("acknowledged")
    process, addresses = suite.petrel.start_serving(store)
    try:
        suite.client.connect(addresses)
        suite.write("petrel-2", PETREL_FEATURES)
        timer = threading.Timer(FLOOD_SECONDS, process.kill)
        timer.start()
        suite.client.do("flood", "killed", acknowledged)
        timer.join()
    finally:
        kill(process)
    if not (store.root / "abort").exists():
        raise Failed("petrel was killed, but there is no abort")
    with java_broker(suite.java, store) as addresses:
        suite.client.connect(addresses)
        suite.client.do("acknowledged", acknowledged)
        suite.check_in_java("petrel-2")
    with suite.petrel.serving(store) as addresses:
        suite.client.connect(addresses)
        suite.client.do("acknowledged", acknowledged)
        suite.check("petrel-2", *(["old-form"] if suite.java.version.startswith("4.") else []))


def damaged(suite):
    """A flipped bit costs its message and nothing else: in Petrel, in Java, and in what Java makes anew from the log."""
    store = suite.store("damaged")
    queue, offset = flip_a_bit(suite, store)
    lost, place = f"lost={queue}/{offset}", f"{queue.split('/')[1]}/{offset}"
    with suite.petrel.serving(store) as addresses:
        suite.client.connect(addresses)
        suite.check("petrel-1", lost)
        suite.client.do("read", *READERS, place)
    if not any((store.root / "lost").iterdir()):
        raise Failed("petrel has kept nothing of the damaged record")
    with java_broker(suite.java, store) as addresses:
        suite.client.connect(addresses)
        suite.check_in_java("petrel-1", lost)
        suite.client.do("read", *LATE_READERS, place)
    store.remove(*DERIVED)
    with java_broker(suite.java, store) as addresses:
        suite.client.connect(addresses)
        suite.check_in_java("petrel-1", lost, f"renumbered={queue}")


def flip_a_bit(suite, store):
    """In the body of a message in the middle of the log; the next start looks at all of it."""
    queue, offset = "Plain/2", "20"
    message = json.loads(suite.file("petrel-1").read_text())["queues"][queue]["messages"][offset]
    segments = sorted((store.root / "commitlog").iterdir())
    segment = max(path for path in segments if int(path.name) <= message["physicalOffset"])
    with open(segment, "r+b") as file:
        place = message["physicalOffset"] - int(segment.name) + BODY + 10
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 4]))
    (store.root / "abort").write_text("1")
    store.remove("checkpoint")
    return queue, offset


CHAINS = [
    [("java-to-petrel", java_to_petrel), ("java-refused", java_refused), ("back-to-java", back_to_java), ("and-again", and_again)],
    [("petrel-to-java", petrel_to_java), ("rebuilt-by-java", rebuilt_by_java), ("killed", killed), ("damaged", damaged)],
]


def main():
    petrel, versions = sys.argv[1], dict(argument.split("=", 1) for argument in sys.argv[2:])
    print("CASES", *(f"{name}-{version}" for version in versions for chain in CHAINS for name, _ in chain), flush=True)
    lock = threading.Lock()
    failures = []

    def report(case, failure=None):
        with lock:
            if failure:
                failures.append(case)
            print(f"FAIL {case}: {failure}" if failure else f"PASS {case}", flush=True)

    folder = pathlib.Path(tempfile.mkdtemp(prefix="javastore-"))
    logs = pathlib.Path(next(iter(versions.values()))).parent / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for old in logs.glob("javastore-*-*.log"):
        old.unlink()
    threads = []
    for version, classes in versions.items():
        for number, chain in enumerate(CHAINS):
            name = f"javastore-{version}-{number}"
            own = folder / name
            own.mkdir()
            suite = Suite(Java(version, pathlib.Path(classes), logs / name), Petrel(petrel, logs / name), own, report)
            threads.append(threading.Thread(target=suite.run, args=(chain,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
