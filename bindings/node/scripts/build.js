"use strict";

// Builds the native module from its sources, and puts it beside the package. With --release it is as fast as it can be.
// With --keep a module that is there stays if cargo is not installed. TIDEWIRE_NATIVE is the folder of a module that cargo
// has built already, such as target/debug.

const { spawnSync } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");

const folder = path.join(__dirname, "..");
const root = path.join(folder, "..", "..");
const isRelease = process.argv.includes("--release");
const place = path.join(folder, "tidewire.node");

const given = isRelease ? undefined : process.env.TIDEWIRE_NATIVE;
if (!given) runCargo();
const target = path.resolve(root, process.env.CARGO_TARGET_DIR ?? "target");
const names = { darwin: "libtidewire_node.dylib", win32: "tidewire_node.dll" };
const built = path.join(
  given ?? path.join(target, isRelease ? "release" : "debug"),
  names[process.platform] ?? "libtidewire_node.so",
);
// A process that has loaded the old file keeps it: the new one takes its place at once.
const fresh = path.join(folder, `tidewire.node.${process.pid}`);
fs.copyFileSync(built, fresh);
fs.renameSync(fresh, place);

function runCargo() {
  const cargo = spawnSync(
    "cargo",
    ["build", "--locked", "--package", "tidewire-node", isRelease ? "--release" : "--quiet"],
    { cwd: root, stdio: "inherit" },
  );
  if (cargo.error) {
    if (process.argv.includes("--keep") && fs.existsSync(place)) {
      console.error(
        `tidewire: cargo cannot be run (${cargo.error.message}), so the native module stays that of the last build`,
      );
      process.exit(0);
    }
    console.error(
      `tidewire: cargo cannot be run (${cargo.error.message}); install Rust from https://rustup.rs`,
    );
    process.exit(1);
  }
  if (cargo.status !== 0) process.exit(cargo.status ?? 1);
}
