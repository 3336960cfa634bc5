// Publishing messages of 95 bytes to 100 subscribers, from JavaScript and by the engine alone: `node publish.mjs [ROUNDS] [SECONDS]`. The
// server runs on core 0, the subscribers on core 1. The engine's own rate is that of a client that publishes to 100 others by
// `tidewire bench`. TIDEWIRE_PROGRAM is the program `tidewire`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import os from "node:os";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { chooseNode, median } from "./node.mjs";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const program = process.env.TIDEWIRE_PROGRAM ?? here("../../../target/release/tidewire");
const SUBSCRIBERS = here("../../../bench/peers/python/subscribers.py");
/** At most this number of publications are ahead of the slowest subscriber, as in `tidewire bench`. */
const WINDOW = 689;
const AT_ONCE = 100;
const MESSAGE_BYTES = 95;
const ENGINE = "the engine's clients";
/** With its envelope it is a message of 95 bytes. */
const PAYLOAD = { n: 0, note: "x".repeat(55 - JSON.stringify({ n: 0, note: "" }).length) };

const { command, hasUws, note } = process.argv[2] === "server" ? {} : chooseNode();
if (process.argv[2] === "server") await (process.argv[3] === "uws" ? serveUws() : serve(process.argv[3]));
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
  answerLooks(() => sent);
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

/** The same by uWebSockets.js: its own topics, and a message of the same size that is made for each publication. */
async function serveUws() {
  const { default: uws } = await import("@btc-vision/uwebsockets.js");
  const app = uws.App();
  let sent = 0;
  const made = (type, payload) => JSON.stringify({ c: "WSE", t: type, tp: "fan-out", p: payload, v: 1 });
  const note = "x".repeat(MESSAGE_BYTES - made("tick", { n: 0, note: "" }).length);
  app.ws("/*", {
    maxBackpressure: 64 * 1024 * 1024,
    message: (socket, bytes) => {
      const { t: type, p: payload } = JSON.parse(Buffer.from(bytes).toString());
      if (type === "subscription_update") {
        socket.subscribe("fan-out");
        socket.send(made("subscription_update", {}));
        return;
      }
      if (payload === 0) sent = 0; // a new run of subscribers
      while (sent + AT_ONCE <= payload + WINDOW) {
        for (let n = 0; n < AT_ONCE; n++) app.publish("fan-out", made("tick", { n: 0, note }));
        sent += AT_ONCE;
      }
    },
  });
  const port = await new Promise((resolve) =>
    app.listen("127.0.0.1", 0, (token) => resolve(uws.us_socket_local_port(token))),
  );
  console.log(`ws://127.0.0.1:${port}/`);
  answerLooks(() => sent);
}

/** Prints what was published and the processor time that was used, for each line that is read. */
function answerLooks(count) {
  createInterface({ input: process.stdin }).on("line", () => {
    const { user, system } = process.cpuUsage();
    console.log(JSON.stringify({ sent: count(), cpuUs: user + system }));
  });
}

/** Deliveries a second, and the server's processor time for each in microseconds. */
async function published(mode, seconds) {
  const server = spawn("taskset", ["-c", "0", ...command, here("publish.mjs"), "server", mode]);
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
  const ways = {
    [ENGINE]: engine,
    publishMany: published,
    publish: published,
    ...(hasUws && { uws: published }),
  };
  const found = Object.fromEntries(Object.keys(ways).map((way) => [way, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [way, measure] of Object.entries(ways)) found[way].push(await measure(way, seconds));
  }
  const ratio = (way, reference, name) =>
    median(found[way].map((run, round) => run[name] / found[reference][round][name]));
  if (note !== undefined) console.log(`${note}\n`);
  console.log(`Medians of ${rounds} rounds of ${seconds} s, Node ${process.version}.\n`);
  const references = Object.keys(ways).filter((way) => way === ENGINE || way === "uws");
  const to = references.map((way) => `to ${way === "uws" ? "uWebSockets.js" : "the engine"}`).join(" | ");
  console.log(`| by | deliveries/s | ${to} | server's CPU per delivery | ${to} |`);
  console.log(`|---|---|---|${"---|".repeat(2 * references.length)}`);
  for (const [way, runs] of Object.entries(found)) {
    const ratios = (name) => references.map((one) => ratio(way, one, name).toFixed(2)).join(" | ");
    const rate = Math.round(median(runs.map((run) => run.perS))).toLocaleString("en");
    const cpu = median(runs.map((run) => run.cpuUs)).toFixed(3);
    const name = way === "uws" ? "uWebSockets.js" : way;
    console.log(`| ${name} | ${rate} | ${ratios("perS")} | ${cpu} us | ${ratios("cpuUs")} |`);
  }
  console.log("\n| wanted | at least | found | |\n|---|---|---|---|");
  const wanted = (about, least, reference) => {
    const value = found[reference] && ratio("publishMany", reference, "perS");
    const is = value === undefined ? "not measured" : value >= least ? "reached" : "**not reached**";
    console.log(`| \`publishMany\` to ${about} | ${least} | ${value?.toFixed(2) ?? "–"} | ${is} |`);
  };
  wanted("the engine's own rate", 0.9, ENGINE);
  wanted("uWebSockets.js", 3, "uws");
  process.exit(0);
}
