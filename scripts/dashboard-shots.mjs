// The pictures of the dashboard in docs/, from a real server with invented traffic. It takes two minutes, which is how long a
// line of the overview is.
//
//   cargo build --release --package tidewire-cli
//   node scripts/dashboard-shots.mjs [--program target/release/tidewire] [--out docs] [--seconds 125]
//
// With --page crates/tidewire-engine/src/ops/dashboard the page is that of the working tree, not that of the program.

import { spawn } from "node:child_process";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { chromium } from "playwright-core";
import { WebSocket } from "ws";

const KEY = "0123456789abcdef";

const TOPICS = [
  "orders.eu",
  "orders.us",
  "prices.tea",
  "prices.coffee",
  "prices.cocoa",
  "chat.lobby",
  "chat.help",
];

const { values } = parseArgs({
  options: {
    program: { type: "string", default: "target/release/tidewire" },
    chromium: { type: "string", default: process.env.CHROMIUM ?? "/usr/bin/chromium" },
    out: { type: "string", default: "docs" },
    page: { type: "string" },
    seconds: { type: "string", default: "125" },
  },
});

let child;
let turn = 0;
const { address, ops } = await startServer();
const browser = await chromium.launch({
  executablePath: values.chromium,
  args: ["--no-sandbox", "--disable-gpu"],
});
try {
  const sockets = await connectAll();
  setInterval(() => void traffic(sockets).catch(() => {}), 100);
  await take();
} finally {
  await browser.close();
  child.kill("SIGKILL");
}
process.exit(0);

async function take() {
  const page = await browser.newPage({ viewport: { width: 1200, height: 860 }, deviceScaleFactor: 1.25 });
  if (values.page)
    for (const file of ["app.js", "app.css"])
      await page.route(`**/dashboard/${file}`, (route) => route.fulfill({ path: join(values.page, file) }));
  await page.goto(`http://${ops}/dashboard`);
  await page.getByLabel("Key of the HTTP API").fill(KEY);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.getByText("Busiest topics").waitFor();
  await delay(Number(values.seconds) * 1000);
  await both(page, "dashboard");
  await page.locator("body").press("2");
  await page.getByRole("button", { name: /^orders\.eu/ }).click();
  await page.getByText("Last values").waitFor();
  await both(page, "dashboard-topics");
}

async function both(page, name) {
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    await delay(300);
    await page.screenshot({ path: join(values.out, `${name}-${colorScheme}.png`) });
  }
}

async function connectAll() {
  const sockets = [];
  for (let index = 0; index < 240; index++) {
    const socket = new WebSocket(`ws://${address}/ws`, { perMessageDeflate: false });
    await new Promise((resolve) => socket.once("open", resolve));
    const topics = TOPICS.filter((_, at) => (index * 7 + at * 3) % ((at % 4) + 1) === 0);
    socket.send(JSON.stringify({ t: "subscription_update", p: { action: "subscribe", topics } }));
    sockets.push(socket);
  }
  for (let count = 0; count < 14; count++)
    new WebSocket(`ws://${address}/ws`, { origin: "http://elsewhere.example" }).on("error", () => {});
  for (const socket of sockets.slice(0, 5)) socket.send("{");
  return sockets;
}

/** A tenth of a second of traffic: it rises and falls. */
async function traffic(sockets) {
  turn++;
  const count = Math.round(16 + 9 * Math.sin(turn / 90) + 4 * Math.sin(turn / 17) + 3 * Math.random());
  const some = Array.from({ length: count }, (_, index) => ({
    topic: TOPICS[Math.floor(Math.random() ** 2 * TOPICS.length)],
    type: "order_created",
    payload: { id: 4711 + turn * 30 + index, item: "tea", price: Number((4 + Math.random()).toFixed(2)) },
  }));
  for (const socket of sockets.slice(turn % 200, (turn % 200) + 8 + (turn % 3)))
    socket.send(JSON.stringify({ t: "note", p: { read: turn } }));
  if (turn % 13 === 0) {
    const socket = new WebSocket(`ws://${address}/ws`);
    socket.once("open", () => setTimeout(() => socket.close(), 4000));
  }
  await fetch(`http://${ops}/api/v1/publish/batch`, {
    method: "POST",
    headers: { "x-api-key": KEY },
    body: JSON.stringify(some),
  });
}

async function startServer() {
  const options = ["--no-auth", "--topics-open", "--app", "sink", "--history", ">=100", "--shards", "2"];
  const addresses = ["--listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0", "--log-level", "error"];
  child = spawn(values.program, ["serve", ...options, "--api-key", KEY, ...addresses], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  return new Promise((resolve, reject) => {
    const look = (bytes) => {
      text += bytes;
      const all = [...text.matchAll(/127\.0\.0\.1:[0-9]+(?=[/\n])/g)].map((match) => match[0]);
      const [address, ops] = [...new Set(all)].filter((one) => !one.endsWith(":0"));
      if (ops) resolve({ address, ops });
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.once("close", () => reject(new Error(`the server ended: ${text}`)));
  });
}
