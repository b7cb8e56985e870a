"""A store folder, and who serves it: a Java broker, or Petrel. Both take the folder's own broker.conf."""

import contextlib
import ctypes
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import threading

START_SECONDS = 60
STOP_SECONDS = 40
COMMAND_SECONDS = 90
PR_SET_PDEATHSIG = 1

# Small files, so that a few hundred messages fill several of each kind.
SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": 0,
    "brokerRole": "ASYNC_MASTER",
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "flushDiskType": "ASYNC_FLUSH",
    "autoCreateTopicEnable": "true",
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": 64 << 10,
    "mappedFileSizeConsumeQueue": 20 * 20,
    "mappedFileSizeTimerLog": 64 << 10,
    "maxHashSlotNum": 200,
    "maxIndexNum": 500,
    # Old stores must not be cleaned away.
    "fileReservedTime": 1_000_000,
    "flushConsumerOffsetInterval": 1_000,
    "flushDelayOffsetInterval": 1_000,
    # The default, 200 ms, refuses sends while the broker's code is still cold.
    "waitTimeMillsInSendQueue": 10000,
    # Undecided transactions stay so; the Java broker 4.9 makes their topics at its first look through them.
    "transactionTimeOut": 600_000,
    "transactionCheckInterval": 3_000,
}
# Java 4.9 wants one.
LOGBACK = """<configuration>
  <appender name="console" class="ch.qos.logback.core.ConsoleAppender"><encoder><pattern>%d %p %t - %m%n</pattern></encoder></appender>
  <root level="WARN"><appender-ref ref="console"/></root>
</configuration>
"""


class Failed(Exception):
    """A server or a client did not do what it had to."""


class Store:
    """A folder with `store` and `broker.conf`."""

    def __init__(self, folder, **settings):
        self.folder = folder
        self.settings = settings
        self.root = folder / "store"
        self.conf = folder / "broker.conf"
        folder.mkdir(parents=True, exist_ok=True)

    def configure(self, port, namesrv_port):
        entries = {**SETTINGS, "storePathRootDir": self.root, "listenPort": port, "namesrvAddr": f"127.0.0.1:{namesrv_port}", **self.settings}
        self.conf.write_text("".join(f"{key}={value}\n" for key, value in entries.items()))

    def copy(self, folder):
        """As a crash leaves it: what a running server has in its files by now."""
        folder.mkdir(parents=True)
        subprocess.run(["cp", "-a", "--sparse=always", str(self.root), str(folder / "store")], check=True)
        return Store(folder)

    def remove(self, *names):
        for name in names:
            path = self.root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()


class Java:
    """The compiled program of one version, and how it is called."""

    def __init__(self, version, classes, logs):
        self.version = version
        self._logs = logs
        self._classpath = f"{classes / 'classes'}:{classes / 'lib'}/*"

    def command(self, home, *arguments):
        return ["java", "-Xms128m", "-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                "-Xshare:auto", f"-Duser.home={home}", f"-Djava.io.tmpdir={home}",
                "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/java.nio=ALL-UNNAMED",
                "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
                # A certificate takes its time; a machine short of disk must not refuse messages.
                "-Dtls.server.mode=disabled", "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
                "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
                "-cp", self._classpath, "petrel.javastore.Main", *map(str, arguments)]

    def start(self, name, home, *arguments):
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "conf" / "logback_broker.xml").write_text(LOGBACK)
        environment = {**os.environ, "ROCKETMQ_HOME": str(home), "HOME": str(home)}
        environment.pop("NAMESRV_ADDR", None)
        return start(pathlib.Path(f"{self._logs}-{name}.log"), self.command(home, *arguments), environment)


@contextlib.contextmanager
def java_broker(java, store):
    """Gives the addresses of name server and broker; stops in order."""
    process, addresses = start_java_broker(java, store)
    try:
        yield addresses
        process.stdin.close()
        wait_for_end(process, f"the Java broker {java.version}", 0)
        stopped_in_order(store, f"the Java broker {java.version}")
    finally:
        kill(process)


def start_java_broker(java, store):
    namesrv_port, port = free_ports(1), free_ports(4) + 2
    store.configure(port, namesrv_port)
    process = java.start("broker", store.folder / "home", "broker", namesrv_port, store.conf)
    try:
        line = read_line(process, START_SECONDS)
        if line != "READY":
            raise Failed(f"the Java broker {java.version} did not start, status {process.wait(STOP_SECONDS)}")
    except BaseException:
        kill(process)
        raise
    return process, (f"127.0.0.1:{namesrv_port}", f"127.0.0.1:{port}")


class Petrel:
    """The executable."""

    def __init__(self, executable, logs):
        self._executable = executable
        self._logs = logs

    def start(self, store, name="petrel"):
        namesrv_port, port = free_ports(1), free_ports(4) + 2
        store.configure(port, namesrv_port)
        environment = {key: value for key, value in os.environ.items() if key != "NAMESRV_ADDR"}
        log = pathlib.Path(f"{self._logs}-{name}.log")
        # The file as it is, as one who comes from Java has it; the name server is this process's own.
        return start(log, [str(self._executable), "server", "-c", str(store.conf), "--namesrv-port", str(namesrv_port), "--ready-json"],
                     environment)

    @contextlib.contextmanager
    def serving(self, store):
        """Gives the addresses of name server and broker; stops in order."""
        process, addresses = self.start_serving(store)
        try:
            yield addresses
            process.terminate()
            wait_for_end(process, "petrel", 0)
            stopped_in_order(store, "petrel")
        finally:
            kill(process)

    def start_serving(self, store):
        process = self.start(store)
        line = read_line(process, START_SECONDS)
        if not line:
            raise Failed(f"petrel did not start, status {process.wait(STOP_SECONDS)}, see the log")
        ready = json.loads(line)
        return process, (ready["namesrv"], ready["broker"])


class Client:
    """The Java program as a client: one command, one answer."""

    def __init__(self, java, home):
        self._process = java.start("client", home, "client")

    def connect(self, addresses):
        self.do("connect", *addresses)

    def do(self, *command):
        text = " ".join(map(str, command))
        self._process.stdin.write(f"{text}\n".encode())
        self._process.stdin.flush()
        answer = read_line(self._process, COMMAND_SECONDS)
        word, _, rest = answer.partition(" ")
        if word != "OK":
            raise Failed(f"{text}: {rest or 'no answer'}")
        return rest

    def close(self):
        kill(self._process)


def start(log, command, environment):
    with open(log, "ab") as out:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, env=environment,
                                preexec_fn=die_with_parent)


def die_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def read_line(process, seconds):
    """The next line, empty when there is none or the time is over (the process is killed then)."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        return process.stdout.readline().decode().strip()
    finally:
        timer.cancel()


def wait_for_end(process, name, wanted):
    try:
        status = process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        raise Failed(f"{name} did not end within {STOP_SECONDS} s")
    if status != wanted:
        raise Failed(f"{name} ended with status {status}, not {wanted}")


def stopped_in_order(store, name):
    if (store.root / "abort").exists():
        raise Failed(f"{name} has stopped, but not in order: abort is there")


def kill(process):
    if process.poll() is None:
        process.kill()
    process.wait()


def free_ports(count):
    """The first of `count` neighbouring ports that are all free."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        if all(is_free(port) for port in range(first, first + count)):
            return first
    raise Failed("no free ports found")


def is_free(port):
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
    return True
