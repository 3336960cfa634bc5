// Starts and stops many servers in one process, and prints how its memory and its open files grow:
// `node --expose-gc cycles.mjs [CYCLES]`, 10,000 by default. Each server has a handler, and a client that sends a message.

import fs from "node:fs";
import WebSocket from "ws";
import { Server } from "../index.mjs";

const cycles = Number(process.argv[2] ?? 10_000);
const STRETCHES = 10;

async function cycle() {
  const server = new Server({ port: 0, noAuth: true, shards: 1, protocol: "raw" });
  server.on("*", (message) => message.connection.sendRaw(message));
  await server.start();
  const socket = new WebSocket(server.url);
  socket.on("open", () => socket.send("hello"));
  await new Promise((resolve, reject) => {
    socket.once("message", resolve);
    socket.once("error", reject);
  });
  const closed = new Promise((resolve) => socket.once("close", resolve));
  await server.stop();
  await closed;
}

async function look() {
  // What is collected is released by the event loop.
  for (let round = 0; round < 5; round++) {
    gc();
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const { rss, heapUsed, external } = process.memoryUsage();
  const files = fs.readdirSync("/proc/self/fd").length;
  const threads = fs.readdirSync("/proc/self/task").length;
  return { rss, heapUsed, external, files, threads };
}

console.log("| cycles | resident | heap | external | open files | threads | after |");
console.log("|---|---|---|---|---|---|---|");
const mib = (bytes) => (bytes / 1024 / 1024).toFixed(2);
const started = performance.now();
const stretch = Math.ceil(cycles / STRETCHES);
for (let done = 0; ; done += stretch) {
  const { rss, heapUsed, external, files, threads } = await look();
  const seconds = ((performance.now() - started) / 1000).toFixed(1);
  const memory = `${mib(rss)} MiB | ${mib(heapUsed)} MiB | ${mib(external)} MiB`;
  console.log(`| ${done.toLocaleString("en")} | ${memory} | ${files} | ${threads} | ${seconds} s |`);
  if (done >= cycles) break;
  for (let number = 0; number < stretch; number++) await cycle();
}
