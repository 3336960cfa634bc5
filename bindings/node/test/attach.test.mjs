// WebSockets at the port of an HTTP server of Node: its own pages, other listeners, sessions, TLS.

import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Duplex } from "node:stream";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import express from "express";
import fastify from "fastify";
import { createServer as createVite } from "vite";
import WebSocket, { WebSocketServer } from "ws";
import { CallError, Server } from "../index.mjs";
import { attached, Client, eventually, listening, refusal, soon } from "./support.mjs";

/** A certificate of this machine, or its key. */
const fixture = (name) =>
  readFileSync(new URL(`../../../packages/client/test/node/fixtures/${name}`, import.meta.url));

/** Two streams, each of which reads what is written to the other. */
function duplexPair() {
  const ends = [0, 1].map((place) => {
    return new Duplex({
      read() {},
      write(piece, _, done) {
        ends[1 - place].push(piece);
        done();
      },
    });
  });
  return ends;
}

test("a server serves the WebSockets of an HTTP server, which keeps its pages", async (test) => {
  const { server, port } = await attached(test);
  server.on("whoami", ({ connection }) => connection.send(connection.address, { type: "you" }));
  const client = await Client.connect(test, `ws://127.0.0.1:${port}/ws`);
  client.say("whoami");
  const { p } = await client.until("you");
  assert.deepEqual(p, { host: "127.0.0.1", port: client.socket._socket.localPort });
  await client.subscribe("news");
  server.publish("news", { n: 1 }, { type: "item" });
  assert.deepEqual((await client.until("item")).p, { n: 1 });
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "a page");
  // It has no port of its own.
  assert.throws(() => server.url, { code: "NO_PORT" });
  assert.match(String(server.statistics().connections_open ?? server.connections), /1/);
  await server.drain(1_000);
  assert.equal((await client.closed).code, 4300);
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "a page");
});

test("with an address it also has a port of its own", async (test) => {
  const { server, port } = await attached(test, undefined, { port: 0 });
  const first = await Client.connect(test, `ws://127.0.0.1:${port}/ws`);
  const second = await Client.connect(test, server.url);
  for (const client of [first, second]) await client.subscribe("news");
  server.publish("news", {}, { type: "item" });
  for (const client of [first, second]) await client.until("item");
});

test("another listener of the HTTP server has its own paths", async (test) => {
  const { httpServer, port } = await attached(test);
  assert.deepEqual((await refusal(`ws://127.0.0.1:${port}/other`)).status, 404);
  const other = new WebSocketServer({ noServer: true });
  httpServer.on("upgrade", (request, socket, head) => {
    if (request.url !== "/other") return;
    other.handleUpgrade(request, socket, head, (websocket) => websocket.send("from the other"));
  });
  const client = await Client.connect(test, `ws://127.0.0.1:${port}/other`);
  assert.equal(await client.next(), "from the other");
  const ours = await Client.connect(test, `ws://127.0.0.1:${port}/ws`);
  await ours.until("server_ready");
});

test("Fastify's server and Vite's can be attached to", async (test) => {
  const app = fastify();
  app.get("/", async () => "fast");
  await app.ready();
  const { port } = await attached(test, undefined, {}, app.server);
  const client = await Client.connect(test, `ws://127.0.0.1:${port}/ws`);
  await client.until("server_ready");
  assert.equal(await (await fetch(`http://127.0.0.1:${port}/`)).text(), "fast");

  const folder = mkdtempSync(join(tmpdir(), "tidewire-vite-"));
  test.after(() => rmSync(folder, { recursive: true }));
  const vite = await createVite({ root: folder, logLevel: "silent", server: { port: 0, host: "127.0.0.1" } });
  test.after(() => vite.close());
  const server = new Server({ noAuth: true, shards: 1 });
  server.attach(vite.httpServer);
  await server.start();
  test.after(() => server.stop());
  await vite.listen();
  const at = `127.0.0.1:${vite.httpServer.address().port}`;
  const ours = await Client.connect(test, `ws://${at}/ws`);
  await ours.until("server_ready");
  // The WebSocket by which Vite reloads pages.
  const own = new WebSocket(`ws://${at}/?token=${vite.config.webSocketToken}`, "vite-hmr");
  test.after(() => own.terminate());
  const [message] = await soon(once(own, "message"));
  assert.deepEqual(JSON.parse(message), { type: "connected" });
});

