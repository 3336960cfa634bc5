// Compares the Node transport of @tidewire/client with the package ws: how many messages a process sends and receives.
// Every round measures each contender once, one after another; printed are medians over the rounds.
//
//   node packages/bench/peers/transport.js --tidewire target/release/tidewire [--rounds 5] [--connections 100]
//     [--seconds 0.5] [--only send|receive|connect]
//
// The sender's messages count once the server has answered a ping that was sent after them.

import { spawn } from "node:child_process";
import { createHmac, randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";
import { build } from "esbuild";
import WebSocket from "ws";

const here = fileURLToPath(new URL(".", import.meta.url));
const text = { type: "string" };
const { values } = parseArgs({
  options: { tidewire: text, rounds: text, connections: text, seconds: text, only: text },
});
const rounds = Number(values.rounds ?? 5);
const connectionCount = Number(values.connections ?? 100);
const milliseconds = Number(values.seconds ?? 0.5) * 1000;

/** The limit of waiting bytes of one connection, before its sender waits for room. */
const AHEAD_BYTES = 256 * 1024;
const BATCH = 100;
const RECEIVED_BYTES = 226;
const CONNECTS = 100;

let number = 0;

/** A message of 175 bytes, new each time. */
function trade() {
  number += 1;
  return {
    t: "trade",
    p: {
      id: 100_000_000_000 + number,
      symbol: "BTC-USD",
      side: number & 1 ? "buy" : "sell",
      price: 65_000.25 + (number % 100),
      quantity: 1.5,
      venue: "XNAS",
      maker: "acct-0042",
      taker: "acct-0099",
      sequence: 1_000_000 + (number % 9000),
    },
  };
}

const wsContender = (send) => ({
  open: (url) =>
    new Promise((resolve, reject) => {
      const socket = new WebSocket(url, { perMessageDeflate: false });
      socket.once("open", () => resolve(socket));
      socket.once("error", reject);
    }),
  buffered: (socket) => socket.bufferedAmount,
  send,
  confirm: (socket) =>
    new Promise((resolve) => {
      socket.once("pong", resolve);
      socket.ping();
    }),
  close: (socket) => socket.terminate(),
});

function ownContender(transport, send) {
  return {
    open: (url) =>
      new Promise((resolve, reject) => {
        const connection = { socket: undefined, onPong: undefined };
        connection.socket = transport.open(
          { url, protocols: [], headers: {}, messageBytesMax: 1 << 20 },
          {
            onOpen: () => resolve(connection),
            onMessages() {},
            onDrain() {},
            onPong: () => connection.onPong?.(),
            onClose: (info) => reject(new Error(info.reason)),
          },
        );
      }),
    buffered: (connection) => connection.socket.bufferedBytes,
    send,
    confirm: (connection) =>
      new Promise((resolve) => {
        connection.onPong = resolve;
        connection.socket.ping(new Uint8Array(1));
      }),
    close: (connection) => connection.socket.terminate(),
  };
}

/** Sends as fast as the connections take it; returns confirmed messages a second. */
async function sendRate(contender, url) {
  const connections = await Promise.all(Array.from({ length: connectionCount }, () => contender.open(url)));
  const began = performance.now();
  const cpuBegan = process.cpuUsage();
  let sent = 0;
  while (performance.now() - began < milliseconds) {
    for (const connection of connections) {
      if (contender.buffered(connection) > AHEAD_BYTES) continue;
      for (let index = 0; index < BATCH; index += 1) contender.send(connection);
      sent += BATCH;
    }
    await new Promise(setImmediate);
  }
  await Promise.all(connections.map((connection) => contender.confirm(connection)));
  const elapsed = performance.now() - began;
  const cpu = process.cpuUsage(cpuBegan);
  for (const connection of connections) contender.close(connection);
  await new Promise((resolve) => setTimeout(resolve, 20));
  return { rate: (sent / elapsed) * 1000, cpu: (cpu.user + cpu.system) / sent };
}

/** Reads what a thread of plain sockets writes; returns messages a second. */
async function receiveRate(open, url, isParsed) {
  let received = 0;
  let seen = 0;
  const onText = (frame) => {
    received += 1;
    if (isParsed) seen += JSON.parse(frame).p.id;
  };
  const close = await open(url, onText);
  const began = performance.now();
  const cpuBegan = process.cpuUsage();
  const before = received;
  await new Promise((resolve) => setTimeout(resolve, milliseconds));
  const elapsed = performance.now() - began;
  const count = received - before;
  const cpu = process.cpuUsage(cpuBegan);
  close();
  await new Promise((resolve) => setTimeout(resolve, 20));
  if (isParsed && seen === 0) throw new Error("nothing was parsed");
  return { rate: (count / elapsed) * 1000, cpu: (cpu.user + cpu.system) / count };
}

const openWs = (url, onText) =>
  new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { perMessageDeflate: false });
    socket.on("message", (data) => onText(data));
    socket.once("open", () => resolve(() => socket.terminate()));
    socket.once("error", reject);
  });

