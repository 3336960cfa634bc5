"use strict";

// The interface of the npm module `loadtest`, on this package's load generator.

const engineRun = require("./lib/loadtest/engine-run.js");
const { callsScript, prepare, read } = require("./lib/loadtest/options.js");
const { rcOptions } = require("./lib/loadtest/rc.js");
const { Result } = require("./lib/loadtest/result.js");
const scriptRun = require("./lib/loadtest/script-run.js");
const { startServer } = require("./lib/loadtest/test-server.js");

/**
 * Loads a URL: a promise of the result, or nothing if there is a callback `(error, result)`. It is rejected for mistakes in
 * the options alone; a service that fails is a result.
 */
function loadTest(options, callback) {
  const result = run(options);
  if (callback === undefined) return result;
  // Errors of the callback are the caller's own, and are not given to the callback again.
  result.then(
    (value) => queueMicrotask(() => callback(null, value)),
    (error) => queueMicrotask(() => callback(error)),
  );
  return undefined;
}

async function run(given) {
  const options = await prepare(read(given ?? {}, rcOptions(process.cwd())));
  const print = options.quiet ? () => {} : (line) => console.info(line);
  return await (callsScript(options) ? scriptRun : engineRun).run(options, print);
}

module.exports = { Result, loadTest, startServer };
