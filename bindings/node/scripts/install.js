"use strict";

// Runs when the package is installed: the published one has its native module, a folder of the repository builds it. Cargo
// knows whether the sources have changed: a module that is there may be of older ones, or a debug build.

const fs = require("node:fs");
const path = require("node:path");

const build = path.join(__dirname, "build.js");

if (fs.existsSync(build)) {
  process.argv.push("--release", "--keep");
  require(build);
}
