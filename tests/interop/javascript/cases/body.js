'use strict';

// What bodies, keys and tags may hold, and how large a body may be.

const assert = require('assert');
const { randomBytes } = require('crypto');
const { equal } = require('../lib/check');
const { Inbox } = require('../lib/inbox');

const LIMIT = 4194304;

exports['non-ascii'] = async fixture => {
  const [ tag, key, body ] = [ '标签-étiquette', 'ключ-🔑', 'こんにちは, Grüße, 🦀' ];
  const inbox = new Inbox();
  await fixture.consume(inbox.take, { tags: tag });
  const message = fixture.message(body, tag);
  message.keys = [ key ];
  message.properties['eigenschaft-ß'] = 'värde-值';
  await fixture.send(message);
  await fixture.send(fixture.message('not subscribed', '标签-other'));

  await inbox.expectExactly([ body ]);
  const [ received ] = inbox.messages;
  equal(tag, received.tags, 'tag');
  equal(key, received.keys, 'key');
  equal('värde-值', received.properties['eigenschaft-ß'], 'user property');
};

/** The client compresses bodies over 4 KiB; the receiver sees them as they were. */
exports.compressed = async fixture => {
  const body = 'compressible '.repeat(10000);
  await fixture.send(fixture.message(body));
  const inbox = await fixture.readAll(1);
  equal(1, inbox.messages.length, 'messages');
  assert(inbox.messages[0].body === body, 'another body than was sent');
  assert(inbox.messages[0].storeSize < body.length / 2, `stored size ${inbox.messages[0].storeSize}`);
};

exports['body-4mib'] = async fixture => {
  const body = randomBytes(LIMIT);
  await (await largeProducer(fixture)).send(fixture.message(body));
  const inbox = await fixture.readAll(1);
  equal(1, inbox.messages.length, 'messages');
  assert(inbox.messages[0].bytes.equals(body), 'another body than was sent');
};

/** The refusal names the limit and the actual size; the Java broker's text has no size. */
exports['body-too-large'] = async fixture => {
  const producer = await largeProducer(fixture);
  await assert.rejects(producer.send(fixture.message(randomBytes(LIMIT + 1))), ({ code, message }) => {
    equal(13, code, `code of the refusal ${message}`);
    assert(message.includes('4194304'), `no limit in: ${message}`);
    assert(process.env.INTEROP_JAVA_BROKER || message.includes('4194305'), `no actual size in: ${message}`);
    return true;
  });
  await fixture.sendAll([ 'after' ]);
  await (await fixture.readAll(1)).expectExactly([ 'after' ]);
};

function largeProducer(fixture) {
  return fixture.producer({ compressMsgBodyOverHowmuch: 2 * LIMIT, sendMsgTimeout: 30000 });
}
