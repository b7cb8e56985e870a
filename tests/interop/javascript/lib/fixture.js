'use strict';

const { randomBytes } = require('crypto');
const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');
const { Inbox } = require('./inbox');

const logger = { error() {}, warn() {}, info() {}, debug() {} };

/** Names and clients of one case. */
class Fixture {
  constructor(namesrv, prefix, name) {
    this.namesrv = namesrv;
    this.topic = `${prefix}-${name}`;
    this.unique = `${name}-${randomBytes(4).toString('hex')}`;
    this.group = `interop-group-${this.unique}`;
    this.instances = 0;
  }

  options(more) {
    return {
      httpclient, logger, nameSrv: this.namesrv, instanceName: `${this.unique}-${this.instances++}`, ...more,
    };
  }

  /** A started producer; the same at each call without options. */
  async producer(more) {
    if (more) {
      return this.startProducer(more);
    }
    this.sender = this.sender || this.startProducer();
    return this.sender;
  }

  async startProducer(more) {
    const producer = new Producer(this.options({ producerGroup: `interop-producer-${this.unique}`, ...more }));
    producer.on('error', () => {});
    await producer.ready();
    return producer;
  }

  /**
   * A started consumer that begins at the first message. The client does not react to the broker's notification of
   * a changed group, so it rebalances more often than by default, and it looks for new routes more often too.
   */
  async consume(handler, { topic = this.topic, group = this.group, tags = '*', ...more } = {}) {
    const consumer = new Consumer(this.options({
      consumerGroup: group,
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      rebalanceInterval: 1000,
      pollNameServerInteval: 1000,
      ...more,
    }));
    // Missing routes of the retry topic and failing handlers are reported here; the cases look at what arrives.
    consumer.on('error', () => {});
    consumer.subscribe(topic, tags, handler);
    await consumer.ready();
    return consumer;
  }

  /** Reads a topic from its beginning with a group of its own. */
  async readAll(count, topic = this.topic) {
    const inbox = new Inbox();
    await this.consume(inbox.take, { topic, group: `interop-reader-${this.unique}` });
    await inbox.awaitCount(count);
    return inbox;
  }

  message(body, tags = 'tag') {
    return new Message(this.topic, tags, body);
  }

  async send(message) {
    return (await this.producer()).send(message);
  }

  async sendAll(bodies) {
    for (const body of bodies) {
      await this.send(this.message(body));
    }
  }
}

exports.Fixture = Fixture;
exports.numbered = (prefix, count) => Array.from({ length: count }, (_, index) => `${prefix}-${index}`);
