// The engine's log, as a server's `log` receives it.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { ConfigurationError, Server } from "../index.mjs";
import { Client, eventually, program, serve } from "./support.mjs";

const OTHER = "http://other.example";
const REFUSED = `origin ${OTHER} is not allowed; add it to the option origin`;

/** Opens a page of an origin that is refused; a server logs each origin once. */
const refusedPage = (t, server, origin = OTHER) =>
  assert.rejects(Client.connect(t, server.url, { origin }), /403/);

test("the engine's lines arrive with their level", async (t) => {
  const lines = [];
  const log = (...line) => lines.push(line);
  const server = await serve(t, { log, logLevel: "info" });
  await eventually(() => lines.some(([, words]) => words.startsWith(`listening on ${server.url}`)));
  await refusedPage(t, server);
  await eventually(() => lines.some(([, words]) => words.includes(REFUSED)));
  const [level, words, ...more] = lines.find(([, text]) => text.includes(REFUSED));
  assert.deepEqual([level, more], ["warn", []]);
  assert.match(words, /address=127\.0\.0\.1:/);
});

test("a refused host is told with the option that allows it, as JavaScript spells it", async (t) => {
  const lines = [];
  const server = await serve(t, { log: (...line) => lines.push(line) });
  const page = { origin: "http://evil.example", headers: { host: "evil.example" } };
  await assert.rejects(Client.connect(t, server.url, page), /421/);
  const words = "host evil.example is not allowed; add it to the option allowHost";
  await eventually(() => lines.some(([, text]) => text.includes(words)));
});

test("lines below the level are not passed, and those of handlers neither", async (t) => {
  const lines = [];
  const log = (...line) => lines.push(line);
  const server = await serve(t, { log, logLevel: "error" }, (server) => {
    server.handle("fail", () => {
      throw new RangeError("mine");
    });
  });
  await refusedPage(t, server);
  const client = await Client.connect(t, server.url);
  await client.request("fail", null);
  // Nobody handles this type, which is a warning.
  await client.request("unknown", null);
  assert.deepEqual(
    lines.map(([level, , error]) => [level, error?.message]),
    [["error", "mine"]],
  );
});

test("the server that was started last receives the lines, and then the one before", async (t) => {
  const [first, second] = [[], []];
  const has = (lines, origin) => lines.some(([, words]) => words.includes(`origin ${origin} is not allowed`));
  const one = await serve(t, { log: (...line) => first.push(line) });
  const other = await serve(t, { log: (...line) => second.push(line) });
  await refusedPage(t, one, "http://a.example");
  await eventually(() => has(second, "http://a.example"));
  await other.stop();
  await refusedPage(t, one, "http://b.example");
  await eventually(() => has(first, "http://b.example"));
  assert.equal(has(first, "http://a.example"), false);
  assert.equal(has(second, "http://b.example"), false);
});

test("a worker thread that was ended no longer receives the lines", async (t) => {
  const lines = [];
  const server = await serve(t, { log: (...line) => lines.push(line) });
  const source = `
    const { Server } = require(${JSON.stringify(new URL("../index.js", import.meta.url).pathname)});
    new Server({ port: 0, noAuth: true, shards: 1, log: () => {} }).start()
      .then(() => require("node:worker_threads").parentPort.postMessage("started"));`;
  const worker = new Worker(source, { eval: true });
  await new Promise((resolve) => worker.once("message", resolve));
  await worker.terminate();
  await refusedPage(t, server);
  await eventually(() => lines.some(([, words]) => words.includes(REFUSED)));
});

test("without a log warnings are on the standard error, and a log that throws does no harm", async () => {
  const source = `
    import { Server } from "./index.mjs";
    import WebSocket from "ws";
    const log = process.env.IS_BROKEN ? () => { throw new Error("broken"); } : undefined;
    const server = await new Server({ port: 0, noAuth: true, shards: 1, log }).start();
    const socket = new WebSocket(server.url, { origin: ${JSON.stringify(OTHER)} });
    await new Promise((resolve) => socket.on("error", resolve));
    await server.stop();
    console.log("over");`;
  const { stdout, stderr } = await program(source);
  assert.equal(stdout, "over\n");
  assert.ok(stderr.startsWith("tidewire: ") && stderr.includes(REFUSED), stderr);
  const broken = await program(source, { env: { IS_BROKEN: "1" } });
  assert.deepEqual([broken.stdout, broken.stderr, broken.code], ["over\n", "", 0]);
});

test("a level that is none is refused", () => {
  for (const logLevel of ["warning", 3, true]) {
    assert.throws(
      () => new Server({ logLevel }),
      (error) =>
        error instanceof ConfigurationError && /expected one of off, error, warn/.test(error.message),
    );
  }
});

test("a log that holds up JavaScript does not hold up handshakes", async (t) => {
  // The lines are received by a process whose JavaScript stands still.
  const source = `
    import { Server } from "./index.mjs";
    const log = () => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
    const server = await new Server({ port: 0, noAuth: true, shards: 1, log, logLevel: "warn" }).start();
    console.log(server.url);`;
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], { cwd });
  t.after(() => child.kill("SIGKILL"));
  const [url] = await once(child.stdout.setEncoding("utf8"), "data");
  await refusedPage(t, { url: url.trim() });
  for (let count = 0; count < 50; count += 1) {
    const client = await Client.connect(t, url.trim());
    await client.until("server_ready");
  }
});
