"use strict";

// The native module: the one that scripts/build.js has built beside this package, or that of the package for this platform,
// which npm installs with a published release.

const fs = require("node:fs");
const path = require("node:path");

const file = path.join(__dirname, "..", "tidewire.node");

function load() {
  const { platform, arch, version } = process;
  const packaged = `@tidewire/native-${platform}-${arch}${platform === "linux" ? "-gnu" : ""}`;
  try {
    return require(fs.existsSync(file) ? file : packaged);
  } catch (error) {
    const hint =
      error.code === "MODULE_NOT_FOUND"
        ? `nothing has been built, and the package ${packaged} is not installed: install it if the release has it, or run \`npm run build\` in the folder of the sources, which needs Rust`
        : `it was built for another platform than ${platform} ${arch}, or another Node than ${version}`;
    throw new Error(`the native part of tidewire cannot be loaded: ${hint} (${error.message})`, {
      cause: error,
    });
  }
}

module.exports = load();
