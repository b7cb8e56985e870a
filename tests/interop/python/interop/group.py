"""What consumers of one group share: committed offsets and queues."""

import itertools
import time

from interop import check
from interop.fixture import numbered
from interop.inbox import SETTLE_SECONDS, Inbox

COUNT = 40


def restart(fixture):
    """A consumer commits when it is shut down; its successor gets what came later and nothing twice."""
    fixture.create_topic()
    for run in ("first", "second", "third"):
        bodies = numbered(run, COUNT)
        fixture.send_all(bodies)
        inbox = Inbox()
        consumer = fixture.push(inbox.take)
        inbox.expect_exactly(bodies)
        consumer.shutdown()
        # The commit is sent one-way and may still be on its way.
        time.sleep(0.5)


def rebalance(fixture):
    """A second consumer takes half of the queues, and gives them back when it leaves."""
    fixture.create_topic()
    first, second = Inbox(), Inbox()
    fixture.push(first.take)
    await_shares(fixture, {"first": first}, 4)
    leaving = fixture.push(second.take)
    await_shares(fixture, {"first": first, "second": second}, 2)
    expect_together(fixture, "shared", [first, second])
    leaving.shutdown()
    await_shares(fixture, {"first": first}, 4)
    expect_together(fixture, "alone", [first])


def await_shares(fixture, inboxes, queues_each):
    """The client does not tell which queues it was given, so probes show it."""
    rounds = itertools.count()

    def balanced():
        probes = numbered(f"probe-{next(rounds)}", 8)
        before = {name: len(inbox.messages) for name, inbox in inboxes.items()}
        fixture.send_all(probes)
        time.sleep(SETTLE_SECONDS)
        came = {name: inbox.messages[before[name]:] for name, inbox in inboxes.items()}
        together = sorted(message.body for messages in came.values() for message in messages)
        shares = [{message.queue_id for message in messages} for messages in came.values()]
        return together == sorted(probes) and all(len(share) == queues_each for share in shares)

    check.eventually(f"{queues_each} queues for each of {list(inboxes)}", balanced)


def expect_together(fixture, run, inboxes):
    before = [len(inbox.messages) for inbox in inboxes]
    bodies = numbered(run, COUNT)
    fixture.send_all(bodies)

    def came():
        return [inbox.messages[start:] for inbox, start in zip(inboxes, before)]

    check.eventually(f"{COUNT} messages of the run {run}", lambda: sum(map(len, came())) >= COUNT)
    time.sleep(SETTLE_SECONDS)
    check.same_elements(bodies, [message.body for messages in came() for message in messages], run)
    shares = [{message.queue_id for message in messages} for messages in came()]
    check.equal(4, sum(map(len, shares)), f"queues of all consumers in the run {run}")


CASES = {"restart": restart, "rebalance": rebalance}