test("under TLS everything is relayed, both ways, without loss", async (test) => {
  const cert = fixture("localhost.pem");
  const httpServer = https.createServer({ key: fixture("localhost.key.pem"), cert });
  const options = { messageBytesMax: 8 * 1024 * 1024, protocol: "raw", idleTimeoutMs: 1_000 };
  const authorize = () => ({ user: "ann" });
  const { server, port } = await attached(test, { authorize }, options, httpServer);
  let address;
  server.on("*", (message) => {
    address = message.connection.address;
    message.connection.sendRaw(message);
  });
  const client = await Client.connect(test, `wss://localhost:${port}/ws`, { ca: cert });
  const large = "x".repeat(7 * 1024 * 1024);
  for (let count = 0; count < 4; count++) client.send(large);
  for (let count = 0; count < 4; count++) assert.equal((await client.next()).length, large.length);
  assert.deepEqual(address, { host: "127.0.0.1", port: client.socket._socket.localPort });
  client.socket.close(4001);
  assert.equal((await client.closed).code, 4001);
  await eventually(() => server.connections === 0);
  const other = await Client.connect(test, `wss://localhost:${port}/ws`, { ca: cert });
  server.disconnectUser("ann", 4002, "over");
  assert.deepEqual(await other.closed, { code: 4002, reason: "over" });
  // One that vanishes, and one that the server ends.
  const lost = await Client.connect(test, `wss://localhost:${port}/ws`, { ca: cert });
  lost.socket.terminate();
  await eventually(() => server.connections === 0);
});

test("what a client sends early is not lost", async (test) => {
  const { server, port } = await attached(
    test,
    { authorize: async () => ({ user: "ann" }) },
    { protocol: "raw" },
  );
  const heard = [];
  server.on("*", (message) => heard.push(message.text));
  const head =
    `GET /ws HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
  // Masked with zeros: a text of two bytes.
  const frame = (letters) => Buffer.from([0x81, 0x82, 0, 0, 0, 0, ...Buffer.from(letters)]);
  const socket = net.connect(port, "127.0.0.1");
  test.after(() => socket.destroy());
  socket.write(Buffer.concat([Buffer.from(head), frame("ab"), frame("cd").subarray(0, 3)]));
  socket.write(Buffer.concat([frame("cd").subarray(3), frame("ef")]));
  await eventually(() => heard.length === 3);
  assert.deepEqual(heard, ["ab", "cd", "ef"]);
});

test("refused and ended connections leave nothing behind", async (test) => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc");
  const kept = [];
  const authorize = () => {
    const attachment = {};
    kept.push(new WeakRef(attachment));
    return { user: "ann", attachment };
  };
  const { server, port } = await attached(test, { authorize }, { log: () => {} });
  const url = `ws://127.0.0.1:${port}/ws`;
  const descriptors = () => readdirSync("/dev/fd").length;
  const before = descriptors();
  for (let count = 0; count < 20; count++) {
    // The engine refuses it, though authorize lets it in.
    assert.equal((await refusal(url, { origin: "https://evil.example" })).status, 403);
    const client = await Client.connect(test, url);
    client.socket.close();
    await client.closed;
  }
  await eventually(() => server.connections === 0 && descriptors() <= before + 2);
  const isForgotten = () => {
    collect();
    return kept.slice(0, 30).every((attachment) => attachment.deref() === undefined);
  };
  await eventually(isForgotten);
});

