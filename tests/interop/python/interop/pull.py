"""A consumer that asks for messages itself."""

from interop import check
from interop.fixture import numbered
from interop.inbox import Inbox, copy

COUNT = 40


def pull(fixture):
    """Every queue from its beginning, then only what came later; offsets without a gap."""
    fixture.create_topic()
    consumer = fixture.pull_consumer()
    inbox = Inbox()
    next_offset = {}
    for run in ("first", "second"):
        bodies = numbered(run, COUNT)
        fixture.send_all(bodies)
        before = len(inbox.messages)

        def pulled_all():
            for message in consumer.pull(fixture.topic, max_num=7):
                received = copy(message)
                queue = received.queue_id
                check.equal(next_offset.get(queue, 0), received.queue_offset, f"queue offset in {queue}")
                next_offset[queue] = received.queue_offset + 1
                inbox.add(received)
            return len(inbox.messages) >= before + COUNT

        check.eventually(f"all messages of the {run} run", pulled_all)
        check.same_elements(bodies, inbox.bodies[before:], f"pulled in the {run} run")


CASES = {"pull": pull}
