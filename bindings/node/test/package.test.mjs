// The package as users get it: its types, its entry points, and the archive that npm makes.

import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import fs from "node:fs";
import { createRequire } from "node:module";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as esm from "../index.mjs";
import * as jwtModule from "../jwt.mjs";
import * as loadtestModule from "../loadtest.mjs";

const folder = fileURLToPath(new URL("..", import.meta.url));
const require = createRequire(import.meta.url);

/** The declarations of a file of types: names of exports, and the members of classes. */
function declared(...files) {
  const names = new Set();
  const members = new Map();
  let current;
  const texts = files.map((file) => fs.readFileSync(path.join(folder, file), "utf8"));
  for (const line of texts.join("\n").split("\n")) {
    const start = /^export (?:declare )?(class|function|const|interface|type) (\w+)/.exec(line);
    if (start) {
      const [, kind, name] = start;
      if (kind !== "interface" && kind !== "type") names.add(name);
      current = kind === "class" && !line.endsWith("{}") ? name : undefined;
      if (current) members.set(name, new Set());
    } else if (line === "}") current = undefined;
    else if (current) {
      const member = /^ {2}(?:static |readonly |get )*(?:\[Symbol\.(\w+)\]|(\w+))[?(<:]/.exec(line);
      if (member && !line.includes("constructor")) members.get(current).add(member[2] ?? `@@${member[1]}`);
    }
  }
  return { names, members };
}

/** Whether a class has a member: a method, an accessor, a static one, or a field of an object. */
function has(made, member, fields) {
  if (member.startsWith("@@")) {
    const symbol = Symbol[member.slice(2)] ?? Symbol.for(`Symbol.${member.slice(2)}`);
    return symbol in made.prototype;
  }
  return member in made.prototype || Object.hasOwn(made, member) || fields.has(member);
}

test("the types say what the module has, and nothing else", () => {
  const own = (module) => Object.keys(module).filter((name) => name !== "default");
  for (const [file, module] of [
    ["index.d.ts", esm],
    ["loadtest.d.ts", loadtestModule],
    ["jwt.d.ts", jwtModule],
  ]) {
    const { names, members } =
      file === "index.d.ts" ? declared(file, "load.d.ts", "utilities.d.ts") : declared(file);
    // These are exported by another statement than that of their declaration.
    if (file === "index.d.ts") names.add("jwt");
    if (file === "jwt.d.ts") names.add("TokenError");
    assert.deepEqual([...names].sort(), own(module).sort(), file);
    const fields = new Set(fieldsOf());
    for (const [name, wanted] of members) {
      for (const member of wanted)
        assert.ok(has(module[name], member, fields), `${name}.${member} is declared only`);
      for (const member of Object.getOwnPropertyNames(module[name].prototype)) {
        if (member === "constructor" || member.startsWith("_")) continue;
        assert.ok(wanted.has(member), `${name}.${member} is not declared`);
      }
    }
  }
});

/** The fields of a `Gap`. */
const GAP = ["topic", "epoch", "first", "last"];

/** Fields of objects that no prototype has. */
function fieldsOf() {
  const { Result } = require("../lib/loadtest/result.js");
  const { latencies } = require("../lib/loadtest/result.js");
  const given = { startTimeMs: 0, stopTimeMs: 1, totalRequests: 0, errorCodes: {}, clients: 1 };
  const result = Result.of({ url: new URL("http://a/") }, { ...given, latencies: latencies([], 0, [0, 0]) });
  const others = ["id", "user", "address", "attachment", "length", "text", "exitCode", "report", ...GAP];
  return [...Object.keys(result), "code", "fault", "retryAfterMs", ...others];
}

test("the options in the types are those of the server", () => {
  const read = (file) => fs.readFileSync(path.join(folder, file), "utf8");
  const text = ["server-options.d.ts", "index.d.ts", "load-options.d.ts"].map(read).join("\n");
  const names = [
    /export interface EngineOptions \{\n(.*?)\n\}/s,
    /export interface HandlerOptions \{\n(.*?)\n\}/s,
  ]
    .map((pattern) => pattern.exec(text)[1])
    .flatMap((block) => [...block.matchAll(/^ {2}(\w+)\??:/gm)].map(([, name]) => name));
  assert.deepEqual(names.sort(), esm.Server.optionNames().sort());
  const load = /export interface LoadSettings \{\n(.*?)\n\}/s.exec(text)[1];
  const loadNames = [...load.matchAll(/^ {2}(\w+)\?:/gm)].map(([, name]) => name);
  assert.deepEqual(loadNames.sort(), require("../lib/load.js").loadOptionNames().sort());
});

test("import and require give the same objects", () => {
  const cjs = require("../index.js");
  assert.deepEqual(
    Object.keys(cjs).sort(),
    Object.keys(esm)
      .filter((name) => name !== "default")
      .sort(),
  );
  for (const [name, value] of Object.entries(esm)) {
    if (name !== "default") assert.equal(value, cjs[name]);
  }
  assert.equal(cjs.version, require("../package.json").version);
});

/** A copy of the package whose native module has no debug information: compressing that takes a minute. */
function lightCopy(t) {
  const copy = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(copy, { recursive: true }));
  const left = new Set(["node_modules", "bench", ".snippets", "tidewire.node"]);
  const filter = (from) => !left.has(path.relative(folder, from));
  fs.cpSync(folder, copy, { recursive: true, filter });
  const [whole, stripped] = [folder, copy].map((one) => path.join(one, "tidewire.node"));
  const { status } = spawnSync("strip", ["--strip-debug", "-o", stripped, whole]);
  if (status !== 0) fs.copyFileSync(whole, stripped);
  return copy;
}