test("two servers at one HTTP server have paths of their own, and what nobody takes is answered", async (test) => {
  const httpServer = http.createServer();
  const servers = ["/chat", "/admin"].map((path) =>
    new Server({ noAuth: true, path, shards: 1 }).attach(httpServer),
  );
  await Promise.all(servers.map((server) => server.start()));
  test.after(() => Promise.all(servers.map((server) => server.stop())));
  const port = await listening(test, httpServer);
  await Client.connect(test, `ws://127.0.0.1:${port}/chat`);
  await Client.connect(test, `ws://127.0.0.1:${port}/admin?x=1`);
  assert.deepEqual(
    servers.map((server) => server.connections),
    [1, 1],
  );
  assert.equal((await refusal(`ws://127.0.0.1:${port}/other`)).status, 404);
  // Also if another listener is there, which does not take it.
  httpServer.on("upgrade", () => {});
  assert.equal((await refusal(`ws://127.0.0.1:${port}/other`)).status, 404);
  // A client that breaks off meanwhile ends nothing.
  const { port: local } = await new Promise((resolve) => {
    const socket = net.connect(port, "127.0.0.1", () => {
      const head = "Host: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
      socket.write(`GET /other HTTP/1.1\r\n${head}`, () => {
        setTimeout(() => socket.resetAndDestroy(), 50);
        resolve(socket.address());
      });
    });
    socket.on("error", () => {});
  });
  assert.ok(local > 0);
  await Client.connect(test, `ws://127.0.0.1:${port}/chat`);
});

test("whatever authorize throws refuses one client, and no more", async (test) => {
  const logged = [];
  let error;
  const authorize = () => {
    throw error;
  };
  const { port } = await attached(test, { authorize }, { log: (...line) => logged.push(line) });
  for (const code of [5, 5n, Symbol("a"), undefined, "x".repeat(500)]) {
    error = new CallError("no", { code });
    error.code = code;
    assert.equal((await refusal(`ws://127.0.0.1:${port}/ws`)).status, 403);
  }
  error = new CallError("no");
  error.message = 5n;
  assert.equal((await refusal(`ws://127.0.0.1:${port}/ws`)).status, 403);
  assert.deepEqual(logged, []);
});

test("of many failures of authorize the first are logged one by one, and then their number", async (test) => {
  const logged = [];
  const authorize = () => {
    throw new Error("no database");
  };
  const { server, port } = await attached(test, { authorize }, { log: (_level, line) => logged.push(line) });
  const all = Array.from({ length: 30 }, () => refusal(`ws://127.0.0.1:${port}/ws`));
  for (const { status } of await Promise.all(all)) assert.equal(status, 503);
  await server.stop();
  assert.ok(logged.length < 30, `${logged.length} lines`);
  assert.match(logged.at(-1), /^\d+ more clients cannot connect$/);
});

test("an HTTP server that does not say where it listens ends nothing", async (test) => {
  const { httpServer, port } = await attached(test, undefined, { log: () => {} });
  const { address } = httpServer;
  httpServer.address = () => {
    throw new Error("no");
  };
  assert.equal((await refusal(`ws://127.0.0.1:${port}/ws`)).status, 503);
  httpServer.address = () => null;
  await Client.connect(test, `ws://127.0.0.1:${port}/ws`);
  httpServer.address = address;
});

