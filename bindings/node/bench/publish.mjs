// Publishing messages of 95 bytes to 100 subscribers, from JavaScript and by the engine alone: `node publish.mjs [ROUNDS] [SECONDS]`. The
// server runs on core 0, the subscribers on core 1. The engine's own rate is that of a client that publishes to 100 others by
// `tidewire bench`. TIDEWIRE_PROGRAM is the program `tidewire`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const program = process.env.TIDEWIRE_PROGRAM ?? here("../../../target/release/tidewire");
const SUBSCRIBERS = here("../../../bench/peers/python/subscribers.py");
/** At most this number of publications are ahead of the slowest subscriber, as in `tidewire bench`. */
const WINDOW = 689;
const AT_ONCE = 100;
/** With its envelope it is a message of 95 bytes. */
const PAYLOAD = { n: 0, note: "x".repeat(55 - JSON.stringify({ n: 0, note: "" }).length) };

if (process.argv[2] === "server") await serve(process.argv[3]);
else await compare(Number(process.argv[2] ?? 3), Number(process.argv[3] ?? 2));

/** Publishes as long as subscribers tell that they have read what was published. */
async function serve(mode) {
  const { Server } = await import("../index.mjs");
  const options = { port: 0, noAuth: true, topicsOpen: true, shards: 1, rateLimitCapacity: 0 };
  const server = new Server(options);
  const payloads = new Array(AT_ONCE).fill(PAYLOAD);
  let sent = 0;
  let room = 0;
  const batches = server.batches();
  await server.start();
  console.log(server.url);
  createInterface({ input: process.stdin }).on("line", () => {
    const { user, system } = process.cpuUsage();
    console.log(JSON.stringify({ sent, cpuUs: user + system }));
  });
  for await (const batch of batches) {
    for (const message of batch) {
      if (message.kind !== "message") continue;
      if (message.payload === 0) sent = 0; // a new run of subscribers
      room = message.payload + WINDOW;
    }
    while (sent + AT_ONCE <= room) {
      if (mode === "publishMany") await server.publishMany("fan-out", payloads, { type: "tick" });
      else for (const payload of payloads) server.publish("fan-out", payload, { type: "tick" });
      sent += AT_ONCE;
    }
  }
}

/** Deliveries a second, and the server's processor time for each in microseconds. */
async function published(mode, seconds) {
  const server = spawn("taskset", ["-c", "0", process.execPath, here("publish.mjs"), "server", mode]);
  server.stderr.pipe(process.stderr);
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  const url = (await lines.next()).value;
  const look = async () => {
    server.stdin.write("\n");
    return JSON.parse((await lines.next()).value);
  };
  const words = ["-c", "1", "python3", SUBSCRIBERS, url, "--seconds", seconds];
  const before = await look();
  const readers = spawn("taskset", words.map(String));
  readers.stderr.pipe(process.stderr);
  let text = "";
  readers.stdout.on("data", (part) => {
    text += part;
  });
  await once(readers, "close");
  const after = await look();
  server.kill("SIGKILL");
  await once(server, "exit");
  const cpuUs = (after.cpuUs - before.cpuUs) / (100 * after.sent);
  return { perS: JSON.parse(text).deliveries_per_s, cpuUs };
}

async function engine(_mode, seconds) {
  const address = "127.0.0.1:5997";
  const options = ["--no-auth", "--app", "sink", "--topics-open", "--shards", "1", "--listen", address];
  const server = spawn("taskset", ["-c", "0", program, "serve", ...options], { stdio: "ignore" });
  const test = ["--profile", "v1", "--test", "fan-out", "--connections", 100, "--threads", 1];
  const more = ["--duration-s", seconds, "--json", "--out", os.tmpdir()];
  const words = ["-c", "1", program, "bench", `ws://${address}/ws`, ...test, ...more].map(String);
  await new Promise((resolve) => setTimeout(resolve, 500));
  const load = spawn("taskset", words, { stdio: ["ignore", "pipe", "ignore"] });
  let text = "";
  load.stdout.on("data", (part) => {
    text += part;
  });
  await once(load, "close");
  server.kill("SIGKILL");
  await once(server, "exit");
  const [result] = JSON.parse(text).results;
  return { perS: result.rate_per_s, cpuUs: (result.cpu.server_s * 1e6) / result.messages.confirmed };
}

async function compare(rounds, seconds) {
  const ways = { "the engine's clients": engine, publishMany: published, publish: published };
  const found = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [way, measure] of Object.entries(ways)) found[way].push(await measure(way, seconds));
  }
  const median = (values) => [...values].sort((one, other) => one - other)[values.length >> 1];
  const reference = found["the engine's clients"];
  console.log(`medians of ${rounds} rounds of ${seconds} s, Node ${process.version}\n`);
  console.log("| by | deliveries/s | ratio | server's CPU per delivery | ratio |\n|---|---|---|---|---|");
  for (const [way, runs] of Object.entries(found)) {
    const ratio = (name) => median(runs.map((run, round) => run[name] / reference[round][name])).toFixed(2);
    const rate = Math.round(median(runs.map((run) => run.perS))).toLocaleString("en");
    const cpu = median(runs.map((run) => run.cpuUs)).toFixed(3);
    console.log(`| ${way} | ${rate} | ${ratio("perS")} | ${cpu} us | ${ratio("cpuUs")} |`);
  }
  process.exit(0);
}
