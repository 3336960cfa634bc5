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
  // The sender still holds the same messages: the server does not read.
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

/** A program that prints the URL of its server: its process, what it has printed so far, and a client. */
async function programOf(t, source) {
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], { cwd });
  t.after(() => child.kill("SIGKILL"));
  let output = "";
  child.stdout.on("data", (part) => {
    output += part;
  });
  await eventually(() => output.includes("ws://"));
  return { child, said: () => output, client: await Client.connect(t, output.trim()) };
}

test("a running server keeps the process alive, and signals end it", async (t) => {
  for (const signal of ["SIGTERM", "SIGINT"]) {
    const source = `${START} server.on("connect", () => {}); const run = server.run(); await new Promise((r) => setTimeout(r, 1)); console.log(server.url); await run; console.log("over");`;
    const { child, said, client } = await programOf(t, source);
    child.kill(signal);
    const [code] = await soon(once(child, "exit"));
    assert.equal(code, 0);
    assert.match(said(), /over/);
    await soon(client.closed);
  }
});

test("a second signal ends a program whose clients have not left", async (t) => {
  const source = `${START}
    process.on("SIGINT", () => console.log("told"));
    const run = server.run({ drainTimeoutMs: 600_000 });
    await new Promise((resolve) => setTimeout(resolve, 1));
    console.log(server.url);
    await run;
    console.log("over");`;
  const { child, said, client } = await programOf(t, source);
  // It reads nothing, so it does not know that it should leave.
  client.socket.pause();
  child.kill("SIGINT");
  await eventually(() => said().includes("told"));
  child.kill("SIGINT");
  const [code] = await soon(once(child, "exit"));
  assert.equal(code, 130);
  assert.match(said(), /over/);
  client.socket.resume();
  await soon(client.closed);
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

test("a killed client is a lost connection", async (t) => {
  const ends = [];
  const server = await serve(t, { protocol: "raw" }, (server) => {
    server.on("disconnect", ({ reason, connection }) => ends.push([reason, connection.isOpen]));
  });
  const source = `import WebSocket from "ws"; const socket = new WebSocket(${JSON.stringify(server.url)});
    socket.on("open", () => socket.send("here")); setInterval(() => {}, 1000);`;
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], { cwd });
  t.after(() => child.kill("SIGKILL"));
  await eventually(() => server.connections === 1);
  child.kill("SIGKILL");
  await eventually(() => ends.length === 1);
  assert.deepEqual(ends, [["lost", false]]);
  assert.equal(server.connections, 0);
});

test("process.exit at any moment ends the process", async () => {
  // A client of the same process keeps the server busy.
  const busy = `import WebSocket from "ws"; import { load } from ${JSON.stringify(INDEX)};
    const talk = () => new Promise((resolve) => {
      const socket = new WebSocket(server.url);
      socket.on("open", () => { for (let n = 0; n < 100; n++) socket.send("x".repeat(1000)); resolve(socket); });
      socket.on("message", () => socket.send("again"));
      socket.on("error", () => {});
    });`;
  const moments = {
    "before the start": "process.exit(7);",
    "while it starts": "server.start(); process.exit(7);",
    "in a handler": `server.on("*", () => process.exit(7)); await server.start(); await talk();`,
    "in the handler of a connect": `server.on("connect", () => process.exit(7)); await server.start(); await talk();`,
    "behind an echo": `let n = 0; server.on("*", (m) => { m.connection.sendRaw(m); if (++n === 150) process.exit(7); }); await server.start(); await talk();`,
    "with handlers that wait": `server.on("*", () => new Promise(() => {})); await server.start(); await talk(); setTimeout(() => process.exit(7), 20);`,
    "in a loop over batches": `const b = server.batches(); await server.start(); talk(); let n = 0; for await (const one of b) { n += one.length; if (n > 50) process.exit(7); }`,
    "while it publishes": `server.on('*', () => {}); await server.start(); await talk(); server.publishMany("t", Array.from({ length: 1000 }, (_, n) => n)); process.exit(7);`,
    "while it drains": `server.on('*', () => {}); await server.start(); await talk(); server.drain(5000); setTimeout(() => process.exit(7), 20);`,
    "while it stops":
      "server.on('*', () => {}); await server.start(); await talk(); server.stop(); process.exit(7);",
    "during a load": `server.on("*", (m) => m.connection.sendRaw(m)); await server.start(); load(server.url, { connections: 2, durationS: 30, message: "x", reply: "pong" }); setTimeout(() => process.exit(7), 200);`,
    "with an error that nobody catches": `server.on('*', () => {}); await server.start(); await talk(); process.on("uncaughtException", () => process.exit(7)); throw new Error("x");`,
  };
  for (const [moment, body] of Object.entries(moments)) {
    const { code, signal, stderr } = await program(`${START}${busy}${body}`);
    assert.deepEqual([code, signal, stderr], [7, null, ""], moment);
  }
});

