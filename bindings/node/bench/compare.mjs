// Compares servers of Node: `node compare.mjs [ROUNDS] [SECONDS] [TASKS]`. Each server runs on core 0 with all its threads,
// and the load generator on core 1; the servers take turns, and the medians of the rounds are shown, with the medians of the
// ratios to `ws` and uWebSockets.js in the same round. TIDEWIRE_PROGRAM is the program `tidewire`.

import os from "node:os";
import { measure, message } from "./measure.mjs";
import { chooseNode, median } from "./node.mjs";

const rounds = Number(process.argv[2] ?? 3);
const seconds = Number(process.argv[3] ?? 2);

const { command, hasUws, note } = chooseNode();
const PEERS = ["batches", "handlers", ...(hasUws ? ["uws"] : []), "ws", "socket.io"];
const REFERENCES = ["ws", ...(hasUws ? ["uws"] : [])];

/** What is wanted: the server, the task, the reference, and the least ratio of the rates. */
const WANTED = [
  ["batches", "length", "uws", 1.2],
  ["batches", "length", "ws", 5],
  ["batches", "json", "uws", 1.05],
  ["batches", "echo-64", "uws", 1.2],
  ["batches", "echo-1", "uws", 0.95],
  ["handlers", "echo-64", "ws", 4],
];

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

const only = process.argv[4]?.split(",") ?? Object.keys(TASKS);
if (note !== undefined) console.log(`${note}\n`);
console.log(
  `${message.length} bytes, medians of ${rounds} rounds of ${seconds} s, Node ${process.version}.\n`,
);
const names = { ws: "`ws`", uws: "uWebSockets.js" };
const to = REFERENCES.map((name) => `to ${names[name]}`).join(" | ");
console.log(`| task | server | messages/s | ${to} | CPU per message | ${to} | core busy |`);
console.log(`|---|---|---|${"---|".repeat(2 * REFERENCES.length + 2)}`);
const found = {};
/** The median of the ratios of one figure to that of another server in the same round. */
const ratio = (task, peer, reference, name) =>
  median(found[task][peer].map((one, round) => one[name] / found[task][reference][round][name]));
for (const task of only) {
  const peers = PEERS.filter((peer) => !isLeftOut(peer, task));
  found[task] = Object.fromEntries(peers.map((peer) => [peer, []]));
  for (let round = 0; round < rounds; round++) {
    for (const peer of peers)
      found[task][peer].push(await measure(command, peer, task, TASKS[task], seconds));
  }
  for (const peer of peers) {
    const figure = (name) => median(found[task][peer].map((one) => one[name]));
    const ratios = (name) => REFERENCES.map((one) => ratio(task, peer, one, name).toFixed(2)).join(" | ");
    console.log(
      `| ${task} | ${names[peer] ?? peer} | ${Math.round(figure("perS")).toLocaleString("en")} | ${ratios("perS")} ` +
        `| ${figure("cpuUs").toFixed(2)} us | ${ratios("cpuUs")} | ${Math.round(100 * figure("busy"))}% |`,
    );
  }
}

console.log("\n| wanted | at least | by rate | by CPU | |\n|---|---|---|---|---|");
for (const [peer, task, reference, least] of WANTED) {
  const about = `| ${task}, ${peer}, to ${names[reference]} | ${least}`;
  if (!only.includes(task)) continue;
  if (!REFERENCES.includes(reference)) {
    console.log(`${about} | – | – | not measured |`);
    continue;
  }
  const byRate = ratio(task, peer, reference, "perS");
  const byCpu = 1 / ratio(task, peer, reference, "cpuUs");
  const is = byRate >= least ? "reached" : "**not reached**";
  console.log(`${about} | ${byRate.toFixed(2)} | ${byCpu.toFixed(2)} | ${is} |`);
}
process.exit(0);
