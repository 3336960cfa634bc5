// Load generators of Node against nginx, keep-alive, 100 connections: `node http.mjs [ROUNDS] [SECONDS]`. nginx runs on core 0
// and the generator on core 1, with all its threads. The processor time is that of the generator's process while it loads.

import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { median } from "./node.mjs";

const PORT = 5998;
const URL_OF_NGINX = `http://127.0.0.1:${PORT}/`;
const CONNECTIONS = 100;

const TOOLS = {
  "tidewire loadTest()": ours,
  "loadtest --tcp": (seconds) => theirs(seconds, { tcp: true }),
  loadtest: (seconds) => theirs(seconds, { agentKeepAlive: true }),
  autocannon,
};
const OURS = "tidewire loadTest()";
/** What our processor time for a request is to be at most, as a part of theirs. */
const WANTED = { "loadtest --tcp": 0.5, loadtest: 0.2, autocannon: 0.4 };

if (process.argv[2] === "tool") await runTool(process.argv[3], Number(process.argv[4]));
else await compare(Number(process.argv[2] ?? 3), Number(process.argv[3] ?? 2));

/** The requests that were answered. */
async function ours(seconds) {
  const { loadTest } = await import("../loadtest.mjs");
  const options = { url: URL_OF_NGINX, concurrency: CONNECTIONS, agentKeepAlive: true, quiet: true };
  return (await loadTest({ ...options, maxSeconds: seconds })).totalRequests;
}

async function theirs(seconds, how) {
  const { loadTest } = await import("loadtest");
  const options = { url: URL_OF_NGINX, concurrency: CONNECTIONS, quiet: true, ...how };
  return (await loadTest({ ...options, maxSeconds: seconds })).totalRequests;
}

async function autocannon(seconds) {
  const { default: load } = await import("autocannon");
  const result = await load({ url: URL_OF_NGINX, connections: CONNECTIONS, duration: seconds });
  return result.requests.total;
}

async function runTool(name, seconds) {
  // The modules are loaded before.
  await TOOLS[name](1);
  const before = process.cpuUsage();
  const started = performance.now();
  const requests = await TOOLS[name](seconds);
  const { user, system } = process.cpuUsage(before);
  console.log(JSON.stringify({ requests, cpuUs: user + system, ms: performance.now() - started }));
  process.exit(0);
}

async function startNginx() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-nginx-"));
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  fs.writeFileSync(
    path.join(folder, "nginx.conf"),
    `daemon off; master_process off; worker_processes 1; pid ${folder}/pid; error_log ${folder}/error.log;
    events { worker_connections 1024; }
    http {
      access_log off; keepalive_requests 1000000000;
      ${temporary.map((name) => `${name}_temp_path ${folder}/${name};`).join("\n")}
      server { listen 127.0.0.1:${PORT}; location / { return 200 "hello"; } }
    }`,
  );
  const words = ["-c", "0", "nginx", "-c", path.join(folder, "nginx.conf"), "-p", folder];
  const nginx = spawn("taskset", words, {
    stdio: "ignore",
    env: { ...process.env, PATH: `${process.env.PATH}:/usr/sbin` },
  });
  for (;;) {
    const socket = net.connect(PORT, "127.0.0.1");
    const isListening = await once(socket, "connect").then(
      () => true,
      () => false,
    );
    socket.destroy();
    if (isListening) break;
    await pause(20);
  }
  return async () => {
    nginx.kill("SIGKILL");
    await once(nginx, "exit");
    fs.rmSync(folder, { recursive: true });
  };
}

async function measure(name, seconds) {
  const words = ["-c", "1", process.execPath, fileURLToPath(import.meta.url), "tool", name, String(seconds)];
  const tool = spawn("taskset", words, { stdio: ["ignore", "pipe", "ignore"] });
  let text = "";
  tool.stdout.on("data", (part) => {
    text += part;
  });
  await once(tool, "close");
  const { requests, cpuUs, ms } = JSON.parse(text.trim().split("\n").at(-1));
  return { perS: (requests / ms) * 1000, cpuUs: cpuUs / requests };
}

async function compare(rounds, seconds) {
  const stop = await startNginx();
  const found = Object.fromEntries(Object.keys(TOOLS).map((name) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const name of Object.keys(TOOLS)) found[name].push(await measure(name, seconds));
  }
  await stop();
  console.log(`Medians of ${rounds} rounds of ${seconds} s, Node ${process.version}.\n`);
  console.log(
    "| generator | requests/s | CPU per request | ours to it | at most | |\n|---|---|---|---|---|---|",
  );
  for (const [name, runs] of Object.entries(found)) {
    const ratio = median(runs.map((run, round) => found[OURS][round].cpuUs / run.cpuUs));
    const rate = Math.round(median(runs.map((run) => run.perS))).toLocaleString("en");
    const most = WANTED[name];
    const is = most === undefined ? " " : ratio <= most ? " reached " : " **not reached** ";
    const cpu = median(runs.map((run) => run.cpuUs)).toFixed(2);
    console.log(`| ${name} | ${rate} | ${cpu} us | ${ratio.toFixed(2)} | ${most ?? ""} |${is}|`);
  }
}
