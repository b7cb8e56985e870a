'use strict';

// What consumers of one group share: committed offsets and queues.

const { equal, eventually, sameElements, sleep } = require('../lib/check');
const { numbered } = require('../lib/fixture');
const { Inbox } = require('../lib/inbox');

const COUNT = 40;

/** A consumer commits when it is closed; its successor gets what came later and nothing twice. */
exports.restart = async fixture => {
  for (const run of [ 'first', 'second', 'third' ]) {
    const bodies = numbered(run, COUNT);
    await fixture.sendAll(bodies);
    const inbox = new Inbox();
    const consumer = await fixture.consume(inbox.take);
    await inbox.expectExactly(bodies);
    await consumer.close();
    // The commit is sent one-way and may still be on its way.
    await sleep(500);
  }
};

/** A second consumer takes half of the queues, and gives them back when it leaves. */
exports.rebalance = async fixture => {
  const first = await Member.join(fixture);
  await first.awaitQueues(4);
  const second = await Member.join(fixture);
  await first.awaitQueues(2);
  await second.awaitQueues(2);

  const shared = numbered('shared', COUNT);
  await fixture.sendAll(shared);
  await eventually('all messages for both',
    () => first.inbox.messages.length + second.inbox.messages.length >= COUNT);
  await sleep(1000);
  sameElements(shared, [ ...first.inbox.bodies, ...second.inbox.bodies ], 'received together');
  equal(first.queues, first.queuesReceivedFrom, 'queues of the first');
  equal(second.queues, second.queuesReceivedFrom, 'queues of the second');

  const before = first.inbox.messages.length;
  await second.consumer.close();
  await first.awaitQueues(4);
  const alone = numbered('alone', COUNT);
  await fixture.sendAll(alone);
  await eventually('all messages for the one that stayed',
    () => alone.every(body => first.inbox.bodies.includes(body)));
  // An old message may come again when its queue changes hands; a new one comes once.
  const fresh = first.inbox.bodies.slice(before).filter(body => !shared.includes(body));
  sameElements(alone, fresh, 'received after the second left');
};

/** A consumer of the group that knows which queues it was given. */
class Member {
  static async join(fixture) {
    const member = new Member();
    member.topic = fixture.topic;
    member.inbox = new Inbox();
    member.consumer = await fixture.consume(member.inbox.take);
    return member;
  }

  get queues() {
    return [ ...this.consumer.processQueueTable.values() ]
      .map(({ messageQueue }) => messageQueue)
      .filter(({ topic }) => topic === this.topic)
      .map(({ queueId }) => queueId)
      .sort();
  }

  get queuesReceivedFrom() {
    return [ ...new Set(this.inbox.messages.map(({ queueId }) => queueId)) ].sort();
  }

  async awaitQueues(count) {
    await eventually(`${count} queues for a member`, () => this.queues.length === count);
  }
}
