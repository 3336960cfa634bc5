/** The tests. */

import { durationS, merged, type Opened, sumOf } from "./account.js";
import {
  addFigures,
  addProcesses,
  conclude,
  done,
  inWords,
  type Measured,
  measure,
  noted,
  open,
  type Resources,
  type Run,
  resultOf,
  watch,
} from "./bench.js";
import type { Work } from "./fleet.js";
import { openFilesMax } from "./machine.js";
import { FAN_OUT_BYTES, FAN_OUT_BYTES_MIN, TRADE_BYTES } from "./payload.js";
import { type Format, share, type TestName } from "./plan.js";
import { known, type Result } from "./result.js";
import type { Evidence } from "./verdict.js";

const SIZES = [64, 256, 1024, 4096, 16_384, 65_536];
const FORMATS: readonly Format[] = ["json", "msgpack"];
/** How long new connections are held before they are asked whether they live. */
const SETTLE_S = 0.25;
/** Ticks of 10 ms say nothing about a shorter test. */
const SHARE_MEANINGFUL_S = 0.2;
/** Publications in flight hold at most this. */
const FAN_OUT_AHEAD_BYTES = 64 * 1024;
/** From this many subscribers on there is a run at a fixed rate too. */
const FAN_OUT_RATES: readonly (readonly [subscribers: number, perS: number])[] = [
  [10_000, 20],
  [1000, 100],
];
/** Files that a process of the generator has open beside its connections. */
const OTHER_FILES = 64;

/** How many connections the open files of N processes allow. */
export function connectionsRoom(processes: number): number {
  const each = openFilesMax() - OTHER_FILES;
  return Number.isFinite(each) ? Math.max(1, each) * processes : 1_000_000;
}

/** Runs one test with N connections and keeps its results. */
export async function runTest(run: Run, test: TestName, connections: number): Promise<void> {
  run.say(`${test}, ${connections} connections`);
  const leavesMemory = !["connection-storm", "sustained-hold", "connect-latency"].includes(test);
  if (leavesMemory) run.server.isLoaded = true;
  const room = connectionsRoom(run.plan.processes);
  if (test !== "connection-limit" && connections > room) {
    done(run, impossible(test, connections, room));
    return;
  }
  await CASES[test](run, connections);
  await run.fleet.close();
}

/** The result of a test that this machine has too few open files for. */
function impossible(test: TestName, connections: number, room: number): Result {
  const note = `${connections} connections need more open files than the ${room} that the generator may have: raise \`ulimit -n\`, or use --processes.`;
  return { test, connections, verdict: "failed", doubts: ["connections_impossible"], notes: [note] };
}

function workOf(run: Run, kind: Work["kind"], changes: Partial<Work> = {}): Work {
  const { plan } = run;
  return {
    kind,
    durationS: plan.durationS,
    size: TRADE_BYTES,
    format: "json",
    isPrepared: plan.isPrepared,
    ratePerS: undefined,
    inFlight: 1,
    pings: plan.pings,
    everyS: plan.holdPingEveryS,
    seed: plan.seed,
    ...changes,
  };
}

function survive(run: Run): Promise<Measured> {
  return measure(run, workOf(run, "survive", { durationS: SETTLE_S }));
}

/** How many connections a second become ready and live to the end of the test. */
async function connectionStorm(run: Run, connections: number): Promise<void> {
  const { processes } = run.plan;
  let alone: number | undefined;
  if (processes > 1) {
    const first = await open(run, share(connections, processes, 0), 1);
    alone = first.connected / Math.max(1e-9, durationS(first));
    await run.fleet.close();
  }
  const watched = watch(run);
  const parts = await run.fleet.open(connections);
  const resources = watched();
  const opened = noted(run, parts);
  const held = await survive(run);
  const result = opening(
    run,
    "connection-storm",
    connections,
    opened,
    resources,
    sumOf(held.counts.broken),
    "saturate",
  );
  if (sumOf(held.counts.broken) > 0) {
    const words = inWords(held.counts.broken);
    result.notes.push(`Connections that broke after they had become ready: ${words}.`);
  }
  const rss = run.server.sample()?.rssBytes;
  if (rss !== undefined) result.memory = run.server.idleMemory(rss, result.connected ?? 0);
  if (processes > 1) {
    const seconds = Math.max(1e-9, durationS(opened));
    const rates = parts.map((part) => part.connected / seconds);
    addProcesses(result, rates, alone);
  }
  done(run, result);
}

