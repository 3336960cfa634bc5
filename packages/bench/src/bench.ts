/** Shared parts of all tests: processes with connections, a server that is watched, results that are assessed. */

import {
  type Counts,
  durationS,
  merged,
  type Opened,
  openedTogether,
  perSecond,
  sumOf,
  type Tally,
  together,
  type Used,
  wholeWindows,
} from "./account.js";
import { unconfirmedBytesMax } from "./activities.js";
import type { Counters } from "./counters.js";
import type { Fleet, Work } from "./fleet.js";
import { busiestBetween, coresBusyS, coresOf, type Sample, sample } from "./machine.js";
import { grouped } from "./number.js";
import type { Plan, Target } from "./plan.js";
import { known, type Processes, type Result } from "./result.js";
import type { Server } from "./server.js";
import { bottleneckOf, clientShare, serverShare, type Usage } from "./usage.js";
import { type Aim, type Evidence, judge, type PaceKept, RATE_LIMIT } from "./verdict.js";

/** Ticks of 10 ms say nothing about a test that is over in a few of them. */
const SHARE_MEANINGFUL_S = 0.2;

/** A run. */
export interface Run {
  readonly plan: Plan;
  readonly target: Target;
  readonly fleet: Fleet;
  readonly server: Server;
  readonly results: Result[];
  serverName: string | undefined;
  say(words: string): void;
}

/** An activity, and what the server says about it. */
export interface Measured {
  work: Work;
  counts: Counts;
  /** The counts of each process. */
  parts: Counts[];
  counters: Counters | undefined;
  countersError: string | undefined;
  resources: Resources;
}

/** Processor time and memory of both sides while something was done. */
export interface Resources {
  usage: (durationS: number, used: Used) => Usage;
  waitedForOthersS: (used: Used) => number | undefined;
  serverRssBytes: number | undefined;
}

/** Opens connections for a test. */
export async function open(run: Run, connections: number, parts?: number): Promise<Opened> {
  return noted(run, await run.fleet.open(connections, parts));
}

/** The connections that all processes have opened together; keeps the facts about the server that they show. */
export function noted(run: Run, parts: readonly Opened[]): Opened {
  const opened = openedTogether(parts);
  run.server.connectedMost = Math.max(run.server.connectedMost, opened.connected);
  run.serverName ??= opened.server;
  return opened;
}

/** A result with what every test on these connections reports. */
export function resultOf(test: string, connections: number, opened: Opened): Result {
  const notes: string[] = [];
  if (sumOf(opened.failures) > 0) {
    notes.push(`Connections that could not be opened: ${inWords(opened.failures)}.`);
  }
  const failed = opened.attempted - opened.connected;
  return { test, connections, connected: opened.connected, failed, verdict: "failed", notes };
}

/** Runs an activity, with what the server has used and counted meanwhile. */
export async function measure(run: Run, work: Work, parts?: number): Promise<Measured> {
  let before: Counters | undefined;
  let countersError: string | undefined;
  try {
    before = await run.server.counters();
  } catch (error) {
    countersError = wordsOf(error);
  }
  const watched = watch(run);
  const all = await run.fleet.run(work, parts);
  const resources = watched();
  const counts = together(all);
  let counters: Counters | undefined;
  if (before !== undefined) {
    const isFanOut = work.kind === "fan-out";
    try {
      counters = await run.server.countersSince(before, (now) =>
        isFanOut
          ? (now.deliveries ?? 0) >= counts.confirmed
          : now.delivered + sumOf(now.refusedBy) >= counts.offered,
      );
    } catch (error) {
      countersError = wordsOf(error);
    }
  }
  return { work, counts, parts: all, counters, countersError, resources };
}

/** Watches both sides until the function that is returned is called. */
export function watch(run: Run): () => Resources {
  const cores = coresOf("self");
  const pids = [process.pid, ...run.fleet.pids];
  const before = moment(run.server.sample(), cores, pids);
  return () => {
    const after = moment(run.server.sample(), cores, pids);
    const theirs = run.server.cores();
    const sharedCores = [...theirs].filter((core) => cores.has(core)).length;
    const serverS =
      after.server && before.server ? Math.max(0, after.server.cpuS - before.server.cpuS) : undefined;
    const usage = (seconds: number, used: Used): Usage => {
      const isSeen = serverS !== undefined && seconds >= SHARE_MEANINGFUL_S;
      return {
        durationS: seconds,
        client: { busiestS: used.busiestS, totalS: used.cpuS, cores: cores.size },
        server: isSeen
          ? {
              busiestS: busiestBetween(before.server!.threads, after.server!.threads),
              totalS: serverS,
              cores: theirs.size,
            }
          : undefined,
        sharedCores: isSeen ? sharedCores : 0,
      };
    };
    const waitedForOthersS = (used: Used): number | undefined => {
      if (before.busyS === undefined || after.busyS === undefined) return undefined;
      const ownS = after.ownS - before.ownS;
      const onShared = theirs.size > 0 ? ((serverS ?? 0) * sharedCores) / theirs.size : 0;
      const othersS = Math.max(0, after.busyS - before.busyS - ownS - onShared);
      // Whoever works on the generator's cores makes its busiest thread wait.
      const rivalsS = othersS + onShared + Math.max(0, ownS - used.busiestS);
      return rivalsS > 0 ? (used.waitedS * othersS) / rivalsS : 0;
    };
    return { usage, waitedForOthersS, serverRssBytes: after.server?.rssBytes };
  };
}

