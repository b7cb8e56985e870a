'use strict';

const assert = require('assert');

const PATIENCE_MILLIS = 60000;

exports.PATIENCE_MILLIS = PATIENCE_MILLIS;

const sleep = exports.sleep = millis => new Promise(resolve => setTimeout(resolve, millis));

/** Same elements, each as often, in any order. */
exports.sameElements = (expected, actual, what) => {
  const missing = without(expected, actual);
  const extra = without(actual, expected);
  assert(!missing.length && !extra.length,
    `${what}: expected ${expected.length} messages, got ${actual.length}, missing [${missing}], unexpected [${extra}]`);
};

/** Takes away one element for each of the others. */
function without(elements, others) {
  const left = [ ...elements ].sort();
  for (const other of others) {
    const index = left.indexOf(other);
    if (index >= 0) {
      left.splice(index, 1);
    }
  }
  return left;
}

exports.equal = (expected, actual, what) => {
  const [ wanted, came ] = [ expected, actual ].map(value => JSON.stringify(value));
  assert(came === wanted, `${what}: expected ${wanted}, got ${came}`);
};

exports.eventually = async (expectation, holds) => {
  const deadline = Date.now() + PATIENCE_MILLIS;
  while (!await holds()) {
    assert(Date.now() < deadline, `not within ${PATIENCE_MILLIS} ms: ${expectation}`);
    await sleep(50);
  }
};