/** From connect to ready, one connection after another in one process. */
async function connectLatency(run: Run): Promise<void> {
  const watched = watch(run);
  const opened = await run.fleet.reconnect(run.plan.rounds);
  run.serverName ??= opened.server;
  const result = opening(run, "connect-latency", 1, opened, watched(), 0, "keep");
  // This many were open one after another.
  delete result.connected;
  result.notes.push(`${opened.attempted} rounds, one connection at a time.`);
  done(run, result);
}

/** The result of a test that opens connections, of which some broke after they had been opened. */
function opening(
  run: Run,
  test: TestName,
  connections: number,
  opened: Opened,
  resources: Resources,
  broken: number,
  aim: "saturate" | "keep",
): Result {
  const result = resultOf(test, connections, opened);
  const living = opened.connected - broken;
  const seconds = durationS(opened);
  result.connected = living;
  result.failed = opened.attempted - living;
  result.duration_s = seconds;
  if (living > 0 && seconds > 0) result.rate_per_s = living / seconds;
  const latency = merged([opened.latencies]).summary("sent");
  if (latency !== undefined) result.latency_us = latency;
  const rss = run.server.sample()?.rssBytes;
  if (rss !== undefined) result.memory = { server_rss_bytes: rss };
  const evidence: Evidence = {
    aim: seconds >= SHARE_MEANINGFUL_S ? aim : "keep",
    sends: false,
    offered: 0,
    confirmed: 0,
    delivered: undefined,
    refused: undefined,
    refusedBy: {},
    connectionsAttempted: opened.attempted,
    connectionsFailed: result.failed,
    pings: 0,
    pongsLost: 0,
    pongsStrange: 0,
    wrong: 0,
    gaps: 0,
    duplicates: 0,
    isUnheard: false,
    countersError: undefined,
    pace: undefined,
    waitedForOthersS: resources.waitedForOthersS(opened.used),
    lateP99Us: undefined,
    latencyP99Us: latency?.p99,
    usage: resources.usage(seconds, opened.used),
    windows: [],
  };
  conclude(result, evidence, opened.used);
  return result;
}

/** Round trips of pings from all connections at once. */
async function pingLatency(run: Run, connections: number): Promise<void> {
  const opened = await open(run, connections);
  const measured = await measure(run, workOf(run, "ping"));
  const result = resultOf("ping-latency", connections, opened);
  addFigures(result, opened, measured, "round_trips");
  addRoundTrips(result, measured);
  done(run, result);
}

/** The rate of a test whose pings are its measurement. */
function addRoundTrips(result: Result, measured: Measured): void {
  const trips = result.latency_us?.count ?? 0;
  const seconds = durationS(measured.counts);
  if (trips > 0 && seconds > 0) result.rate_per_s = trips / seconds;
}

/** A message to send. */
interface Variation {
  size: number;
  format: Format;
}

/** Messages as fast as the server takes them, or at the given rate. */
async function throughput(run: Run, connections: number): Promise<void> {
  await sendEach(run, "throughput", connections, [{ size: TRADE_BYTES, format: "json" }]);
}

/** Messages of several sizes, all on the same connections. */
async function sizeMatrix(run: Run, connections: number): Promise<void> {
  const sizes = run.plan.payloadBytes.length > 0 ? run.plan.payloadBytes : SIZES;
  const variations = sizes.map((size): Variation => ({ size, format: "json" }));
  await sendEach(run, "size-matrix", connections, variations);
}