const openOwn = (transport) => (url, onText) =>
  new Promise((resolve, reject) => {
    const socket = transport.open(
      { url, protocols: [], headers: {}, messageBytesMax: 1 << 20 },
      {
        onOpen: () => resolve(() => socket.terminate()),
        onMessages(frames) {
          for (const frame of frames) onText(frame);
        },
        onDrain() {},
        onClose: (info) => reject(new Error(info.reason)),
      },
    );
  });

/** Connects with a token, one after another, until `server_ready` has come; returns the median in microseconds. */
async function connectLatency(connect, url, token) {
  const headers = { Authorization: `Bearer ${token}` };
  const latencies = [];
  for (let round = 0; round < CONNECTS; round += 1) {
    const began = performance.now();
    const [first, close] = await connect(url, headers);
    if (JSON.parse(first).t !== "server_ready") throw new Error(`not server_ready: ${first}`);
    latencies.push((performance.now() - began) * 1000);
    await close();
  }
  return { rate: median(latencies), cpu: 0 };
}

const connectWs = (url, headers) =>
  new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { headers, perMessageDeflate: false });
    const close = () =>
      new Promise((done) => {
        socket.once("close", done);
        socket.close(1000);
      });
    socket.once("message", (data) => resolve([data, close]));
    socket.once("error", reject);
  });

const connectOwn = (transport) => (url, headers) =>
  new Promise((resolve, reject) => {
    let done = reject;
    const socket = transport.open(
      { url, protocols: [], headers, messageBytesMax: 1 << 20 },
      {
        onOpen() {},
        onMessages: (frames) => resolve([frames[0], close]),
        onDrain() {},
        onClose: (info) => done(new Error(info.reason)),
      },
    );
    const close = () =>
      new Promise((resolved) => {
        done = resolved;
        socket.close(1000, "");
      });
  });

function tokenOf(secret) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const body = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub: "bench", exp: Math.floor(Date.now() / 1000) + 3600 })}`;
  return `${body}.${createHmac("sha256", secret).update(body).digest("base64url")}`;
}

function median(numbers) {
  const sorted = [...numbers].sort((one, other) => one - other);
  return sorted[sorted.length >> 1];
}

async function compare(title, contenders, show = showRate) {
  const found = new Map(contenders.map(([name]) => [name, []]));
  for (let round = 0; round <= rounds; round += 1) {
    for (const [name, measure] of contenders) {
      const result = await measure();
      // The first round warms up.
      if (round > 0) found.get(name).push(result);
    }
  }
  const first = median(found.get(contenders[0][0]).map((result) => result.rate));
  console.log(`\n${title}`);
  for (const [name, results] of found) {
    const rate = median(results.map((result) => result.rate));
    const cpu = median(results.map((result) => result.cpu));
    console.log(`  ${name.padEnd(44)} ${show(rate, cpu)}  ${(rate / first).toFixed(2)}x`);
  }
}

function showRate(rate, cpu) {
  return `${Math.round(rate).toLocaleString("en").padStart(10)}/s  ${cpu.toFixed(2).padStart(6)} µs CPU`;
}

function showLatency(us) {
  return `${us.toFixed(0).padStart(8)} µs`;
}

async function startServer(program, ...options) {
  const child = spawn(
    program,
    ["serve", "--app", "sink", "--listen", "127.0.0.1:0", "--shards", "1", ...options],
    { stdio: ["ignore", "pipe", "pipe"] },
  );
  let output = "";
  const url = await new Promise((resolve, reject) => {
    const look = (bytes) => {
      output += bytes;
      const match = /127\.0\.0\.1:([0-9]+)/.exec(output);
      if (match) resolve(`ws://127.0.0.1:${match[1]}/ws`);
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.once("exit", () => reject(new Error(`the server ended: ${output}`)));
    child.once("error", reject);
  });
  return { url, stop: () => child.kill("SIGTERM") };
}

