"use strict";

// Runs when the package is installed: the published one has its native module, a folder of the repository builds it.

const fs = require("node:fs");
const path = require("node:path");

const folder = path.join(__dirname, "..");
const isBuilt = fs.existsSync(path.join(folder, "tidewire.node"));
const build = path.join(__dirname, "build.js");

if (!isBuilt && fs.existsSync(build)) {
  process.argv.push("--release");
  require(build);
}