test("the archive holds a package that works, with its types", (t) => {
  const folderOfUser = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(folderOfUser, { recursive: true }));
  const run = (command, ...words) =>
    execFileSync(command, words, { cwd: folderOfUser, encoding: "utf8", stdio: "pipe" });
  const packed = run("npm", "pack", lightCopy(t), "--ignore-scripts", "--silent").trim();
  fs.writeFileSync(path.join(folderOfUser, "package.json"), '{"name":"user","private":true}');
  run("npm", "install", `./${packed}`, "--offline", "--no-audit", "--no-fund", "--silent");
  const installed = fs.readdirSync(path.join(folderOfUser, "node_modules", "tidewire"), { recursive: true });
  assert.ok(installed.includes("tidewire.node"));
  assert.ok(!installed.some((file) => /^(src|test|bench|Cargo)|build/.test(file)), String(installed));
  assert.ok(installed.includes(path.join("scripts", "install.js")));
  const use = "s.start().then(() => s.stop()).then(() => console.log(s.state))";
  const words = { noAuth: true, port: 0, shards: 1 };
  const cjs = `const { Server } = require("tidewire"); const s = new Server(${JSON.stringify(words)}); ${use}`;
  assert.equal(run(process.execPath, "-e", cjs).trim(), "stopped");
  const mjs = `import { Server } from "tidewire"; import "tidewire/loadtest"; import "tidewire/jwt"; const s = new Server(${JSON.stringify(words)}); await ${use}`;
  assert.equal(run(process.execPath, "--input-type=module", "-e", mjs).trim(), "stopped");
  assert.match(run("npx", "--no-install", "tidewire-loadtest", "--version"), /Loadtest version/);

  fs.cpSync(path.join(folder, "test", "types"), folderOfUser, { recursive: true });
  for (const name of ["@types", "undici-types", "zod"]) {
    fs.symlinkSync(path.join(folder, "node_modules", name), path.join(folderOfUser, "node_modules", name));
  }
  const compiler = path.join(folder, "node_modules", ".bin", "tsc");
  const checked = spawnSync(compiler, ["-p", folderOfUser], { encoding: "utf8" });
  assert.equal(checked.stdout + checked.stderr, "");
});

/** The names of the fields of a message (PROTOCOL.md, section 4.1), but for `id`, which is a word. */
const WIRE = ["c", "t", "ts", "seq", "p", "v", "cid", "pri", "sig", "tp", "e", "o", "d", "rd", "n"];

