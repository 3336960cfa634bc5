// Handlers that fail, applications that end, and what the process does then.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Client, eventually, program, serve, soon } from "./support.mjs";

const INDEX = new URL("../index.mjs", import.meta.url).href;
const START = `import { Server } from ${JSON.stringify(INDEX)};
const server = new Server({ port: 0, noAuth: true, shards: 1, protocol: "raw" });`;

test("handlers that throw and reject anything", async (t) => {
  const thrown = [undefined, null, 1, "text", Symbol("s"), {}, new Error("x"), new Proxy({}, {})];
  const server = await serve(t, { log: () => {} }, (server) => {
    server.on("throw", (message) => {
      throw thrown[message.payload];
    });
    server.on("reject", (message) => Promise.reject(thrown[message.payload]));
    // biome-ignore lint/suspicious/noThenProperty: a thenable that is no promise is what is tested.
    server.on("thenable", () => ({ then: (_, reject) => reject(new Error("x")) }));
    server.handle("alive", () => true);
  });
  const client = await Client.connect(t, server.url);
  let count = 0;
  for (const type of ["throw", "reject"]) {
    for (let index = 0; index < thrown.length; index++) {
      client.say(type, index, { cid: "c" });
      count += 1;
      const error = await client.until("error");
      assert.deepEqual([error.p.code, error.cid], ["HANDLER_ERROR", "c"]);
    }
  }
  client.say("thenable");
  assert.equal((await client.until("error")).p.code, "HANDLER_ERROR");
  assert.equal((await client.request("alive")).payload, true);
  assert.equal(server.handlerStatistics().errors, count + 1);
});

test("messages of one connection keep their order, those of others do not wait", async (t) => {
  const order = [];
  let release;
  const gate = new Promise((resolve) => {
    release = resolve;
  });
  const server = await serve(t, {}, (server) => {
    server.on("wait", async (message) => {
      await gate;
      order.push(message.payload);
    });
    server.on("now", (message) => {
      order.push(message.payload);
    });
  });
  const [one, other] = [await Client.connect(t, server.url), await Client.connect(t, server.url)];
  one.say("wait", "one: 1");
  one.say("now", "one: 2");
  await eventually(() => server.handlerStatistics().waiting === 1);
  other.say("now", "other");
  await eventually(() => order.length === 1);
  release();
  await eventually(() => order.length === 3);
  assert.deepEqual(order, ["other", "one: 1", "one: 2"]);
});

test("at the limit of handlers nothing more is received, and the sockets hold the senders back", async (t) => {
  let release;
  const gate = new Promise((resolve) => {
    release = resolve;
  });
  let received = 0;
  const limits = { handlersMax: 2, waitingMax: 4, queueBytesMax: 64 * 1024, rateLimitCapacity: 0 };
  const server = await serve(t, { protocol: "raw", ...limits }, (server) => {
    server.on("*", async () => {
      received += 1;
      await gate;
    });
  });
  const client = await Client.connect(t, server.url);
  const size = 64 * 1024;
  const sent = 400;
  for (let number = 0; number < sent; number++) client.send(Buffer.alloc(size));
  await eventually(() => server.handlerStatistics().waiting === 4);
  // What the sender still holds stays the same: the server does not read.
  let held = -1;
  await eventually(async () => {
    const before = client.socket.bufferedAmount;
    await pause(100);
    held = client.socket.bufferedAmount;
    return held === before && held > 0;
  });
  assert.equal(received, 1);
  release();
  await eventually(() => received === sent);
});

test("a handler that takes too long, and one that blocks", async (t) => {
  const log = [];
  const options = {
    handlerTimeoutMs: 30,
    blockedWarningMs: 20,
    log: (level, text) => log.push([level, text]),
  };
  const server = await serve(t, options, (server) => {
    server.handle("never", () => new Promise(() => {}));
    server.handle("block", () => {
      const until = Date.now() + 40;
      while (Date.now() < until);
    });
  });
  const client = await Client.connect(t, server.url);
  assert.equal((await client.request("never")).error.code, "HANDLER_ERROR");
  assert.equal((await client.request("block")).payload, null);
  const { timeouts, blocked, running } = server.handlerStatistics();
  assert.deepEqual([timeouts, blocked, running], [1, 1, 0]);
  assert.ok(log.some(([, text]) => text.includes("did not end within 30 ms")));
  assert.ok(log.some(([, text]) => text.includes("blocked the event loop")));
});

test("a stop does not wait for handlers that never end", async (t) => {
  const server = await serve(t, { stopTimeoutMs: 50, log: () => {} }, (server) => {
    server.on("never", () => new Promise(() => {}));
  });
  const client = await Client.connect(t, server.url);
  client.say("never");
  await eventually(() => server.handlerStatistics().running === 1);
  await soon(server.stop());
});

test("the process ends when there is nothing left to do", async () => {
  const ended = async (body) => {
    const { code, signal, stderr, stdout } = await program(START + body);
    assert.deepEqual([code, signal, stderr], [0, null, ""], body);
    return stdout.trim();
  };
  await ended("");
  await ended("await server.start(); await server.stop();");
  await ended("await server.start(); server.unref();");
  await ended("await server.start(); await server.drain(100);");
  await ended(
    "await using _ = server;".replace(
      "await using _ = server;",
      "await server.start(); await server[Symbol.asyncDispose]();",
    ),
  );
  assert.equal(
    await ended(
      "await server.start(); const b = server.batches(); setTimeout(() => server.stop(), 20); for await (const _ of b); console.log('over');",
    ),
    "over",
  );
  await ended("server.on('*', () => {}); await server.start(); process.exit(0);");
  await ended("await server.start(); const p = server.stop(); process.exit(0);");
  await ended("await server.start(); server.batches().next(); server.unref();");
});

