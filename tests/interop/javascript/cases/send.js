'use strict';

// The ways to send; what arrived is read back.

const assert = require('assert');
const { createHash } = require('crypto');
const { equal } = require('../lib/check');
const { numbered } = require('../lib/fixture');

const COUNT = 40;

exports['send-sync'] = async fixture => {
  const results = new Map();
  for (const body of numbered('sync', COUNT)) {
    results.set(body, await fixture.send(fixture.message(body)));
  }
  await checkReceipts(fixture, results);
};

/** All sends are under way before the first is answered. */
exports['send-async'] = async fixture => {
  await fixture.producer();
  const results = new Map(await Promise.all(
    numbered('async', COUNT).map(async body => [ body, await fixture.send(fixture.message(body)) ])));
  await checkReceipts(fixture, results);
};

/** Messages of one sharding key share a queue and keep their order. */
exports['send-ordered'] = async fixture => {
  const sent = {};
  const queueOf = {};
  for (let step = 0; step < 10; step++) {
    for (let order = 0; order < 4; order++) {
      const message = fixture.message(`order-${order}-${step}`);
      message.shardingKey = fixedKey(order);
      const { messageQueue: { queueId } } = await fixture.send(message);
      equal(queueOf[order] === undefined ? queueId : queueOf[order], queueId, `queue of order ${order}`);
      queueOf[order] = queueId;
      (sent[queueId] = sent[queueId] || []).push(`order-${order}-${step}`);
    }
  }
  assert(Object.keys(sent).length > 1, 'more than one queue used');
  const inbox = await fixture.readAll(COUNT);
  equal(sent, inbox.bodiesByQueue, 'bodies by queue');
};

/**
 * A key whose hash, taken as the client takes it, does not choose queue 0 of four: the client takes that choice for
 * none and spreads the messages.
 */
function fixedKey(order) {
  const hash = key => createHash('md5').update(key).digest().readUInt32BE() % 4;
  return numbered(`sharding-${order}`, 100).find(key => hash(key) === 1 + order % 3);
}

/** Each receipt names the place of exactly the message it was given for. */
async function checkReceipts(fixture, results) {
  const inbox = await fixture.readAll(COUNT);
  await inbox.expectExactly([ ...results.keys() ]);
  for (const message of inbox.messages) {
    const result = results.get(message.body);
    equal('SEND_OK', result.sendStatus, 'status');
    equal(Number(result.messageQueue.queueId), message.queueId, 'queue');
    equal(result.queueOffset, message.queueOffset, 'queue offset');
    equal(result.msgId, message.msgId, 'message id');
  }
}
