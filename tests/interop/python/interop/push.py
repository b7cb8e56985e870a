"""Push consumption: concurrent, orderly, broadcast, by tag."""

from rocketmq.ffi import MessageModel

from interop import check
from interop.fixture import numbered
from interop.inbox import Inbox
from interop.send import send_by_order

COUNT = 60


def concurrent(fixture):
    fixture.create_topic()
    inbox = Inbox()
    fixture.push(inbox.take)
    bodies = numbered("concurrent", COUNT)
    fixture.send_all(bodies)
    inbox.expect_exactly(bodies)


def orderly(fixture):
    """One message of each queue is put off once; nothing of its queue may overtake it."""
    fixture.create_topic()
    inbox = Inbox()
    suspended = set()

    def listener(message):
        body = message.body
        if body.endswith(b"-5") and body not in suspended:
            suspended.add(body)
            return False
        return inbox.take(message)

    fixture.push(listener, orderly=True)
    sent = send_by_order(fixture)
    inbox.expect_exactly([body for bodies in sent.values() for body in bodies])
    check.equal(4, len(suspended), "messages put off")
    check.equal(sent, inbox.bodies_by_queue, "order of each queue")


def broadcast(fixture):
    fixture.create_topic()
    inboxes = [Inbox(), Inbox()]
    for inbox in inboxes:
        fixture.push(inbox.take, model=MessageModel.BROADCASTING)
    bodies = numbered("broadcast", COUNT)
    fixture.send_all(bodies)
    for inbox in inboxes:
        inbox.expect_exactly(bodies)


def tags(fixture):
    """AaAa and BBBB have the same hash code, by which the broker filters."""
    fixture.create_topic()
    inbox = Inbox()
    fixture.push(inbox.take, tags="TagA || AaAa")
    wanted = []
    for index in range(10):
        for tag in ("TagA", "TagB", "AaAa", "BBBB"):
            body = f"{tag}-{index}".encode()
            fixture.producer.send_sync(fixture.message(body, tags=tag))
            if tag in ("TagA", "AaAa"):
                wanted.append(body)
        fixture.producer.send_sync(fixture.message(f"untagged-{index}".encode()))
    inbox.expect_exactly(wanted)
    for message in inbox.messages:
        check.equal(message.body.split(b"-")[0], message.tags, "tag")


CASES = {
    "push-concurrent": concurrent,
    "push-orderly": orderly,
    "broadcast": broadcast,
    "tags": tags,
}