test("a running server keeps the process alive, and signals end it", async (t) => {
  for (const signal of ["SIGTERM", "SIGINT"]) {
    const source = `${START} server.on("connect", () => {}); const run = server.run(); await new Promise((r) => setTimeout(r, 1)); console.log(server.url); await run; console.log("over");`;
    const cwd = fileURLToPath(new URL("..", import.meta.url));
    const child = spawn(process.execPath, ["--input-type=module", "-e", source], { cwd });
    t.after(() => child.kill("SIGKILL"));
    let output = "";
    child.stdout.on("data", (part) => {
      output += part;
    });
    await eventually(() => output.includes("ws://"));
    const client = await Client.connect(t, output.trim());
    child.kill(signal);
    const [code] = await soon(once(child, "exit"));
    assert.equal(code, 0);
    assert.match(output, /over/);
    await soon(client.closed);
  }
});

test("a killed server ends its clients' connections", async (t) => {
  const source = `${START} await server.start(); console.log(server.url);`;
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], { cwd });
  t.after(() => child.kill("SIGKILL"));
  const [line] = await soon(once(child.stdout, "data"));
  const client = await Client.connect(t, String(line).trim());
  child.kill("SIGKILL");
  assert.equal((await soon(client.closed)).code, 1006);
});

test("worker threads have servers of their own, and may be ended at any time", async () => {
  const { stdout, stderr, code } = await program(`
    import { Worker } from "node:worker_threads";
    const source = \`
      import { Server } from ${JSON.stringify(INDEX)};
      import { parentPort } from "node:worker_threads";
      const server = new Server({ port: 0, noAuth: true, shards: 1, protocol: "raw" });
      server.on("*", (message) => message.connection.sendRaw(message));
      await server.start();
      parentPort.postMessage(server.address.port);\`;
    const ports = new Set();
    for (let number = 0; number < 3; number++) {
      const worker = new Worker(new URL("data:text/javascript," + encodeURIComponent(source)));
      ports.add(await new Promise((resolve, reject) => { worker.once("message", resolve); worker.once("error", reject); }));
      await worker.terminate();
    }
    console.log(ports.size);
  `);
  assert.deepEqual([stdout.trim(), stderr, code], ["3", "", 0]);
});

test("processes of a cluster cannot share a port, and say so", async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const file = path.join(folder, "cluster.mjs");
  fs.writeFileSync(
    file,
    `import cluster from "node:cluster";
    import { Server } from ${JSON.stringify(INDEX)};
    const start = async (port) => {
      const server = new Server({ port, noAuth: true, shards: 2 });
      await server.start();
      return server;
    };
    if (cluster.isPrimary) {
      const first = cluster.fork({ PORT: "0" });
      first.once("message", (port) => {
        const second = cluster.fork({ PORT: String(port) });
        second.once("message", (words) => {
          console.log(words);
          first.kill();
          second.kill();
        });
      });
    } else {
      start(Number(process.env.PORT)).then(
        (server) => process.send(server.address.port),
        (error) => process.send(error.name),
      );
    }`,
  );
  const { stdout, code } = await program(undefined, { file });
  assert.deepEqual([stdout.trim(), code], ["AddressError", 0]);
});

test("an unclosed server that nobody holds is collected if it was not started", async () => {
  const { stdout, code, stderr } = await program(
    `import { Server } from ${JSON.stringify(INDEX)};
    let collected = 0;
    const registry = new FinalizationRegistry(() => { collected += 1; });
    for (let number = 0; number < 200; number++) registry.register(new Server({ noAuth: true }), number);
    for (let turn = 0; turn < 200 && collected < 190; turn++) { gc(); await new Promise((r) => setTimeout(r, 5)); }
    console.log(collected >= 190);`,
    { nodeOptions: ["--expose-gc"] },
  );
  assert.deepEqual([stdout.trim(), stderr, code], ["true", "", 0]);
});

test("starts and stops do not grow", async () => {
  const { stdout, stderr, code } = await program(
    `import { Server } from ${JSON.stringify(INDEX)};
    import fs from "node:fs";
    const cycle = async () => {
      const server = new Server({ port: 0, noAuth: true, shards: 1 });
      server.on("*", () => {});
      await server.start();
      await server.stop();
    };
    const used = async () => {
      // What is collected is released by the event loop.
      for (let round = 0; round < 5; round++) {
        gc();
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      return process.memoryUsage().rss;
    };
    const open = () => fs.readdirSync("/proc/self/fd").length;
    for (let number = 0; number < 600; number++) await cycle();
    const files = open();
    const growths = [];
    // The allocators take memory in steps, now and then; a leak shows in every stretch.
    for (let stretch = 0; stretch < 4; stretch++) {
      const bytes = await used();
      for (let number = 0; number < 300; number++) await cycle();
      growths.push((await used()) - bytes);
    }
    console.log(JSON.stringify({ growths, files: open() - files }));`,
    { nodeOptions: ["--expose-gc"], timeout: 110_000 },
  );
  assert.deepEqual([stderr, code], ["", 0]);
  const { growths, files } = JSON.parse(stdout);
  assert.ok(files <= 2, `${files} open files more`);
  assert.ok(Math.min(...growths) < 20 * 1024 * 300, `${growths} bytes more after 300 servers each`);
});