/** The same message as JSON and as MessagePack. */
async function formatComparison(run: Run, connections: number): Promise<void> {
  const variations = FORMATS.map((format): Variation => ({ size: TRADE_BYTES, format }));
  await sendEach(run, "format-comparison", connections, variations);
}

/** A measurement for each message; with several processes also of what one does with its share of the connections. */
async function sendEach(
  run: Run,
  test: TestName,
  connections: number,
  variations: readonly Variation[],
): Promise<void> {
  const { plan } = run;
  const kind = plan.ratePerS === undefined ? "send" : "paced";
  const works = variations.map((variation) => workOf(run, kind, { ...variation, ratePerS: plan.ratePerS }));
  const alone = plan.processes > 1 && kind === "send" ? await ratesAlone(run, connections, works) : [];
  const opened = await open(run, connections);
  let jsonRate: number | undefined;
  for (const [index, work] of works.entries()) {
    const measured = await measure(run, work);
    const result = resultOf(test, connections, opened);
    addFigures(result, opened, measured, kind === "send" ? "saturate" : "keep");
    describe(result, work.size, work.format);
    if (plan.isPrepared) {
      result.notes.push("Each message was encoded once, before the test, and not made for each send.");
    }
    if (test === "format-comparison" && result.rate_per_s !== undefined) {
      jsonRate ??= result.rate_per_s;
      result.ratio_to_json = result.rate_per_s / jsonRate;
    }
    if (plan.processes > 1) {
      const seconds = Math.max(1e-9, result.duration_s ?? 0);
      const rates = measured.parts.map((part) => part.confirmed / seconds);
      addProcesses(result, rates, alone[index]);
    }
    done(run, result);
  }
}

/** The work of one process with its share of the connections, for each kind of message. */
async function ratesAlone(run: Run, connections: number, works: readonly Work[]): Promise<number[]> {
  await open(run, share(connections, run.plan.processes, 0), 1);
  const rates: number[] = [];
  for (const work of works) {
    const { counts } = await measure(run, work, 1);
    rates.push(counts.confirmed / Math.max(work.durationS, durationS(counts)));
  }
  await run.fleet.close();
  return rates;
}

/** Adds what the messages were. */
function describe(result: Result, size: number, format: Format): void {
  result.format = format;
  result.payload_bytes = size;
  if (result.rate_per_s !== undefined) result.bytes_per_s = result.rate_per_s * size;
}

/** Connections held for a while, with a slow ping on each. */
async function sustainedHold(run: Run, connections: number): Promise<void> {
  const opened = await open(run, connections);
  const before = run.server.sample()?.rssBytes;
  const measured = await measure(run, workOf(run, "hold", { durationS: run.plan.holdS }));
  const result = resultOf("sustained-hold", connections, opened);
  const { members, broken } = measured.counts;
  const after = measured.resources.serverRssBytes;
  if (before !== undefined && after !== undefined) {
    result.memory = { ...run.server.idleMemory(after, members), drift_bytes: after - before };
  }
  addFigures(result, opened, measured, "keep");
  addRoundTrips(result, measured);
  const survived = Math.max(0, members - sumOf(broken));
  result.survival = { survived, percent: (100 * survived) / Math.max(1, opened.connected) };
  done(run, result);
}