test("an answer that is still being written is not cut off", async (test) => {
  const page = "p".repeat(20 * 1024 * 1024);
  const { port } = await attached(
    test,
    undefined,
    {},
    http.createServer((_, answer) => answer.end(page)),
  );
  const socket = net.connect(port, "127.0.0.1");
  test.after(() => socket.destroy());
  const upgrade =
    `GET /ws HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
  socket.write(`GET /big HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\n\r\n${upgrade}`);
  let heard = "";
  socket.setEncoding("latin1").on("data", (piece) => {
    heard += piece;
  });
  await eventually(() => heard.includes("101 Switching Protocols"));
  const body = heard.slice(heard.indexOf("\r\n\r\n") + 4);
  assert.equal(body.indexOf("HTTP/1.1 101"), page.length);
});

test("many early bytes, and sockets that are none of TCP, are relayed", async (test) => {
  const web = http.createServer({ maxHeaderSize: 100_000 });
  const { server, httpServer, port } = await attached(test, undefined, { protocol: "raw" }, web);
  let bytes = 0;
  server.on("*", (message) => {
    bytes += message.length;
  });
  const head =
    `GET /ws HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
  const frame = Buffer.alloc(8 + 50_000);
  frame.set([0x82, 0xfe, 50_000 >> 8, 50_000 & 0xff]);
  const socket = net.connect(port, "127.0.0.1");
  test.after(() => socket.destroy());
  socket.write(Buffer.concat([Buffer.from(head), frame]));
  await eventually(() => bytes === 50_000);
  // A head that is longer than the engine accepts is refused by it.
  assert.equal((await refusal(`ws://127.0.0.1:${port}/ws?${"x".repeat(40_000)}`)).status, 414);
  const headers = { "x-long": "x".repeat(40_000) };
  assert.equal((await refusal(`ws://127.0.0.1:${port}/ws`, { headers })).status, 431);
  // As those of other libraries, whose connections are no sockets.
  const [ours, theirs] = duplexPair();
  httpServer.emit("connection", ours);
  theirs.write(Buffer.concat([Buffer.from(head), frame]));
  await eventually(() => bytes === 100_000);
  assert.equal(server.connections, 2);
  theirs.destroy();
  ours.destroy();
  await eventually(() => server.connections === 1);
});

test("under TLS a client that reads nothing is ended, as at the own port", async (test) => {
  const cert = fixture("localhost.pem");
  const httpServer = https.createServer({ key: fixture("localhost.key.pem"), cert });
  const options = { protocol: "raw", idleTimeoutMs: 500, pingIntervalMs: 100 };
  const { server, port } = await attached(test, undefined, options, httpServer);
  let sockets = 0;
  httpServer.on("secureConnection", (socket) => {
    sockets += 1;
    socket.on("close", () => {
      sockets -= 1;
    });
  });
  server.on("flood", ({ connection }) => connection.sendRaw("x"));
  server.on("*", ({ connection }) => {
    // More than the sockets hold, and less than the engine does.
    for (let count = 0; count < 14; count++) connection.sendRaw("x".repeat(1024 * 1024));
  });
  for (const isStopped of [false, true]) {
    const client = await Client.connect(test, `wss://localhost:${port}/ws`, { ca: cert });
    client.socket.pause();
    client.send("flood");
    await eventually(() => server.connections === 1);
    if (isStopped) await server.stop();
    else await eventually(() => server.connections === 0);
    await eventually(() => sockets === 0);
  }
});

test("what is no HTTP server is refused, and so is the same one twice", async () => {
  const server = new Server({ noAuth: true });
  for (const wrong of [undefined, {}, express(), 80]) {
    assert.throws(() => server.attach(wrong), {
      name: "WrongTypeError",
      message: /attach takes an HTTP server/,
    });
  }
  const httpServer = http.createServer();
  server.attach(httpServer);
  assert.throws(() => server.attach(httpServer), { message: /attached already/ });
  const other = http.createServer();
  assert.throws(() => server.attach(other, { authorise: () => true }), { message: /did you mean authorize/ });
  assert.throws(() => server.attach(other, { use: [() => {}] }), { message: /authorize, which is missing/ });
  await server.stop();
});

test("before the start and after the stop clients are told to come back", async (test) => {
  const httpServer = http.createServer();
  const server = new Server({ noAuth: true });
  server.attach(httpServer);
  const port = await listening(test, httpServer);
  const { status, retryAfter } = await refusal(`ws://127.0.0.1:${port}/ws`);
  assert.deepEqual([status, retryAfter], [503, "1"]);
  await server.start();
  assert.throws(() => server.attach(http.createServer()), { code: "STOPPED", message: /before start/ });
  await Client.connect(test, `ws://127.0.0.1:${port}/ws`);
  await server.stop();
  assert.equal(httpServer.listenerCount("upgrade"), 0);
});
