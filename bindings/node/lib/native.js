"use strict";

// The native module, built by scripts/build.js or taken from the published package.

const path = require("node:path");

const file = path.join(__dirname, "..", "tidewire.node");

function load() {
  try {
    return require(file);
  } catch (error) {
    const { platform, arch, version } = process;
    const hint =
      error.code === "MODULE_NOT_FOUND"
        ? "it has not been built: run `npm run build` in its folder, which needs Rust"
        : `it was built for another platform than ${platform} ${arch}, or another Node than ${version}`;
    throw new Error(`the native part of tidewire cannot be loaded: ${hint} (${error.message})`, {
      cause: error,
    });
  }
}

module.exports = load();