interface Moment {
  server: Sample | undefined;
  busyS: number | undefined;
  ownS: number;
}

function moment(server: Sample | undefined, cores: ReadonlySet<number>, pids: number[]): Moment {
  return { server, busyS: coresBusyS(cores), ownS: sample(pids)?.cpuS ?? 0 };
}

/** Adds the figures of an activity, and the verdict over it. */
export function addFigures(result: Result, opened: Opened, measured: Measured, aim: Aim): void {
  const { counts, counters, work } = measured;
  const sends = work.kind === "send" || work.kind === "paced" || work.kind === "fan-out";
  const refusedBy = refusals(measured);
  const told =
    work.kind === "fan-out"
      ? undefined
      : counters
        ? sumOf(counters.refusedBy)
        : sumOf(counts.errors) || undefined;
  // A pong proves that refused messages were read as well.
  const confirmed = Math.max(0, counts.confirmed - (work.kind === "fan-out" ? 0 : (told ?? 0)));
  const delivered = work.kind === "fan-out" ? counters?.deliveries : counters?.delivered;
  const failed = opened.attempted - opened.connected + sumOf(counts.broken);
  result.failed = failed;
  result.duration_s = Math.max(work.kind === "ping" ? 0 : work.durationS, durationS(counts));
  if (counts.offered > 0) {
    const lost = Math.max(0, counts.offered - confirmed - (told ?? 0));
    result.messages = known({ offered: counts.offered, confirmed, delivered, refused: told, lost }) as Record<
      string,
      number
    >;
    const counted = Math.min(confirmed, delivered ?? confirmed);
    const rateS = rateSeconds(measured, result.duration_s);
    if (counted > 0 && rateS > 0) result.rate_per_s = counted / rateS;
    const series = perSecond(counts);
    if (!told && series.length > 0) result.rate_series = series;
    if (Object.keys(refusedBy).length > 0) result.refused_by = refusedBy;
    result.wire_bytes = work.kind === "fan-out" ? work.size : counts.wireBytes / counts.offered;
    result.confirmed_by = [work.kind === "fan-out" ? "reply" : "pong", ...(counters ? ["counters"] : [])];
  } else if (!sends) {
    result.confirmed_by = ["pong"];
  }
  const latency = merged([counts.latencies]).summary(work.ratePerS === undefined ? "sent" : "intended");
  if (latency !== undefined) result.latency_us = latency;
  if (sends) result.pace = writtenPace(measured);
  const evidence: Evidence = {
    aim,
    sends,
    offered: counts.offered,
    confirmed,
    delivered: sends ? delivered : undefined,
    refused: told,
    refusedBy,
    connectionsAttempted: opened.attempted,
    connectionsFailed: failed,
    pings: counts.pings,
    pongsLost: counts.pongsLost,
    pongsStrange: counts.pongsStrange,
    wrong: counts.wrong,
    gaps: counts.gaps,
    duplicates: counts.duplicates,
    isUnheard: counts.publications > 0 && counts.confirmed === 0,
    countersError: measured.countersError,
    pace: keptPace(measured),
    waitedForOthersS: measured.resources.waitedForOthersS(counts.used),
    lateP99Us: merged([counts.late]).summary("intended")?.p99,
    latencyP99Us: latency?.p99,
    usage: measured.resources.usage(result.duration_s, counts.used),
    windows: wholeWindows(counts),
  };
  conclude(result, evidence, counts.used, counts);
  if (measured.resources.serverRssBytes !== undefined) {
    result.memory ??= { server_rss_bytes: measured.resources.serverRssBytes };
  }
  if (sumOf(counts.broken) > 0) {
    result.notes.push(`Connections that broke during the test: ${inWords(counts.broken)}.`);
  }
}

