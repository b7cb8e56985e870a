'use strict';

// Push consumption: concurrent, broadcast, by tag.

const { equal } = require('../lib/check');
const { numbered } = require('../lib/fixture');
const { Inbox } = require('../lib/inbox');

const COUNT = 60;

exports['push-concurrent'] = async fixture => {
  const inbox = new Inbox();
  await fixture.consume(inbox.take, { parallelConsumeLimit: 8 });
  const bodies = numbered('concurrent', COUNT);
  await fixture.sendAll(bodies);
  await inbox.expectExactly(bodies);
};

exports.broadcast = async fixture => {
  const inboxes = [ new Inbox(), new Inbox() ];
  for (const inbox of inboxes) {
    await fixture.consume(inbox.take, { isBroadcast: true });
  }
  const bodies = numbered('broadcast', COUNT);
  await fixture.sendAll(bodies);
  for (const inbox of inboxes) {
    await inbox.expectExactly(bodies);
  }
};

/** AaAa and BBBB have the same hash code, by which the broker filters. */
exports.tags = async fixture => {
  const inbox = new Inbox();
  await fixture.consume(inbox.take, { tags: 'TagA || AaAa' });
  const wanted = [];
  for (let index = 0; index < 10; index++) {
    for (const tag of [ 'TagA', 'TagB', 'AaAa', 'BBBB' ]) {
      const body = `${tag}-${index}`;
      await fixture.send(fixture.message(body, tag));
      if (tag === 'TagA' || tag === 'AaAa') {
        wanted.push(body);
      }
    }
  }
  await inbox.expectExactly(wanted);
  for (const { tags, body } of inbox.messages) {
    equal(body.split('-')[0], tags, 'tag');
  }
};
