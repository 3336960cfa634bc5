// The dashboard in Chromium against a busy server: the longest tasks of the page's main thread with 100,000 topics, and
// snapshots, searches and probes with 10,000 connections. Prints figures; nothing is asserted. The CPU time of a task is its
// time without that of other programs, which decides on a busy machine.
//
//   cargo build --release --package tidewire-cli
//   node bench/dashboard.mjs [--program target/release/tidewire] [--topics 100000] [--connections 10000]
//
// With --page crates/tidewire-engine/src/ops/dashboard the page is that of the working tree, not that of the program.

import { spawn } from "node:child_process";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { WebSocket } from "ws";

const KEY = "0123456789abcdef";

/** How long scrolling to the end of a list may take. */
const SCROLL_MS_MAX = 60_000;

/** Subscriptions of one socket; the server's limit is 10,000. */
const PER_SOCKET = 5_000;

const { values } = parseArgs({
  options: {
    program: { type: "string", default: "target/release/tidewire" },
    chromium: { type: "string", default: process.env.CHROMIUM ?? "/usr/bin/chromium" },
    topics: { type: "string", default: "100000" },
    connections: { type: "string", default: "10000" },
    page: { type: "string" },
  },
});
const topics = Number(values.topics);
const connections = Number(values.connections);

let child;
const server = await startServer();
const browser = await chromium.launch({
  executablePath: values.chromium,
  args: ["--no-sandbox", "--disable-gpu"],
});
try {
  await run();
} finally {
  await browser.close();
  child.kill("SIGKILL");
}
process.exit(0);

async function run() {
  const page = await browser.newPage();
  await page.addInitScript(recordLongTasks);
  if (values.page)
    for (const file of ["app.js", "app.css"])
      await page.route(`**/dashboard/${file}`, (route) => route.fulfill({ path: join(values.page, file) }));
  const snapshots = [];
  page.on("websocket", (socket) =>
    socket.on("framereceived", ({ payload }) =>
      snapshots.push({ at: performance.now(), bytes: payload.length }),
    ),
  );
  await page.goto(server.dashboard);
  await page.getByLabel("Key of the HTTP API").fill(KEY);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("Busiest topics").waitFor();

  const subscribers = await subscribe();
  const publishing = setInterval(() => void publishSome().catch(() => {}), 100);
  const probing = probe();
  const head = ["phase", "s", "tasks above 50 ms", "longest, ms", "most CPU of a task, ms", "snapshots"];
  console.log(`| ${[...head, "longest gap, ms", "bytes"].join(" | ")} |`);
  console.log(`|${"---|".repeat(8)}`);
  const phase = async (name, act) => {
    await page.evaluate(`longTasks.length = 0`);
    const began = performance.now();
    snapshots.length = 0;
    await browser.startTracing(page, { categories: ["toplevel", "__metadata"] });
    const failure = await act().then(
      () => "",
      (error) => `: ${error.message.split("\n")[0]}`,
    );
    const tasks = await page.evaluate("longTasks.slice()");
    const seconds = (performance.now() - began) / 1000;
    report(name + failure, seconds, tasks, mostCpu(await browser.stopTracing()), snapshots);
  };
  await phase(`overview, ${topics} topics`, () => page.waitForTimeout(10_000));
  await phase(`topics, scrolled to the end of ${topics}`, async () => {
    await page.locator("body").press("2");
    await scrollToEnd(page, topics);
  });
  await phase("topics, searched letter by letter", async () => {
    const start = name(topics - 1).slice(0, -2);
    await page.getByRole("searchbox").pressSequentially(start, { delay: 150 });
    await page.locator(".row", { hasText: `${start}00` }).first().waitFor({ timeout: 10_000 });
  });
  await phase("one topic, its values for 10 s", async () => {
    await page.locator(".row").first().click();
    await page.waitForTimeout(10_000);
  });
  if (connections) await withConnections(page, phase);
  clearInterval(publishing);
  const probes = probing.stop();
  const at = (part) => probes[Math.floor(probes.length * part)]?.toFixed(1);
  console.log(`\n${probes.length} probes of /health: median ${at(0.5)} ms, 99 % within ${at(0.99)} ms`);
  for (const socket of subscribers) socket.terminate();
}

async function withConnections(page, phase) {
  const held = [];
  for (let first = 0; first < connections; first += 100) {
    const some = Array.from({ length: Math.min(100, connections - first) }, opened);
    held.push(...(await Promise.all(some)));
  }
  await phase(`overview, ${connections} connections`, async () => {
    await page.locator("body").press("1");
    await page.waitForTimeout(10_000);
  });
  await phase(`connections, scrolled to the end of ${connections}`, async () => {
    await page.locator("body").press("3");
    await scrollToEnd(page, connections);
  });
  await phase("connections, searched by address", async () => {
    await page.getByLabel("Start of the address").fill("127.0.0.1:4");
    await page.getByLabel("Start of the address").press("Enter");
    await page.waitForTimeout(2_000);
  });
  for (const socket of held) socket.terminate();
}

