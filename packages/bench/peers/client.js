// Compares @tidewire/client in Node with a program on the package ws. Every round measures each contender once, one after
// another. Prints the runs as JSON; bench/compare.py makes tables of them.
//
//   npm run build && node packages/bench/peers/client.js --tidewire target/release/tidewire [--rounds 5] [--seconds 1]
//
// send: 175 B of JSON over 100 connections to `serve --app sink`; counted when the server has answered a ping sent after it.
// receive: publications of 95 and 226 B that a thread writes as fast as they are taken.
// connect: with a token, one after another, until `server_ready` has come.
// subscriptions: heap for each of 10,000 topics of one client, after garbage collection (node --expose-gc).

import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { parseArgs } from "node:util";
import { Worker } from "node:worker_threads";
import WebSocket from "ws";
import { connect, open, prepare } from "../../client/dist/esm/index.js";

const text = { type: "string" };
const { values } = parseArgs({ options: { tidewire: text, rounds: text, seconds: text, connections: text } });
const program = values.tidewire ?? "target/release/tidewire";
const rounds = Number(values.rounds ?? 5);
const seconds = Number(values.seconds ?? 1);
const connectionCount = Number(values.connections ?? 100);
/** The limit of unsent bytes of a connection. */
const AHEAD_BYTES = 256 * 1024;
const SECRET = "a secret of at least 32 bytes, for measurements";

const median = (list) => [...list].sort((a, b) => a - b)[list.length >> 1];
const tick = () => new Promise(setImmediate);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Starts the engine; its address, and a function that ends it. */
async function serve(...options) {
  const child = spawn(program, ["serve", "--listen", "127.0.0.1:0", "--log-level", "error", ...options]);
  const address = await new Promise((resolve, reject) => {
    let output = "";
    const look = (bytes) => {
      output += bytes;
      const found = /127\.0\.0\.1:[1-9][0-9]*/.exec(output);
      if (found) resolve(found[0]);
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.once("close", () => reject(new Error(output)));
  });
  return { url: `ws://${address}/ws`, stop: () => child.kill("SIGKILL") };
}

const fields = (id) => ({
  id,
  symbol: "BTCUSD",
  side: "buy",
  price: 64_123.25,
  amount: 0.125,
  note: "x".repeat(70),
});
const message = (id) => JSON.stringify({ t: "trade", p: fields(id) });

const hello = '{"t":"client_hello","p":{}}';
const openWs = (url, options = {}) =>
  new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { perMessageDeflate: false, ...options });
    socket.once("message", () => {
      socket.send(hello);
      resolve(socket);
    });
    socket.once("error", reject);
  });
const wsSender = {
  open: openWs,
  waiting: (socket) => socket.bufferedAmount,
  confirm: (socket) =>
    new Promise((resolve) => {
      socket.once("pong", resolve);
      socket.ping();
    }),
  close: (socket) => socket.terminate(),
};
const ownSender = {
  open: (url) => open(url, { rateLimit: false, reconnect: false }).then((client) => client.ready()),
  // The answer comes behind all that was sent.
  confirm: (client) => client.ping({ timeoutMs: 60_000 }),
  close: (client) => client.close(),
};
const SENDERS = {
  "ws, made and stringified": { ...wsSender, send: (socket, id) => socket.send(message(id)) },
  "client, made and stringified": { ...ownSender, send: (client, id) => client.send("trade", fields(id)) },
  "client, prepared": {
    ...ownSender,
    prepare: (client) => prepare(client, "trade", fields(1)),
    send: (client, _, prepared) => client.send(prepared),
  },
};

async function send(contender, url) {
  const list = await Promise.all(Array.from({ length: connectionCount }, () => contender.open(url)));
  const prepared = list.map((one) => contender.prepare?.(one));
  const [began, cpu] = [performance.now(), process.cpuUsage()];
  let sent = 0;
  while (performance.now() - began < seconds * 1_000) {
    for (let at = 0; at < list.length; at++) {
      if (contender.waiting && contender.waiting(list[at]) > AHEAD_BYTES) continue;
      for (let index = 0; index < 32; index++) {
        sent++;
        // `false` says that the connection has no room.
        if (contender.send(list[at], sent, prepared[at]) === false) break;
      }
    }
    await tick();
  }
  await Promise.all(list.map((one) => contender.confirm(one)));
  const result = rate(sent, began, cpu);
  await Promise.all(list.map((one) => contender.close(one)));
  return result;
}

