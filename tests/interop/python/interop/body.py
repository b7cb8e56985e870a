"""What bodies, keys and tags may hold, and how large a body may be."""

import random

from rocketmq.exceptions import ProducerSendSyncFailed

from interop import check, client_log
from interop.fixture import JAVA_BROKER
from interop.inbox import Inbox

LIMIT = 4_194_304


def non_ascii(fixture):
    fixture.create_topic()
    tag, key, body = "标签-étiquette", "ключ-🔑", "こんにちは, Grüße, 🦀"
    inbox = Inbox()
    properties = []

    def listener(message):
        properties.append(message.get_property("eigenschaft-ß"))
        return inbox.take(message)

    fixture.push(listener, tags=tag)
    message = fixture.message(body.encode(), tags=tag, keys=key)
    message.set_property("eigenschaft-ß", "värde-值")
    fixture.producer.send_sync(message)
    fixture.producer.send_sync(fixture.message(b"not subscribed", tags="标签-other"))
    inbox.expect_exactly([body.encode()])
    received = inbox.messages[0]
    check.equal(tag.encode(), received.tags, "tag")
    check.equal(key.encode(), received.keys, "key")
    check.equal("värde-值".encode(), properties[-1], "user property")


def compressed(fixture):
    """The client compresses bodies over 4 KiB; the receiver sees them as they were."""
    body = b"compressible " * 10_000
    fixture.producer.send_sync(fixture.message(body))
    inbox = fixture.read_all(1)
    check.equal([len(body)], [len(received) for received in inbox.bodies], "body sizes")
    check.equal(True, inbox.bodies[0] == body, "the body as it was sent")
    check.equal(True, inbox.messages[0].store_size < len(body) / 2, "a stored size below half of the body's")


def largest(fixture):
    body = incompressible(LIMIT)
    large_producer(fixture).send_sync(fixture.message(body))
    inbox = fixture.read_all(1)
    check.equal([LIMIT], [len(received) for received in inbox.bodies], "body sizes")
    check.equal(True, inbox.bodies[0] == body, "the body as it was sent")


def too_large(fixture):
    """The refusal names the limit and the actual size; the Java broker's text has no size.

    The client tells the program only that the send failed; the broker's text is in the client's log.
    """
    fixture.create_topic()
    try:
        large_producer(fixture).send_sync(fixture.message(incompressible(LIMIT + 1)))
    except ProducerSendSyncFailed:
        pass
    else:
        raise AssertionError(f"a body of {LIMIT + 1} bytes was accepted")
    numbers = ["4194304"] if JAVA_BROKER else ["4194304", "4194305"]
    check.eventually(f"a refusal with {numbers} in the client's log",
                     lambda: any(all(number in line for number in numbers) for line in client_log.refusals()))
    fixture.send_all([b"after"])
    fixture.read_all(1).expect_exactly([b"after"])


def large_producer(fixture):
    return fixture.new_producer(timeout=30_000, max_message_size=2 * LIMIT, compress_over=2 * LIMIT)


def incompressible(size):
    """Without a zero byte: the wrapper hands bodies out as C strings."""
    return random.Random(size).randbytes(size).replace(b"\0", b"\1")


CASES = {
    "non-ascii": non_ascii,
    "compressed": compressed,
    "body-4mib": largest,
    "body-too-large": too_large,
}
