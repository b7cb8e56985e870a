"""The processes that the runner starts: servers and programs. It ends those and no others, by their ids."""

import contextlib
import json
import os
import signal
import subprocess
import threading

STOP_SECONDS = 10


class StartFailed(Exception):
    """A process that the suite needs did not come up."""


class Processes:
    def __init__(self, logs):
        self._logs = logs
        self._lock = threading.Lock()
        self._running = []
        logs.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def petrel(self, name, executable, ready_seconds):
        """A server with an empty store for the suite `name`; gives its name server's address."""
        if not os.access(executable, os.X_OK):
            raise StartFailed(f"{executable} is not an executable")
        # What the Java broker does differently is not to be expected of ours.
        environment = {key: value for key, value in os.environ.items()
                       if key not in ("INTEROP_JAVA_BROKER", "NAMESRV_ADDR")}
        server = self._start(f"{name}-petrel", [
            str(executable), "server", "--ephemeral", "--ready-json", "--bind", "127.0.0.1",
            # Undecided transactions are asked about soon.
            "--set", "transactionTimeOut=1000", "--set", "transactionCheckInterval=5000",
        ], environment)
        try:
            with killed_after(ready_seconds, server):
                ready = server.stdout.readline()
            if not ready:
                raise StartFailed(f"petrel was not ready within {ready_seconds} s, see {name}-petrel.log")
            yield json.loads(ready)["namesrv"]
        finally:
            self._stop(server)

    def program(self, name, command, environment, seconds):
        return Program(self._start(name, command, {**os.environ, **environment}), seconds)

    def stop_all(self):
        with self._lock:
            running = list(self._running)
        for process in running:
            self._stop(process)

    def _start(self, name, command, environment):
        with open(self._logs / f"{name}.log", "wb") as log:
            try:
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                                           env=environment, start_new_session=True)
            except OSError as failure:
                raise StartFailed(f"{command[0]}: {failure.strerror}")
        with self._lock:
            self._running.append(process)
        return process

    def _stop(self, process):
        with self._lock:
            if process not in self._running:
                return
            self._running.remove(process)
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Program:
    """A running interop program, killed when its time is over."""

    def __init__(self, process, seconds):
        self._process = process
        self._seconds = seconds

    def lines(self):
        with killed_after(self._seconds, self._process):
            for line in self._process.stdout:
                yield line.decode(errors="replace").rstrip("\n")

    def wait(self):
        """How it ended, once its output has ended."""
        status = self._process.wait()
        if status == -signal.SIGKILL:
            return f"the program was killed, at the latest after {self._seconds} s"
        return f"the program ended with status {status}"


@contextlib.contextmanager
def killed_after(seconds, process):
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
