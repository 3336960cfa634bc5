// Compares servers of Node: `node compare.mjs [ROUNDS] [SECONDS]`. Each server runs on core 0 and the load generator on core
// 1; the servers take turns, and the medians of the rounds are shown. TIDEWIRE_PROGRAM is the program `tidewire`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const rounds = Number(process.argv[2] ?? 3);
const seconds = Number(process.argv[3] ?? 2);
const program =
  process.env.TIDEWIRE_PROGRAM ?? fileURLToPath(new URL("../../../target/release/tidewire", import.meta.url));

/** A peer whose binary this system cannot load is left out, and that is said. */
const PEERS = ["batches", "handlers", "uws", "ws"].filter(
  (peer) => peer !== "uws" || canLoad("@btc-vision/uwebsockets.js"),
);
const WARM_UP_MS = 700;

const FIELDS = { id: 123456, symbol: "ACME", price: 101.25, side: "buy" };
const NOTE_BYTES = 175 - JSON.stringify({ ...FIELDS, note: "" }).length;
/** A message of 175 bytes. */
const message = JSON.stringify({ ...FIELDS, note: "x".repeat(NOTE_BYTES) });

const TASKS = {
  length: { connections: 100, inFlight: 64, reply: "pong" },
  json: { connections: 100, inFlight: 64, reply: "pong" },
  "echo-64": { connections: 100, inFlight: 64, reply: "order" },
  "echo-1": { connections: 100, inFlight: 1, reply: "order" },
  "echo-alone": { connections: 1, inFlight: 1, reply: "order" },
};

/** Messages a second, and the microseconds of processor time for each. */
async function measure(peer, task) {
  const { connections, inFlight, reply } = TASKS[task];
  const server = spawn("taskset", [
    "-c",
    "0",
    process.execPath,
    fileURLToPath(new URL("server.mjs", import.meta.url)),
    peer,
    task,
  ]);
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  server.stderr.pipe(process.stderr);
  const port = (await lines.next()).value;
  const look = async () => {
    server.stdin.write("\n");
    return { ...JSON.parse((await lines.next()).value), ms: performance.now() };
  };
  const words = [
    "load",
    `ws://127.0.0.1:${port}/ws`,
    "--connections",
    connections,
    "--in-flight",
    inFlight,
    "--reply",
    reply,
  ];
  const load = spawn("taskset", [
    "-c",
    "1",
    program,
    ...words,
    "--message",
    message,
    "--threads",
    "1",
    "--duration-s",
    "600",
    "--quiet",
  ]);
  load.stderr.resume();
  load.stdout.resume();
  try {
    await pause(WARM_UP_MS);
    const before = await look();
    await pause(seconds * 1000);
    const after = await look();
    const count = after.received - before.received;
    return { perS: (count / (after.ms - before.ms)) * 1000, cpuUs: (after.cpuUs - before.cpuUs) / count };
  } finally {
    load.kill("SIGKILL");
    server.kill("SIGKILL");
    await Promise.all([once(load, "exit"), once(server, "exit")]);
  }
}

function canLoad(name) {
  try {
    createRequire(import.meta.url)(name);
    return true;
  } catch (error) {
    console.log(
      `${name} cannot be loaded here: ${error.message.split("\n").find((line) => line.startsWith("Error:")) ?? error.message}`,
    );
    return false;
  }
}

const median = (values) => values.sort((one, other) => one - other)[values.length >> 1];

const only = process.argv[4]?.split(",") ?? Object.keys(TASKS);
console.log(`${message.length} bytes, medians of ${rounds} rounds of ${seconds} s, Node ${process.version}`);
for (const task of only) {
  const found = Object.fromEntries(PEERS.map((peer) => [peer, []]));
  for (let round = 0; round < rounds; round++) {
    for (const peer of PEERS) found[peer].push(await measure(peer, task));
  }
  for (const peer of PEERS) {
    const perS = median(found[peer].map((one) => one.perS));
    const cpuUs = median(found[peer].map((one) => one.cpuUs));
    console.log(
      `${task.padEnd(12)}${peer.padEnd(10)}${Math.round(perS).toLocaleString("en").padStart(12)}/s${cpuUs.toFixed(2).padStart(8)} us`,
    );
  }
}
process.exit(0);
