// Compares servers of Node: `node compare.mjs [ROUNDS] [SECONDS] [TASKS]`. Each server runs on core 0 with all its threads,
// and the load generator on core 1; the servers take turns, and the medians of the rounds are shown, with the medians of the
// ratios to `ws` in the same round. TIDEWIRE_PROGRAM is the program `tidewire`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createRequire } from "node:module";
import os from "node:os";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const rounds = Number(process.argv[2] ?? 3);
const seconds = Number(process.argv[3] ?? 2);
const program =
  process.env.TIDEWIRE_PROGRAM ?? fileURLToPath(new URL("../../../target/release/tidewire", import.meta.url));

/** A peer whose binary this system cannot load is left out, and that is said. */
const PEERS = ["batches", "handlers", "uws", "ws", "socket.io"].filter(
  (peer) => peer !== "uws" || canLoad("@btc-vision/uwebsockets.js"),
);
const REFERENCE = "ws";
const WARM_UP_MS = 700;

const FIELDS = { id: 123456, symbol: "ACME", price: 101.25, side: "buy" };
const NOTE_BYTES = 175 - JSON.stringify({ ...FIELDS, note: "" }).length;
/** A message of 175 bytes. */
const message = JSON.stringify({ ...FIELDS, note: "x".repeat(NOTE_BYTES) });

/** Messages without answers, as fast as the server reads them; of 175 bytes, too. */
const flood = (port) => [
  "bench",
  `ws://127.0.0.1:${port}/ws`,
  ...["--profile", "raw", "--test", "throughput", "--connections", "100"],
  ...["--duration-s", "600", "--out", os.tmpdir()],
];

/** Messages that wait for an answer. */
const answered = (connections, inFlight, reply) => (port, peer) => {
  const isSocketIo = peer === "socket.io";
  const path = isSocketIo ? "socket.io/?EIO=4&transport=websocket" : "ws";
  // Socket.IO's own handshake, and its message of the event `m`.
  const first = isSocketIo ? ["--subscribe", "40"] : [];
  return [
    "load",
    `ws://127.0.0.1:${port}/${path}`,
    ...["--connections", connections, "--in-flight", inFlight, "--reply", reply, ...first],
    ...["--message", isSocketIo ? `42["m",${message}]` : message, "--duration-s", "600", "--quiet"],
  ];
};

const TASKS = {
  length: flood,
  json: flood,
  "json-ping": answered(100, 64, "pong"),
  "echo-64": answered(100, 64, "order"),
  "echo-1": answered(100, 1, "order"),
  "echo-alone": answered(1, 1, "order"),
};
/** A flood is not of its protocol. */
const isLeftOut = (peer, task) => peer === "socket.io" && TASKS[task] === flood;

/** Messages a second, and the microseconds of processor time for each. */
async function measure(peer, task) {
  const file = fileURLToPath(new URL("server.mjs", import.meta.url));
  const server = spawn("taskset", ["-c", "0", process.execPath, file, peer, task]);
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  server.stderr.pipe(process.stderr);
  const port = (await lines.next()).value;
  const look = async () => {
    server.stdin.write("\n");
    return JSON.parse((await lines.next()).value);
  };
  const words = [...TASKS[task](port, peer), "--threads", "1"].map(String);
  const load = spawn("taskset", ["-c", "1", program, ...words], { stdio: "ignore" });
  try {
    await pause(WARM_UP_MS);
    const before = await look();
    await pause(seconds * 1000);
    const after = await look();
    const count = after.received - before.received;
    const cpuUs = after.cpuUs - before.cpuUs;
    const ms = after.ms - before.ms;
    return { perS: (count / ms) * 1000, cpuUs: cpuUs / count, busy: cpuUs / ms / 1000 };
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
    const [line] = error.message
      .split("\n")
      .filter((one) => one.includes("GLIBC") || one.startsWith("Error:"));
    console.log(`${name} cannot be loaded here: ${line ?? error.message}`);
    return false;
  }
}

const median = (values) => [...values].sort((one, other) => one - other)[values.length >> 1];

const only = process.argv[4]?.split(",") ?? Object.keys(TASKS);
console.log(
  `${message.length} bytes, medians of ${rounds} rounds of ${seconds} s, Node ${process.version}\n`,
);
console.log("| task | server | messages/s | to `ws` | CPU per message | to `ws` | core busy |");
console.log("|---|---|---|---|---|---|---|");
for (const task of only) {
  const peers = PEERS.filter((peer) => !isLeftOut(peer, task));
  const found = Object.fromEntries(peers.map((peer) => [peer, []]));
  for (let round = 0; round < rounds; round++) {
    for (const peer of peers) found[peer].push(await measure(peer, task));
  }
  for (const peer of peers) {
    const figure = (name) => median(found[peer].map((one) => one[name]));
    const ratio = (name) =>
      median(found[peer].map((one, round) => one[name] / found[REFERENCE][round][name])).toFixed(2);
    console.log(
      `| ${task} | ${peer} | ${Math.round(figure("perS")).toLocaleString("en")} | ${ratio("perS")} ` +
        `| ${figure("cpuUs").toFixed(2)} us | ${ratio("cpuUs")} | ${Math.round(100 * figure("busy"))}% |`,
    );
  }
}
process.exit(0);
