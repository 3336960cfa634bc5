#!/usr/bin/env node
/** The entry point of `tidewire-worker-ts`: a worker of `tidewire bench`, with the transport of the TypeScript client. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, hostname, tmpdir } from "node:os";
import { join } from "node:path";
import { runActivity } from "./activities.js";
import { Activity } from "./activity.js";
import { clockNs } from "./clock.js";
import { type Begin, CONTRACT, type Open, type Run } from "./contract.js";
import { Opened } from "./counts.js";
import { Crowd, runFanOut } from "./fan_out.js";
import { say, serve, wish } from "./link.js";
import { Opener, type Session } from "./session.js";
import { beginBeats, cpuNs, meter, stoppedNs } from "./usage.js";

/** Whether messages are encoded once, not made each. */
const isPrepared = process.argv.includes("--prepared");
/** Files that are no connections. */
const FILES_MARGIN = 64;
const LIVE_MS = 100;

let terms: Begin | undefined;
let opener: Opener | undefined;
let sessions: Session[] = [];
let failed = 0;
let opened: Opened | undefined;
let activity: Activity | undefined;
let crowd: Crowd | undefined;
let abandon: () => void = () => {};

function live(): object {
  const counts = activity?.counts;
  return {
    connected: sessions.filter((session) => !session.isOver).length,
    failed,
    offered: counts?.offered ?? opened?.attempted ?? 0,
    confirmed: counts === undefined ? (opened?.connected ?? 0) : counts.confirmed + counts.pongs,
    stopped_ns: stoppedNs(),
    cpu_ns: cpuNs(),
    rss_bytes: process.memoryUsage.rss(),
  };
}

function stop(): void {
  if (opened !== undefined) opened.interrupted = true;
  activity?.stop();
}

/** Waits for the work of an order until it is done or abandoned; whether it was done. */
async function finished(work: Promise<unknown>): Promise<boolean> {
  const abandoned = new Promise<boolean>((resolve) => {
    abandon = () => resolve(false);
  });
  // A stop may arrive before the order has begun.
  if (wish() !== undefined) stop();
  if (wish() === "abandon") abandon();
  return Promise.race([work.then(() => true), abandoned]);
}

async function obey(order: Record<string, unknown> & { do: string }): Promise<void> {
  switch (order.do) {
    case "begin":
      return begin(order as unknown as Begin);
    case "open":
      return openAll(order as unknown as Open);
    case "reconnect":
      return reconnect(order as unknown as Open);
    case "run":
      return run(order as unknown as Run);
    case "close":
      return closeAll();
    default:
      throw new Error(`the order ${order.do} is not known`);
  }
}

async function begin(order: Begin): Promise<void> {
  if (order.contract !== CONTRACT) {
    throw new Error(`the controller speaks version ${order.contract} of the contract, not ${CONTRACT}`);
  }
  terms = order;
  opener = new Opener(order, order.authorities_pem && fileOf(order.authorities_pem));
}

