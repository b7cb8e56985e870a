'use strict';

const { PATIENCE_MILLIS, sameElements, sleep } = require('./check');

/** Time in which a message too many would show. */
const SETTLE_MILLIS = 1000;

/** What a consumer received, in the order of arrival. */
class Inbox {
  constructor() {
    this.messages = [];
    /** A handler that accepts every message. */
    this.take = async message => { this.add(message); };
  }

  /** The client changes a message after its handler, so what matters is copied. */
  add(message) {
    this.messages.push({
      body: message.body.toString(),
      bytes: message.body,
      msgId: message.msgId,
      queueId: message.queueId,
      queueOffset: message.queueOffset,
      storeSize: message.storeSize,
      reconsumeTimes: message.reconsumeTimes,
      tags: message.tags,
      keys: message.keys,
      properties: { ...message.properties },
      arrivedAt: Date.now(),
    });
  }

  get bodies() {
    return this.messages.map(message => message.body);
  }

  /** Bodies of each queue in the order of arrival. */
  get bodiesByQueue() {
    const queues = {};
    for (const { queueId, body } of this.messages) {
      (queues[queueId] = queues[queueId] || []).push(body);
    }
    return queues;
  }

  /** Waits for these bodies and for no others, each as often as given. */
  async expectExactly(expected) {
    await this.awaitCount(expected.length);
    await sleep(SETTLE_MILLIS);
    sameElements(expected, this.bodies, 'received');
  }

  /** Returns with fewer when patience ends; the caller compares. */
  async awaitCount(count) {
    const deadline = Date.now() + PATIENCE_MILLIS;
    while (this.messages.length < count && Date.now() < deadline) {
      await sleep(50);
    }
  }
}

exports.Inbox = Inbox;
