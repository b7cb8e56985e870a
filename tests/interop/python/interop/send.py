"""The ways to send; what arrived is read back."""

import threading

from rocketmq.client import SendStatus

from interop import check
from interop.fixture import JAVA_BROKER, numbered

COUNT = 40


def sync(fixture):
    results = {body: fixture.producer.send_sync(fixture.message(body)) for body in numbered("sync", COUNT)}
    check_receipts(fixture, results)


def asynchronous(fixture):
    fixture.create_topic()
    results, errors, answered = {}, [], threading.Semaphore(0)

    def send(body):
        def on_success(result):
            results[body] = result
            answered.release()

        def on_exception(error):
            errors.append(error)
            answered.release()

        message = fixture.message(body)
        fixture.producer.send_async(message, on_success, on_exception)
        return message

    # The library needs the messages until it has sent them.
    in_flight = [send(body) for body in numbered("async", COUNT)]
    for _ in in_flight:
        if not answered.acquire(timeout=check.PATIENCE_SECONDS):
            raise AssertionError("an async send was not answered")
    check.equal([], errors, "errors")
    check_receipts(fixture, results)


def oneway(fixture):
    fixture.create_topic()
    bodies = numbered("oneway", COUNT)
    for body in bodies:
        fixture.producer.send_oneway(fixture.message(body))
    fixture.read_all(COUNT).expect_exactly(bodies)


def batch(fixture):
    """The client marks a batch with `batch` = "1", which the Java broker takes for false: it stores one message, whose
    body is the encoded batch.
    """
    fixture.create_topic()
    bodies = numbered("batch", COUNT)
    result = fixture.producer.send_batch(
        [fixture.message(body, tags="tag", keys=f"key-{body.decode()}") for body in bodies])
    check.equal(SendStatus.OK, result.status, "status")
    if JAVA_BROKER:
        check.equal(1, len(fixture.read_all(1).messages), "messages")
        return

    inbox = fixture.read_all(COUNT)
    inbox.expect_exactly(bodies)
    check.equal(bodies, inbox.bodies, "bodies in order")
    for index, message in enumerate(inbox.messages):
        check.equal(result.offset + index, message.queue_offset, "queue offset")
        check.equal(b"key-" + message.body, message.keys, "keys")
    check.equal(1, len(inbox.bodies_by_queue), "queues")


def ordered(fixture):
    fixture.create_topic()
    sent = send_by_order(fixture)
    inbox = fixture.read_all(COUNT)
    check.equal(sent, inbox.bodies_by_queue, "bodies by queue")


def send_by_order(fixture):
    """Ten steps of four orders, each order in the queue of its number."""
    sent = {order: [] for order in range(4)}
    for step in range(10):
        for order in range(4):
            body = f"order-{order}-{step}".encode()
            fixture.producer.send_orderly(fixture.message(body), order)
            sent[order].append(body)
    return sent


def check_receipts(fixture, results):
    """Each receipt names the offset and the id of exactly the message it was given for."""
    inbox = fixture.read_all(COUNT)
    inbox.expect_exactly(list(results))
    for message in inbox.messages:
        result = results[message.body]
        check.equal(SendStatus.OK, result.status, "status")
        check.equal(result.offset, message.queue_offset, "queue offset")
        check.equal(result.msg_id, message.id, "message id")


CASES = {
    "send-sync": sync,
    "send-async": asynchronous,
    "send-oneway": oneway,
    "send-batch": batch,
    "send-ordered": ordered,
}