/** A file with a text, which ends with this process. */
function fileOf(text: string): string {
  const folder = mkdtempSync(join(tmpdir(), "tidewire-authorities-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  const file = join(folder, "authorities.pem");
  writeFileSync(file, text, { mode: 0o600 });
  return file;
}

/** The numbers of connections and their tokens. */
function numbersOf(order: Open): [number: number, token: string | undefined][] {
  const count = Math.max(0, Math.ceil((order.end - order.first) / order.step));
  const tokens = order.tokens?.length ?? 0;
  if (tokens > 0 && tokens !== count) throw new Error(`${tokens} tokens came for ${count} connections`);
  return Array.from({ length: count }, (_, index) => [
    order.first + index * order.step,
    order.tokens?.[index],
  ]);
}

/** Opens connections, some of them at once, each until it is ready. */
async function openAll(order: Open): Promise<void> {
  const numbers = numbersOf(order);
  await opening(order.in_flight, async (one) => {
    for (let next = numbers.shift(); next !== undefined; next = numbers.shift()) {
      if (one.interrupted) {
        one.untried += 1;
        continue;
      }
      const session = await timed(one, ...next);
      if (session !== undefined) sessions.push(session);
    }
  });
}

/** Opens connections, closes each when it is ready, and opens it again. */
async function reconnect(order: Open): Promise<void> {
  const numbers = numbersOf(order);
  const endNs = clockNs() + (order.longest_ms ?? Number.POSITIVE_INFINITY) * 1e6;
  await opening(numbers.length, async (one) => {
    const next = numbers.shift();
    if (next === undefined) return;
    for (let round = 0; round < (order.rounds ?? Number.POSITIVE_INFINITY) && !one.interrupted; round += 1) {
      const session = await timed(one, ...next);
      session?.close();
      await session?.closed;
      if (clockNs() >= endNs) return;
    }
  });
}

async function opening(atOnce: number, work: (opened: Opened) => Promise<void>): Promise<void> {
  const used = meter();
  const one = new Opened();
  opened = one;
  await finished(Promise.all(Array.from({ length: atOnce }, () => work(one))));
  opened = undefined;
  failed += one.failures.total;
  say("opened", {
    ...one.figures(),
    ...used(),
    began_ns: runTime(one.beganNs),
    ended_ns: runTime(one.endedNs),
    live: live(),
  });
}

/** Opens a connection, and records how long it needs to become ready. */
async function timed(one: Opened, number: number, token: string | undefined): Promise<Session | undefined> {
  if (opener === undefined) throw new Error("an order came before the terms of the test");
  one.attempted += 1;
  const beganNs = clockNs();
  one.beganNs ??= beganNs;
  one.endedNs ??= beganNs;
  try {
    const session = await opener.open(number, token);
    one.endedNs = clockNs();
    one.latency.record(one.endedNs - beganNs);
    one.connected += 1;
    one.version ??= session.version;
    return session;
  } catch (error) {
    one.failures.add(error instanceof Error ? error.message : String(error));
    return undefined;
  }
}

function runTime(ns: number | undefined): number | null {
  return ns === undefined || terms === undefined ? null : Math.max(0, ns - terms.zero_clock_ns);
}

/** Runs an activity on the connections that live. */
async function run(order: Run): Promise<void> {
  if (terms === undefined) throw new Error("an order came before the terms of the test");
  const one = new Activity(order, terms, isPrepared);
  const { counts } = one;
  for (const session of sessions) if (session.isOver) counts.brokenBefore.addKind("closed");
  sessions = sessions.filter((session) => !session.isOver);
  counts.members = sessions.length;
  counts.lastConfirmedNs = counts.beganNs;
  const used = meter();
  activity = one;
  if (order.activity === "fan_out") crowd = new Crowd(one);
  const work = crowd === undefined ? runActivity(one, sessions) : runFanOut(one, sessions, crowd);
  const isWhole = await finished(work);
  if (crowd !== undefined) counts.fanOut ??= crowd.figures();
  for (const session of sessions) session.events = {};
  failed += counts.broken.total;
  const stoppedNs = Math.min(counts.endNs, clockNs());
  const hasPace = order.activity !== "fan_out" || order.publishes;
  say("ran", {
    ...counts.figures(stoppedNs),
    ...used(),
    pace: hasPace ? one.paceKept(stoppedNs, crowd?.publications ?? counts.offered) : null,
    began_ns: runTime(counts.beganNs),
    first_confirmed_ns: counts.firstConfirmedNs === 0 ? null : runTime(counts.firstConfirmedNs),
    last_confirmed_ns: runTime(counts.lastConfirmedNs),
    stopped_ns: runTime(stoppedNs),
    interrupted: !isWhole,
    live: live(),
  });
  activity = undefined;
  crowd = undefined;
}

async function closeAll(): Promise<void> {
  const all = sessions;
  sessions = [];
  for (const session of all) session.close();
  const patienceMs = (terms?.close_timeout_ms ?? 0) + 1000;
  const patience = new Promise((resolve) => setTimeout(resolve, patienceMs).unref());
  await Promise.race([Promise.all(all.map((session) => session.closed)), patience]);
  say("closed", {});
}

/** The most open files of this process; Node raises its limit itself. */
function openFilesMax(): number {
  try {
    const line = /^Max open files\s+([0-9]+|unlimited)/m.exec(readFileSync("/proc/self/limits", "utf8"));
    return line === null || line[1] === "unlimited" ? 1_000_000 : Number(line[1]);
  } catch {
    return 1_000_000;
  }
}

// Ctrl-C is for the controller, which then ends this process.
process.on("SIGINT", () => {});
say("hello", {
  contract: CONTRACT,
  language: "typescript",
  version: "0.1.0",
  host: hostname(),
  pid: process.pid,
  cores: availableParallelism(),
  rss_bytes: process.memoryUsage.rss(),
  connections_max: Math.max(1, openFilesMax() - FILES_MARGIN),
  profiles: ["v1", "raw"],
  encodings: ["json", "msgpack", "zlib"],
  layers: ["plain", "deflate"],
  accepts_any_certificate: false,
});
beginBeats();
setInterval(() => say("live", live()), LIVE_MS);
serve(
  {
    stop,
    abandon: () => {
      stop();
      abandon();
    },
    progress: ({ received }) => crowd?.progress(received),
    published: ({ publications }) => crowd?.published(publications),
  },
  obey,
);
