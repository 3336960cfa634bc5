#!/usr/bin/env node
"use strict";

// Loads a URL with the flags of `loadtest` and prints its report. The exit code is 0 if no request failed, 1 if some did,
// and 2 for a mistake on the command line.

const os = require("node:os");
const { help, parse } = require("../lib/loadtest/program.js");
const { rcOptions } = require("../lib/loadtest/rc.js");
const { TidewireError } = require("../lib/errors.js");
const { loadTest } = require("../loadtest.js");
const { version } = require("../package.json");

async function main(words) {
  const { options, urls } = parse(words);
  if (options.help) {
    console.info(help());
    return 0;
  }
  if (options.version) {
    console.info(`Loadtest version: ${version}`);
    return 0;
  }
  if (urls.length !== 1) {
    console.error(
      urls.length === 0 ? "The URL is missing." : `There is more than one URL: ${urls.join(" ")}`,
    );
    console.error(help());
    return 2;
  }
  const controller = new AbortController();
  process.once("SIGINT", () => controller.abort());
  const result = await loadTest({
    cores: rcOptions(process.cwd()).cores ?? Math.max(1, Math.floor(os.cpus().length / 2)),
    ...options,
    url: urls[0],
    signal: controller.signal,
  });
  result.show();
  return result.totalErrors > 0 || result.totalRequests === 0 ? 1 : 0;
}

main(process.argv.slice(2)).then(
  (code) => {
    process.exitCode = code;
  },
  (error) => {
    console.error(error instanceof TidewireError ? `tidewire-loadtest: ${error.message}` : error);
    process.exitCode = 2;
  },
);