/** Doubles until it fails, then bisects: the largest number that was opened without a failure. */
async function connectionLimit(run: Run, connections: number): Promise<void> {
  const { plan } = run;
  const room = connectionsRoom(plan.processes);
  const most = Math.min(plan.connectionsMax, room);
  let stoppedBy = plan.connectionsMax <= room ? "plan" : "open_files";
  let stable = 0;
  let failing = most + 1;
  let wanted = Math.min(connections, most);
  let duration: number | undefined;
  let reason: string | undefined;
  while (wanted > stable) {
    const began = await open(run, wanted);
    const held = began.connected === wanted ? await survive(run) : undefined;
    const isAlive = held !== undefined && sumOf(held.counts.broken) === 0 && held.counts.pongsLost === 0;
    await run.fleet.close();
    run.say(`  ${wanted}: ${isAlive ? "stable" : "failed"}`);
    if (isAlive) {
      stable = wanted;
      duration = durationS(began);
    } else {
      failing = wanted;
      stoppedBy = stopping(began);
      reason = inWords(began.failures) || "connections broke after they were opened";
    }
    wanted = failing > most ? Math.min(stable * 2, most) : Math.floor((stable + failing) / 2);
    if (failing <= most && failing - stable <= Math.max(1, Math.floor(stable / 50))) break;
  }
  done(run, {
    test: "connection-limit",
    connections: stable,
    ...known({ duration_s: duration }),
    limit: { largest_stable: stable, stopped_by: stoppedBy },
    bottleneck: "none",
    verdict: stable > 0 ? "valid" : "failed",
    ...(stable > 0 ? {} : { doubts: ["connections_failed"] }),
    notes: reason === undefined ? [] : [`The next number failed: ${reason}.`],
  });
}

/** The reasons that stopped the search, as connections gave them. */
function stopping(opened: Opened): string {
  const text = Object.keys(opened.failures).join(" ");
  if (/EMFILE|ENFILE/.test(text)) return "open_files";
  if (/EADDRNOTAVAIL/.test(text)) return "ports";
  return /ENOMEM|ENOBUFS/.test(text) ? "memory" : "server";
}

/** One publisher, many subscribers of one topic: at full speed, and with many also at a fixed rate. */
async function fanOut(run: Run, connections: number): Promise<void> {
  const { plan } = run;
  const opened = await open(run, connections + 1);
  await run.fleet.subscribe();
  const rates: (number | undefined)[] = [plan.ratePerS];
  if (plan.ratePerS === undefined) {
    const fixed = FAN_OUT_RATES.find(([subscribers]) => connections >= subscribers);
    if (fixed !== undefined) rates.push(fixed[1]);
  }
  for (const asked of plan.payloadBytes.length > 0 ? plan.payloadBytes : [FAN_OUT_BYTES]) {
    for (const ratePerS of rates) {
      await published(run, connections, opened, Math.max(asked, FAN_OUT_BYTES_MIN), ratePerS);
    }
  }
}

/** One measurement of a fan-out. */
async function published(
  run: Run,
  connections: number,
  opened: Opened,
  size: number,
  ratePerS: number | undefined,
): Promise<void> {
  const inFlight = run.plan.inFlight ?? Math.max(1, Math.floor(FAN_OUT_AHEAD_BYTES / size));
  const measured = await measure(run, workOf(run, "fan-out", { size, ratePerS, inFlight }));
  const { counts } = measured;
  counts.offered = counts.publications * counts.members;
  if (counts.publications === 0) counts.offered = 0;
  const result = resultOf("fan-out", connections, opened);
  addFigures(result, opened, measured, ratePerS === undefined ? "saturate" : "keep");
  const skews = merged([]);
  for (const [first, last] of Object.values(counts.received)) skews.record(Math.max(1, last - first));
  result.fan_out = known({
    publications: counts.publications,
    gaps: counts.gaps,
    duplicates: counts.duplicates,
    wrong: counts.wrong,
    in_flight: ratePerS === undefined ? inFlight : undefined,
    publications_per_s: ratePerS,
    skew_us: connections > 1 ? skews.summary("first_received") : undefined,
  });
  describe(result, size, "json");
  done(run, result);
}

const CASES: Record<TestName, (run: Run, connections: number) => Promise<void>> = {
  "connection-storm": connectionStorm,
  "connect-latency": connectLatency,
  "ping-latency": pingLatency,
  throughput,
  "size-matrix": sizeMatrix,
  "format-comparison": formatComparison,
  "sustained-hold": sustainedHold,
  "connection-limit": connectionLimit,
  "fan-out": fanOut,
};