test("no public name tells how the package is made, or is a field of a message", () => {
  const field = new RegExp(`^ +(?:readonly )?(${WIRE.join("|")})\\??: .*`, "m");
  for (const file of fs.readdirSync(folder).filter((name) => name.endsWith(".d.ts"))) {
    const text = fs.readFileSync(path.join(folder, file), "utf8");
    const code = text.replace(/\/\*.*?\*\/|\/\/[^\n]*/gs, "");
    assert.doesNotMatch(code, /\b(rust|napi|native|cargo)\w*/i, file);
    assert.equal(field.exec(code)?.[0], undefined, file);
  }
});

test("without a build of its own the package loads the native package for the platform, or names it", (t) => {
  const own = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(own, { recursive: true }));
  fs.mkdirSync(path.join(own, "lib"));
  fs.copyFileSync(path.join(folder, "lib", "native.js"), path.join(own, "lib", "native.js"));
  const load = () =>
    spawnSync(process.execPath, ["-p", 'require("./lib/native.js")'], { cwd: own, encoding: "utf8" });
  const name = `@tidewire/native-${process.platform}-${process.arch}${process.platform === "linux" ? "-gnu" : ""}`;
  assert.match(load().stderr, new RegExp(`nothing has been built, and the package ${name} is not installed`));
  const packaged = path.join(own, "node_modules", name);
  fs.mkdirSync(packaged, { recursive: true });
  fs.writeFileSync(path.join(packaged, "index.js"), 'module.exports = "packaged"');
  assert.equal(load().stdout, "packaged\n");
  fs.mkdirSync(path.join(own, "tidewire.node"));
  fs.writeFileSync(path.join(own, "tidewire.node", "index.js"), 'module.exports = "built"');
  assert.equal(load().stdout, "built\n");
});

/** A folder of sources with scripts, and a module of an earlier build. */
function sources(t, earlier) {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(root, { recursive: true }));
  const own = path.join(root, "bindings", "node");
  fs.cpSync(path.join(folder, "scripts"), path.join(own, "scripts"), { recursive: true });
  const module = path.join(own, "tidewire.node");
  if (earlier !== undefined) fs.writeFileSync(module, earlier);
  const programs = path.join(root, "programs");
  fs.mkdirSync(programs);
  const install = () => {
    const env = { PATH: programs };
    const script = path.join(own, "scripts", "install.js");
    const { status, stderr } = spawnSync(process.execPath, [script], { env, encoding: "utf8" });
    return { status, stderr, module: fs.existsSync(module) ? fs.readFileSync(module, "utf8") : undefined };
  };
  return { own, programs, install };
}

/** A program in place of cargo, whose build of a profile is the name of the profile. */
const CARGO = `#!${process.execPath}
const fs = require("node:fs");
const profile = process.argv.includes("--release") ? "release" : "debug";
fs.mkdirSync("target/" + profile, { recursive: true });
for (const name of ["libtidewire_node.so", "libtidewire_node.dylib", "tidewire_node.dll"])
  fs.writeFileSync("target/" + profile + "/" + name, profile);`;

test("an installation from source replaces the module of an earlier or another build", (t) => {
  const { own, programs, install } = sources(t, "debug");
  fs.writeFileSync(path.join(programs, "cargo"), CARGO, { mode: 0o755 });
  assert.deepEqual(install(), { status: 0, stderr: "", module: "release" });
  // The published package has no sources, and keeps its module.
  fs.rmSync(path.join(own, "scripts", "build.js"));
  fs.writeFileSync(path.join(own, "tidewire.node"), "published");
  assert.deepEqual(install(), { status: 0, stderr: "", module: "published" });
});

test("an installation from source without Rust keeps the module that is there, and says so", (t) => {
  const { status, stderr, module } = sources(t, "earlier").install();
  assert.deepEqual([status, module], [0, "earlier"]);
  assert.match(stderr, /cargo cannot be run .* stays that of the last build/);
  const without = sources(t).install();
  assert.deepEqual([without.status, without.module], [1, undefined]);
  assert.match(without.stderr, /install Rust/);
});
