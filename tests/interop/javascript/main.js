'use strict';

// Interop cases for the JavaScript client.
//
//   node main.js --cases                      prints the names of the cases
//   node main.js NAMESRV PREFIX [CASE...]     runs the cases, all at once
//
// The client creates no topics: for each case the topic PREFIX-CASE with four queues has to exist.

const { Fixture } = require('./lib/fixture');

const cases = {
  ...require('./cases/send'),
  ...require('./cases/push'),
  ...require('./cases/retry'),
  ...require('./cases/group'),
  ...require('./cases/body'),
};

async function main([ namesrv, prefix, ...wanted ]) {
  if (namesrv === '--cases') {
    console.log(Object.keys(cases).join(' '));
    return true;
  }
  if (!namesrv || !prefix) {
    console.error('usage: node main.js NAMESRV PREFIX [CASE...]');
    return false;
  }
  const names = Object.keys(cases).filter(name => !wanted.length || wanted.includes(name));
  console.log(`CASES ${names.join(' ')}`);
  const results = await Promise.all(names.map(name => run(name, new Fixture(namesrv, prefix, name))));
  return results.every(passed => passed);
}

async function run(name, fixture) {
  try {
    await cases[name](fixture);
    console.log(`PASS ${name}`);
    return true;
  } catch (err) {
    console.log(`FAIL ${name}: ${oneLine(err)}`);
    console.error(err);
    return false;
  }
}

function oneLine(err) {
  const line = String(err.message).replace(/\s+/g, ' ');
  return line.length > 500 ? `${line.slice(0, 500)}…` : line;
}

// The clients' timers never end, so the process is ended here.
main(process.argv.slice(2)).then(passed => process.exit(passed ? 0 : 1));