test("the protocol goes on while a handler blocks the event loop", async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const signal = path.join(folder, "go on");
  const source = `${START.replace(', protocol: "raw"', "")}
    import fs from "node:fs";
    server.on("block", ({ connection }) => {
      while (!fs.existsSync(${JSON.stringify(signal)}));
      connection.send(null, { type: "unblocked" });
    });
    await server.start(); console.log(server.url);`;
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  const child = spawn(process.execPath, ["--input-type=module", "-e", source], { cwd });
  t.after(() => child.kill("SIGKILL"));
  const [line] = await soon(once(child.stdout, "data"));
  const client = await Client.connect(t, String(line).trim());
  await client.until("server_ready");
  client.say("block");
  // Meanwhile pings are answered, and another client connects.
  const pong = once(client.socket, "pong");
  client.socket.ping();
  await soon(pong);
  const other = await Client.connect(t, String(line).trim());
  await other.until("server_ready");
  fs.writeFileSync(signal, "");
  await client.until("unblocked");
});

test("worker threads have servers of their own, and may be ended at any time", async () => {
  const { stdout, stderr, code } = await program(`
    import net from "node:net";
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
    // A server ends with its thread.
    for (const port of ports) {
      for (;;) {
        const probe = net.connect(port, "127.0.0.1");
        const isOpen = await new Promise((resolve) => {
          probe.once("connect", () => resolve(true));
          probe.once("error", () => resolve(false));
        });
        probe.destroy();
        if (!isOpen) break;
      }
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

test("a running server that nobody holds goes on", async () => {
  const { stdout, code, stderr } = await program(
    `import { Server } from ${JSON.stringify(INDEX)};
    import WebSocket from "ws";
    const started = async () => {
      const server = new Server({ port: 0, noAuth: true, shards: 1, protocol: "raw" });
      server.on("*", (message) => message.connection.sendRaw(message));
      await server.start();
      return server.url;
    };
    const urls = await Promise.all([started(), started(), started()]);
    for (let turn = 0; turn < 20; turn++) { gc(); await new Promise((r) => setTimeout(r, 5)); }
    for (const url of urls) {
      const socket = new WebSocket(url);
      socket.on("open", () => socket.send("still here"));
      console.log(await new Promise((resolve) => socket.on("message", (data) => resolve(String(data)))));
      socket.terminate();
    }
    process.exit(0);`,
    { nodeOptions: ["--expose-gc"] },
  );
  assert.deepEqual([stdout, stderr, code], ["still here\n".repeat(3), "", 0]);
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
    { nodeOptions: ["--expose-gc"], timeout: 170_000 },
  );
  assert.deepEqual([stderr, code], ["", 0]);
  const { growths, files } = JSON.parse(stdout);
  assert.ok(files <= 2, `${files} open files more`);
  assert.ok(Math.min(...growths) < 20 * 1024 * 300, `${growths} bytes more after 300 servers each`);
});
