'use strict';

// Messages that come later: delay levels, retries, the dead letter queue.

const assert = require('assert');
const { equal } = require('../lib/check');
const { Inbox } = require('../lib/inbox');

/** Level 1 is one second, level 2 five. */
exports.delay = async fixture => {
  const inbox = new Inbox();
  await fixture.consume(inbox.take);
  await fixture.producer();
  const sentAt = Date.now();
  for (const level of [ 2, 1, 0 ]) {
    const message = fixture.message(`level-${level}`);
    message.delayTimeLevel = level;
    await fixture.send(message);
  }
  await inbox.expectExactly([ 'level-0', 'level-1', 'level-2' ]);
  for (const [ body, least ] of [[ 'level-1', 1000 ], [ 'level-2', 5000 ]]) {
    const after = inbox.messages.find(message => message.body === body).arrivedAt - sentAt;
    assert(after >= least, `${body} came after ${after} ms, not before ${least} expected`);
  }
};

/**
 * One retry, ten seconds on: the client leaves the delay to the broker. "once" succeeds at the second delivery,
 * "never" ends in the dead letter queue.
 */
exports['retry-dlq'] = async fixture => {
  const inbox = new Inbox();
  await fixture.consume(async message => {
    const body = message.body.toString();
    inbox.add(message);
    if (body === 'never' || body === 'once' && message.reconsumeTimes === 0) {
      throw new Error(`${body} is to be retried`);
    }
  }, { maxReconsumeTimes: 1 });
  await fixture.sendAll([ 'good', 'once', 'never' ]);

  const dead = await fixture.readAll(1, `%DLQ%${fixture.group}`);
  await dead.expectExactly([ 'never' ]);
  equal(fixture.topic, dead.messages[0].properties.RETRY_TOPIC, 'RETRY_TOPIC');

  await inbox.expectExactly([ 'good', 'once', 'once', 'never', 'never' ]);
  const times = { good: [], once: [], never: [] };
  inbox.messages.forEach(({ body, reconsumeTimes }) => times[body].push(reconsumeTimes));
  equal({ good: [ 0 ], once: [ 0, 1 ], never: [ 0, 1 ] }, times, 'reconsume times');
};
