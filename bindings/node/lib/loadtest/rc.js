"use strict";

// The rc file of `loadtest`: options for every load that is started below its folder.

const fs = require("node:fs");
const path = require("node:path");
const { InvalidArgumentError } = require("../errors.js");

/** Keys that the file has for the test server of `loadtest`. */
const OF_TEST_SERVER = ["delay", "error", "percent"];

/** The options of the nearest `.loadtestrc` (JSON), or of `loadtest` in package.json, from a folder upward. */
function rcOptions(folder) {
  for (let at = path.resolve(folder); ; at = path.dirname(at)) {
    for (const name of [".loadtestrc", ".loadtestrc.json"]) {
      const file = path.join(at, name);
      if (fs.existsSync(file)) return checked(json(file), file);
    }
    const manifest = path.join(at, "package.json");
    if (fs.existsSync(manifest)) {
      const { loadtest } = json(manifest);
      if (loadtest !== undefined) return checked(loadtest, `loadtest in ${manifest}`);
    }
    if (at === path.dirname(at)) return {};
  }
}

function json(file) {
  try {
    return JSON.parse(fs.readFileSync(file, "utf8"));
  } catch (error) {
    throw new InvalidArgumentError(`${file} is not JSON: ${error.message}`, { cause: error });
  }
}

function checked(options, where) {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new InvalidArgumentError(`${where} is no object with options`);
  }
  const kept = Object.entries(options).filter(([name]) => !OF_TEST_SERVER.includes(name));
  return Object.fromEntries(kept);
}

module.exports = { rcOptions };
