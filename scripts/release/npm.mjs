// Packs the package `tidewire` for Node as it is published, into DIST: one package that works on every machine, and for each
// machine one with the native module, which npm installs where `os`, `cpu` and `libc` fit.
//
//     npm.mjs DIST TARGET MACHINE...
//
// TARGET is the folder into which cargo has built the native modules; a MACHINE is x86_64 or aarch64.

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../..", import.meta.url));
const source = join(root, "bindings/node");
const licenses = ["LICENSE", "LICENSE-APACHE", "LICENSE-MIT"];
const [dist, target, ...machines] = process.argv.slice(2);
const own = JSON.parse(readFileSync(join(source, "package.json"), "utf8"));
const architectures = { x86_64: "x64", aarch64: "arm64" };
const staged = mkdtempSync(join(tmpdir(), "tidewire-npm-"));

/** Writes the description of the package in a folder, and packs the folder. */
function pack(folder, description) {
  for (const name of licenses) cpSync(join(root, name), join(folder, name));
  writeFileSync(join(folder, "package.json"), `${JSON.stringify(description, null, 2)}\n`);
  execFileSync("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", dist], { cwd: folder });
}

const parts = {};
for (const machine of machines) {
  const cpu = architectures[machine];
  const folder = join(staged, machine);
  mkdirSync(folder);
  cpSync(join(target, `${machine}-unknown-linux-gnu/release/libtidewire_node.so`), join(folder, "tidewire.node"));
  cpSync(join(dist, "LICENSE-THIRD-PARTY.html"), join(folder, "LICENSE-THIRD-PARTY.html"));
  const name = `@tidewire/native-linux-${cpu}-gnu`;
  parts[name] = own.version;
  pack(folder, {
    name,
    version: own.version,
    description: `The native module of tidewire for Linux on ${cpu} with glibc`,
    license: own.license,
    main: "tidewire.node",
    files: ["tidewire.node", "LICENSE*"],
    engines: own.engines,
    os: ["linux"],
    cpu: [cpu],
    libc: ["glibc"],
  });
}

const folder = join(staged, "tidewire");
mkdirSync(folder);
const isOwn = ({ path }) => !/(^|\/)(tidewire\.node|scripts)(\/|$)/.test(path);
const listed = JSON.parse(execFileSync("npm", ["pack", "--json", "--dry-run", "--ignore-scripts"], { cwd: source, encoding: "utf8" }));
for (const { path } of listed[0].files.filter(isOwn)) cpSync(join(source, path), join(folder, path));
const { scripts: _, devDependencies: __, ...published } = own;
published.files = own.files.filter((path) => isOwn({ path })).concat("LICENSE*");
published.optionalDependencies = parts;
pack(folder, published);
rmSync(staged, { recursive: true });