/** An idle connection. Silence ends a session, so that it sends pings. */
async function opened() {
  const socket = new WebSocket(`ws://${server.address}/ws`, { perMessageDeflate: false });
  await new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  setInterval(() => socket.readyState === WebSocket.OPEN && socket.ping(), 20_000).unref();
  return socket;
}

/** Scrolls as one drags the bar: to the end of what is there, until all is there. */
async function scrollToEnd(page, wanted) {
  await page.evaluate(
    `(async () => {
      const list = document.querySelector(".rows");
      const deadline = performance.now() + ${SCROLL_MS_MAX};
      while (list.scrollHeight < ${wanted} * 32) {
        if (performance.now() > deadline) throw new Error("only " + list.scrollHeight / 32 + " rows were loaded");
        list.scrollTop = list.scrollHeight - list.clientHeight - Math.random() * 100;
        await new Promise((resolve) => setTimeout(resolve, 16));
      }
      list.scrollTop = list.scrollHeight / 2;
      await new Promise((resolve) => setTimeout(resolve, 500));
    })()`,
  );
}

/** Runs in the page. */
function recordLongTasks() {
  globalThis.longTasks = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) globalThis.longTasks.push(entry.duration);
  }).observe({ type: "longtask" });
}

async function startServer() {
  const options = ["--no-auth", "--topics-open", "--history", "kept.>=10", "--api-key", KEY];
  const addresses = ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--log-level", "error"];
  child = spawn(values.program, ["serve", ...options, ...addresses], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  const found = await new Promise((resolve, reject) => {
    const look = (bytes) => {
      text += bytes;
      const all = [...text.matchAll(/127\.0\.0\.1:[0-9]+(?=[/\n])/g)].map((match) => match[0]);
      const distinct = [...new Set(all)].filter((one) => !one.endsWith(":0"));
      if (distinct.length >= 2) resolve(distinct);
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.once("close", () => reject(new Error(`the server ended: ${text}`)));
  });
  return { address: found[0], ops: `http://${found[1]}`, dashboard: `http://${found[1]}/dashboard` };
}

function name(index) {
  return `kept.${String(index).padStart(6, "0")}`;
}

/** Sockets that together subscribe to every topic. */
async function subscribe() {
  const sockets = [];
  for (let first = 0; first < topics; first += PER_SOCKET) {
    const socket = await opened();
    sockets.push(socket);
    const last = Math.min(topics, first + PER_SOCKET);
    for (let from = first; from < last; from += 500) {
      const names = Array.from({ length: Math.min(500, last - from) }, (_, index) => name(from + index));
      socket.send(JSON.stringify({ t: "subscription_update", p: { action: "subscribe", topics: names } }));
    }
  }
  while ((await stats()).total.subscriptions < topics)
    await new Promise((resolve) => setTimeout(resolve, 200));
  return sockets;
}

/** 1,000 publications a second, to random topics. */
async function publishSome() {
  const some = Array.from({ length: 100 }, () => ({
    topic: name(Math.floor(Math.random() * topics)),
    type: "tick",
    payload: { price: Math.random() },
  }));
  await fetch(`${server.ops}/api/v1/publish/batch`, {
    method: "POST",
    headers: { "x-api-key": KEY },
    body: JSON.stringify(some),
  });
}

async function stats() {
  const answer = await fetch(`${server.ops}/api/v1/stats`, { headers: { "x-api-key": KEY } });
  return answer.json();
}

/** How long `/health` takes meanwhile, in milliseconds. */
function probe() {
  const taken = [];
  const timer = setInterval(async () => {
    const began = performance.now();
    await fetch(`${server.ops}/health`).catch(() => {});
    taken.push(performance.now() - began);
  }, 250);
  return {
    stop() {
      clearInterval(timer);
      return taken.sort((a, b) => a - b);
    },
  };
}

/** The most CPU time of one task of a page's main thread, in milliseconds. */
function mostCpu(trace) {
  const { traceEvents } = JSON.parse(trace.toString());
  const isMain = (event) => event.name === "thread_name" && event.args.name === "CrRendererMain";
  const mains = new Set(traceEvents.filter(isMain).map(({ pid, tid }) => `${pid} ${tid}`));
  const times = traceEvents.map(({ ph, pid, tid, tdur }) =>
    ph === "X" && mains.has(`${pid} ${tid}`) ? (tdur ?? 0) / 1000 : 0,
  );
  return times.reduce((most, time) => Math.max(most, time), 0);
}

function report(name, seconds, tasks, cpuMs, snapshots) {
  const gaps = snapshots.slice(1).map((one, index) => one.at - snapshots[index].at);
  const worst = tasks.length ? Math.max(...tasks).toFixed(0) : "below 50";
  const bytes = Math.max(0, ...snapshots.map((one) => one.bytes));
  const cells = [name, seconds.toFixed(1), tasks.length, worst, cpuMs.toFixed(0), snapshots.length];
  console.log(`| ${[...cells, Math.max(0, ...gaps).toFixed(0), bytes].join(" | ")} |`);
}
