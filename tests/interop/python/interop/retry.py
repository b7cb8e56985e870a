"""Messages that come later: delay levels, retries, the dead letter queue."""

import time

import admin

from interop import check, client_log
from interop.fixture import JAVA_BROKER, numbered
from interop.inbox import SETTLE_SECONDS, Inbox

# The client finds the retry topic at its next rebalance, up to 20 s on.
RETRY_SECONDS = 35


def delay(fixture):
    """Level 1 is one second, level 2 five."""
    fixture.create_topic()
    inbox = Inbox()
    fixture.push(inbox.take)
    sent_at = time.time()
    for level in (2, 1, 0):
        message = fixture.message(f"level-{level}".encode())
        message.set_delay_time_level(level)
        fixture.producer.send_sync(message)
    inbox.expect_exactly([b"level-0", b"level-1", b"level-2"])
    arrivals = {message.body: message.arrived_at - sent_at for message in inbox.messages}
    for body, least in ((b"level-1", 1), (b"level-2", 5)):
        if arrivals[body] < least:
            raise AssertionError(f"{body} came after {arrivals[body]} s, not before {least} s expected")


def retry_then_dead_letter(fixture):
    """One retry, ten seconds on: the client leaves the delay, and here the limit too, to the broker.

    "once" succeeds at the second delivery, "never" ends in the dead letter queue. They are sent one after the other,
    since the client gives one status to all messages that a pull brought. The Java broker loses "never": the client
    does not name the original topic, without which that broker fails to move a message there.
    """
    fixture.create_topic()
    admin.create_group(fixture.namesrv, fixture.group, retry_max_times=1)
    inbox = Inbox()

    def listener(message):
        inbox.take(message)
        return not (message.body.startswith(b"never") or
                    message.body.startswith(b"once") and message.reconsume_times == 0)

    fixture.push(listener)
    expect_deliveries(fixture, inbox, "good", [0])
    expect_deliveries(fixture, inbox, "once", [0, 1])
    dead = expect_deliveries(fixture, inbox, "never", [0, 1])
    if not JAVA_BROKER:
        fixture.read_all(1, topic=f"%DLQ%{fixture.group}").expect_exactly([dead])


def expect_deliveries(fixture, inbox, kind, reconsume_times):
    """Sends a message; where the client lost it on its way back to the broker, another. Returns its body."""
    for body in numbered(kind, 3):
        lost_before = len(client_log.lost_send_backs())
        fixture.send_all([body])

        def received():
            return [message for message in inbox.messages if message.body == body]

        deadline = time.monotonic() + RETRY_SECONDS
        while len(received()) < len(reconsume_times) and time.monotonic() < deadline:
            time.sleep(0.05)
        if len(received()) >= len(reconsume_times) or len(client_log.lost_send_backs()) == lost_before:
            break
    time.sleep(SETTLE_SECONDS)
    check.equal(reconsume_times, [message.reconsume_times for message in received()], f"reconsume times of {body}")
    check.equal({fixture.topic}, {message.topic for message in received()}, "topic as the listener sees it")
    return body


CASES = {"delay": delay, "retry-dlq": retry_then_dead_letter}
