"""What a consumer received."""

import collections
import threading
import time

from interop import check

SETTLE_SECONDS = 1
WARM_UP = b"warm-up"

Received = collections.namedtuple(
    "Received", "topic body tags keys id queue_id queue_offset store_size reconsume_times arrived_at")


def copy(message):
    """The library frees a message after its callback."""
    return Received(
        message.topic, message.body, message.tags, message.keys, message.id, message.queue_id,
        message.queue_offset, message.store_size, message.reconsume_times, time.time())


class Inbox:
    """Messages in the order of arrival; the one that created the topic does not count."""

    def __init__(self):
        self._lock = threading.Lock()
        self._messages = []

    def take(self, message):
        """A listener that accepts every message."""
        self.add(copy(message))
        return True

    def add(self, received):
        if received.body != WARM_UP:
            with self._lock:
                self._messages.append(received)

    @property
    def messages(self):
        with self._lock:
            return list(self._messages)

    @property
    def bodies(self):
        return [message.body for message in self.messages]

    @property
    def bodies_by_queue(self):
        queues = {}
        for message in self.messages:
            queues.setdefault(message.queue_id, []).append(message.body)
        return queues

    def expect_exactly(self, expected):
        """Waits for these bodies and for no others, each as often as given."""
        self.await_count(len(expected))
        time.sleep(SETTLE_SECONDS)
        check.same_elements(expected, self.bodies, "received")

    def await_count(self, count):
        """Returns with fewer when patience ends; the caller compares."""
        deadline = time.monotonic() + check.PATIENCE_SECONDS
        while len(self.messages) < count and time.monotonic() < deadline:
            time.sleep(0.05)