/** Adds the verdict, and what it rests on. */
export function conclude(result: Result, evidence: Evidence, used: Used, counts?: Counts): void {
  const judged = judge(evidence);
  const { usage } = evidence;
  result.verdict = judged.verdict;
  result.bottleneck = bottleneckOf(usage);
  if (judged.doubts.length > 0) result.doubts = judged.doubts;
  result.notes.push(...judged.notes);
  const server = usage.server;
  result.cpu = known({
    client_s: used.cpuS,
    client_share: clientShare(usage),
    client_cores: usage.client.cores,
    server_s: server?.totalS,
    server_share: serverShare(usage),
    server_cores: server?.cores,
    shared_cores: usage.sharedCores || undefined,
  }) as Record<string, number>;
  const late = counts === undefined ? undefined : merged([counts.late]).summary("intended");
  result.generator = known({
    waited_s: used.waitedS,
    waited_for_others_s: evidence.waitedForOthersS,
    stopped_s: 0,
    late_us: late && { p50: late.p50, p99: late.p99, p99_9: late.p99_9, max: late.max, count: late.count },
  });
  if (evidence.pings > 0) {
    result.pings = { sent: evidence.pings, lost: evidence.pongsLost, strange: evidence.pongsStrange };
  }
}

/** Keeps a result and shows it. */
export function done(run: Run, result: Result): void {
  run.results.push(result);
  const rate = result.rate_per_s === undefined ? "" : `${grouped(result.rate_per_s)}/s, `;
  const latency = result.latency_us === undefined ? "" : `p50 ${grouped(result.latency_us.p50)} µs, `;
  run.say(`  ${result.connections} connections: ${rate}${latency}${result.verdict}`);
}

/** How the rate is divided among the processes, in the report and in a note. */
export function addProcesses(result: Result, ratesPerS: number[], alonePerS: number | undefined): void {
  const count = ratesPerS.length;
  const sum = ratesPerS.reduce((total, rate) => total + rate, 0);
  const processes: Processes = { count, rates_per_s: ratesPerS, mean_per_s: sum / count };
  let note = `${count} processes: ${grouped(sum / count)}/s each in the mean, ${grouped(sum)}/s together`;
  if (alonePerS !== undefined && alonePerS > 0) {
    processes.alone_per_s = alonePerS;
    processes.scaling_percent = (100 * sum) / (count * alonePerS);
    note += `; one alone with its share of the connections ${grouped(alonePerS)}/s: scaling ${processes.scaling_percent.toFixed(0)} %`;
  }
  result.processes = processes;
  result.notes.push(`${note}.`);
}

function refusals(measured: Measured): Tally {
  const { counts, counters, work } = measured;
  if (counts.offered === 0 || work.kind === "fan-out") return {};
  const found: Tally = { ...(counters?.refusedBy ?? { [RATE_LIMIT]: counts.errors.RATE_LIMITED ?? 0 }) };
  for (const [code, count] of Object.entries(counts.errors)) if (code !== "RATE_LIMITED") found[code] = count;
  return Object.fromEntries(Object.entries(found).filter(([, count]) => count > 0));
}

/** The seconds that a rate is over: at a given rate at least one interval for each message. */
function rateSeconds(measured: Measured, seconds: number): number {
  const { counts, work } = measured;
  if (work.ratePerS === undefined) return seconds;
  const sent = work.kind === "fan-out" ? counts.publications : counts.offered;
  return Math.max(work.durationS, sent / work.ratePerS, durationS(counts));
}

function keptPace(measured: Measured): PaceKept | undefined {
  const { counts, work } = measured;
  if (work.ratePerS === undefined) return undefined;
  return {
    plannedPerS: work.ratePerS,
    planned: counts.planned,
    offered: work.kind === "fan-out" ? counts.publications : counts.offered,
    windowS: work.durationS,
    offeredS: Math.max(0, counts.offeredAtNs - counts.beganNs) / 1e9,
  };
}

function writtenPace(measured: Measured): Record<string, string | number> {
  const { counts, work } = measured;
  const kept = keptPace(measured);
  if (kept !== undefined) {
    const spanS = Math.max(kept.windowS, kept.offeredS, kept.offered / kept.plannedPerS);
    return { loop: "open", planned_per_s: kept.plannedPerS, offered_per_s: kept.offered / spanS };
  }
  if (work.kind === "fan-out") return { loop: "closed", in_flight: work.inFlight };
  return { loop: "closed", unconfirmed_bytes_max: unconfirmedBytesMax(work.size, counts.members) };
}

/** Reasons and how often each, the most frequent first. */
export function inWords(reasons: Tally): string {
  const ranked = Object.entries(reasons).sort((one, other) => other[1] - one[1]);
  return ranked
    .slice(0, 5)
    .map(([reason, count]) => `${grouped(count)} times ${reason}`)
    .join(", ");
}

function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
