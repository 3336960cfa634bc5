// Compares @tidewire/client in Chromium with a bare WebSocket and JSON.parse of each message. Every round measures each
// contender once, one after another. Prints the runs as JSON; bench/compare.py makes tables of them.
//
//   npm run build && node packages/bench/peers/browser.js --tidewire target/release/tidewire [--rounds 5] [--messages 20000]
//
// burst: publications of 95 B that wait in the server; the time from the first to the last in the page.
// steady: 20,000 publications per second; CPU time of the page's main thread, and its longest task.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:http";
import { connect as connectTcp } from "node:net";
import { parseArgs } from "node:util";
import { build } from "esbuild";
import { chromium } from "playwright-core";

const text = { type: "string" };
const { values } = parseArgs({ options: { tidewire: text, rounds: text, messages: text, seconds: text } });
const program = values.tidewire ?? "target/release/tidewire";
const rounds = Number(values.rounds ?? 5);
const messages = Number(values.messages ?? 20_000);
const seconds = Number(values.seconds ?? 5);
const STEADY_PER_S = 20_000;
const TICK_MS = 5;
const PUBLICATION_BYTES = 95;

const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const executablePath = process.env.CHROMIUM ?? places.find((place) => existsSync(place));
if (!executablePath) {
  console.error("no Chromium: name its program in CHROMIUM");
  process.exit(1);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The script of the page: each contender subscribes topic `a` and calls `count` for each publication. */
const script = `
import { open } from ${JSON.stringify(new URL("../../client/dist/min/index.js", import.meta.url).pathname)};

const contenders = {
  async bare(url, count) {
    const socket = new WebSocket(url);
    const request = { t: "subscription_update", p: { action: "subscribe", topics: ["a"] } };
    await new Promise((resolve) => {
      socket.onmessage = ({ data }) => {
        const message = JSON.parse(data);
        if (message.t === "server_ready") {
          socket.send('{"t":"client_hello","p":{}}');
          socket.send(JSON.stringify(request));
        } else if (message.t === "subscription_update") resolve();
      };
    });
    socket.onmessage = ({ data }) => {
      const message = JSON.parse(data);
      if (message.t === "tick") count(message.p.n);
    };
    return () => socket.close();
  },
  async client(url, count) {
    const client = await open(url, { reconnect: false });
    const subscription = client.subscribe("a");
    subscription.on("message", (message) => count(message.payload.n));
    await subscription.ready();
    return () => client.close();
  },
};

const tasks = [];
new PerformanceObserver((list) => tasks.push(...list.getEntries().map((entry) => entry.duration))).observe({
  type: "longtask",
});

let close;
let state;
window.start = async (name, url) => {
  state = { count: 0, sum: 0, firstMs: 0, lastMs: 0 };
  tasks.length = 0;
  close = await contenders[name](url, (n) => {
    const now = performance.now();
    if (state.count === 0) state.firstMs = now;
    state.lastMs = now;
    state.count += 1;
    state.sum += n;
  });
};
window.state = () => ({ ...state, longestTaskMs: Math.max(0, ...tasks) });
window.end = () => close();
`;

async function serveEngine(...options) {
  const child = spawn(program, ["serve", "--listen", "127.0.0.1:0", "--log-level", "error", ...options]);
  const address = await new Promise((resolve, reject) => {
    let output = "";
    const look = (bytes) => {
      output += bytes;
      const found = /127\.0\.0\.1:([1-9][0-9]*)/.exec(output);
      if (found) resolve(Number(found[1]));
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.once("close", () => reject(new Error(output)));
  });
  return { port: address, stop: () => child.kill("SIGKILL") };
}

async function servePage() {
  const bundled = await build({
    stdin: { contents: script, resolveDir: process.cwd() },
    bundle: true,
    write: false,
    format: "esm",
    target: "es2022",
    minify: true,
    conditions: ["browser"],
  });
  const server = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
    response.end(
      isScript ? bundled.outputFiles[0].contents : '<script type="module" src="/page.js"></script>',
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return { origin: `http://127.0.0.1:${server.address().port}`, server };
}

/** A frame of a client with the mask 0. */
function frame(message) {
  const payload = Buffer.from(message);
  const size = payload.length;
  const head = size < 126 ? [0x81, 0x80 | size] : [0x81, 0xfe, size >> 8, size & 255];
  return Buffer.concat([Buffer.from([...head, 0, 0, 0, 0]), payload]);
}

/** A connection that publishes what it is given. */
async function openPublisher(port) {
  const socket = connectTcp(port, "127.0.0.1");
  const head = ["GET /ws HTTP/1.1", `Host: 127.0.0.1:${port}`, "Upgrade: websocket", "Connection: Upgrade"];
  head.push("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Version: 13");
  socket.write(`${head.join("\r\n")}\r\n\r\n`);
  await once(socket, "data");
  socket.on("data", () => {});
  const head95 = '{"c":"U","t":"tick","tp":"a","p":{"n":1,"pad":""}}';
  const payload = { n: 1, pad: "x".repeat(PUBLICATION_BYTES - head95.length) };
  const one = frame(JSON.stringify({ t: "publish_request", p: { topic: "a", type: "tick", payload } }));
  return {
    publish: (count) => socket.write(Buffer.concat(Array(count).fill(one))),
    close: () => socket.destroy(),
  };
}

const { origin, server } = await servePage();
const engine = await serveEngine(
  ...["--no-auth", "--app", "sink", "--topics-open", "--origin", origin, "--rate-limit-capacity", "0"],
  ...["--outbox-bytes-max", "268435456", "--backlog-bytes-max", "268435456"],
);
const url = `ws://127.0.0.1:${engine.port}/ws`;
const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-gpu"] });
const publisher = await openPublisher(engine.port);
const page = await browser.newPage();
await page.goto(`${origin}/`);
await page.waitForFunction(() => "start" in window);
const devtools = await page.context().newCDPSession(page);
await devtools.send("Performance.enable", { timeDomain: "threadTicks" });

/** CPU time of the page's main thread so far, in seconds. */
async function cpuSeconds() {
  const { metrics } = await devtools.send("Performance.getMetrics");
  return metrics.find(({ name }) => name === "TaskDuration").value;
}

/** Publishes by `feed`, and waits until all of it is in the page. */
async function measure(name, feed) {
  await page.evaluate(([name, url]) => window.start(name, url), [name, url]);
  const before = await cpuSeconds();
  const sent = await feed();
  const deadline = performance.now() + 60_000;
  let state = await page.evaluate(() => window.state());
  while (state.count < sent) {
    if (performance.now() > deadline)
      throw new Error(`${name}: ${state.count} of ${sent} publications arrived`);
    await sleep(50);
    state = await page.evaluate(() => window.state());
  }
  const cpuUs = (1e6 * ((await cpuSeconds()) - before)) / sent;
  await page.evaluate(() => window.end());
  if (state.count !== sent || state.sum !== sent)
    throw new Error(`${name}: ${state.count} for ${sent} publications`);
  return {
    perS: (1e3 * (sent - 1)) / (state.lastMs - state.firstMs),
    cpuUs,
    longestTaskMs: state.longestTaskMs,
  };
}

async function burst() {
  publisher.publish(messages);
  return messages;
}

async function steady() {
  const startMs = performance.now();
  let sent = 0;
  while (performance.now() - startMs < 1000 * seconds) {
    const due = Math.floor(((performance.now() - startMs) / 1000) * STEADY_PER_S);
    if (due > sent) publisher.publish(due - sent);
    sent = due;
    await sleep(TICK_MS);
  }
  return sent;
}

const found = { burst: { bare: [], client: [] }, steady: { bare: [], client: [] } };
try {
  for (const [kind, feed] of Object.entries({ burst, steady })) {
    await measure("bare", feed);
    await measure("client", feed);
    for (let round = 0; round < rounds; round += 1) {
      for (const name of round % 2 ? ["client", "bare"] : ["bare", "client"]) {
        found[kind][name].push(await measure(name, feed));
      }
    }
  }
} finally {
  publisher.close();
  await browser.close();
  engine.stop();
  server.close();
}

console.log(JSON.stringify(found));