/** A thread that accepts WebSocket connections and writes frames of a fixed text to each as fast as it takes them. */
function startSource() {
  const worker = new Worker(new URL("./source.js", import.meta.url), { workerData: RECEIVED_BYTES });
  return new Promise((resolve, reject) => {
    worker.once("message", (port) =>
      resolve({ url: `ws://127.0.0.1:${port}/`, stop: () => worker.terminate() }),
    );
    worker.once("error", reject);
  });
}

async function main() {
  const folder = mkdtempSync(join(tmpdir(), "tidewire-transport-"));
  const outfile = join(folder, "node.mjs");
  await build({
    entryPoints: [join(here, "../../client/src/node.ts")],
    bundle: true,
    platform: "node",
    format: "esm",
    outfile,
    logLevel: "error",
  });
  const { nodeTransport, PreparedFrame } = await import(outfile);
  rmSync(folder, { recursive: true });
  const transport = nodeTransport();
  const once = JSON.stringify(trade());
  const bytes = Buffer.from(once);
  const prepared = new PreparedFrame(once);
  console.log(`${bytes.length} bytes a message, ${connectionCount} connections, ${rounds} rounds`);
  const program = values.tidewire ?? "target/release/tidewire";
  const isWanted = (part) => values.only === undefined || values.only === part;
  if (isWanted("send")) {
    const server = await startServer(program, "--protocol", "raw", "--no-auth");
    const ws = (send) => () => sendRate(wsContender(send), server.url);
    const own = (send) => () => sendRate(ownContender(transport, send), server.url);
    await compare("sending", [
      ["ws, made and stringified each", ws((socket) => socket.send(JSON.stringify(trade())))],
      ["ws, one Buffer again and again", ws((socket) => socket.send(bytes, { binary: false }))],
      ["own, made and stringified each", own((one) => one.socket.send(JSON.stringify(trade())))],
      ["own, one string again and again", own((one) => one.socket.send(once))],
      ["own, prepared once", own((one) => one.socket.send(prepared))],
    ]);
    server.stop();
  }
  if (isWanted("connect")) {
    const secret = randomBytes(32).toString("hex");
    const server = await startServer(program, "--jwt-secret", secret);
    const contenders = [
      ["ws", () => connectLatency(connectWs, server.url, tokenOf(secret))],
      ["own", () => connectLatency(connectOwn(transport), server.url, tokenOf(secret))],
    ];
    await compare("connecting with a token until server_ready, median latency", contenders, showLatency);
    server.stop();
  }
  if (isWanted("receive")) {
    const source = await startSource();
    await compare("receiving, one connection", [
      ["ws, JSON.parse of each", () => receiveRate(openWs, source.url, true)],
      ["ws, not looked at", () => receiveRate(openWs, source.url, false)],
      ["own, JSON.parse of each", () => receiveRate(openOwn(transport), source.url, true)],
      ["own, not looked at (a string each)", () => receiveRate(openOwn(transport), source.url, false)],
    ]);
    source.stop();
  }
}

await main();
process.exit(0);