function rate(count, began, before) {
  const cpu = process.cpuUsage(before);
  return { perS: (count / (performance.now() - began)) * 1_000, cpuUs: (cpu.user + cpu.system) / count };
}

const RECEIVERS = {
  "ws, JSON.parse of each": async (url, count) => {
    const socket = new WebSocket(url, { perMessageDeflate: false });
    socket.on("message", (data) => {
      const { tp, p } = JSON.parse(data);
      if (tp !== undefined) count(p.n);
      else socket.send('{"t":"subscription_update","cid":"1","p":{"action":"subscribe","topics":["a"]}}');
    });
    return () => socket.terminate();
  },
  "client, each payload decoded": async (url, count) => {
    const client = connect(url, { reconnect: false });
    client.subscribe("a").on("message", ({ payload }) => count(payload.n));
    return () => client.close();
  },
  "client, payloads left undecoded": async (url, count) => {
    const client = connect(url, { reconnect: false });
    client.subscribe("a").on("message", () => count(1));
    return () => client.close();
  },
};

async function receive(contender, url) {
  let [count, sum] = [0, 0];
  const close = await contender(url, (n) => {
    count++;
    sum += n;
  });
  // The code is hot and the flood has begun.
  await sleep(300);
  const [began, cpu, before] = [performance.now(), process.cpuUsage(), count];
  await sleep(seconds * 1_000);
  const result = rate(count - before, began, cpu);
  await close();
  if (sum < count) throw new Error("payloads were not read");
  await sleep(50);
  return result;
}

function token() {
  const encode = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const head = `${encode({ alg: "HS256" })}.${encode({ sub: "ada", exp: Math.floor(Date.now() / 1_000) + 3_600 })}`;
  return `${head}.${createHmac("sha256", SECRET).update(head).digest("base64url")}`;
}

const CONNECTORS = {
  ws: async (url, jwt) => {
    const socket = await openWs(url, { headers: { Authorization: `Bearer ${jwt}` } });
    return () => socket.terminate();
  },
  client: async (url, jwt) => {
    const client = await open(url, { token: jwt, reconnect: false });
    return () => void client.close();
  },
};

/** The median of 200 connections, in microseconds. */
async function connectTime(contender, url) {
  const jwt = token();
  const times = [];
  for (let index = 0; index < 200; index++) {
    const began = performance.now();
    const close = await contender(url, jwt);
    times.push((performance.now() - began) * 1_000);
    close();
    await sleep(1);
  }
  return { us: median(times) };
}

/** The runs of each contender. */
async function compare(contenders, measure) {
  const runs = Object.fromEntries(Object.keys(contenders).map((name) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [name, contender] of Object.entries(contenders)) runs[name].push(await measure(contender));
  }
  return runs;
}

/** The heap that a subscription takes, and what of it is left when it has ended. */
async function heap(url) {
  const client = await open(url);
  const collect = async () => {
    for (let index = 0; index < 3; index++) {
      globalThis.gc?.();
      await sleep(20);
    }
    return process.memoryUsage().heapUsed;
  };
  const before = await collect();
  const list = Array.from({ length: 10_000 }, (_, index) => client.subscribe(`kept.topic-${index}`));
  await Promise.all(list.map((one) => one.ready()));
  const subscribed = await collect();
  await Promise.all(list.map((one) => one.unsubscribe()));
  list.length = 0;
  await client.ping();
  const after = await collect();
  await client.close();
  return { heldBytes: (subscribed - before) / 10_000, leftBytes: (after - before) / 10_000 };
}

const sink = await serve(
  "--no-auth",
  "--app",
  "sink",
  "--rate-limit-capacity",
  "1000000000",
  "--rate-limit-refill-per-s",
  "1000000000",
);
const found = { send: await compare(SENDERS, (contender) => send(contender, sink.url)) };
sink.stop();
for (const bytes of [95, 226]) {
  const worker = new Worker(new URL("flood.js", import.meta.url), { workerData: bytes });
  const port = await new Promise((resolve) => worker.once("message", resolve));
  const url = `ws://127.0.0.1:${port}/ws`;
  found[`receive-${bytes}`] = await compare(RECEIVERS, (contender) => receive(contender, url));
  await worker.terminate();
}
const auth = await serve("--jwt-secret", SECRET);
found.connect = await compare(CONNECTORS, (contender) => connectTime(contender, auth.url));
auth.stop();
const kept = await serve("--no-auth", "--topics-open", "--history", "kept.>=10");
found.subscriptions = await heap(kept.url);
kept.stop();
console.log(JSON.stringify(found));
process.exit(0);
