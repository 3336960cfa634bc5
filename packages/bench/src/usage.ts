/** What this process has used, and for how long it did not run. */

import { readdirSync, readFileSync } from "node:fs";

const BEAT_MS = 20;
/** The length of a piece of the waits. */
const PIECE_NS = 50_000_000;
/** A beat is late by less than this for many reasons. */
const STOPPED_MIN_NS = 20_000_000;

let stopped = 0;
let waitsUs: number[] = [];
let observedNs = 0;

/** The time for which the process has not run although it wanted to, in nanoseconds. */
export function stoppedNs(): number {
  return stopped;
}

/** The processor time of this process, in nanoseconds. */
export function cpuNs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
}

/**
 * Beats on the event loop. A beat that is late though the process has neither worked nor waited for a core means that the
 * process was stopped.
 */
export function beginBeats(): void {
  let last = { ns: nowNs(), cpuNs: cpuNs(), waitedNs: waitedNs(process.pid) };
  let piece = last;
  setInterval(() => {
    const now = { ns: nowNs(), cpuNs: cpuNs(), waitedNs: waitedNs(process.pid) };
    const busyNs = now.cpuNs - last.cpuNs + (now.waitedNs - last.waitedNs);
    const missedNs = now.ns - last.ns - BEAT_MS * 1e6 - busyNs;
    if (missedNs >= STOPPED_MIN_NS) stopped += Math.round(missedNs);
    if (now.ns - piece.ns >= PIECE_NS) {
      observedNs += Math.round(now.ns - piece.ns);
      const waited = Math.floor((now.waitedNs - piece.waitedNs) / 1000);
      if (waited > 0) waitsUs.push(waited);
      piece = now;
    }
    last = now;
  }, BEAT_MS);
}

/** The processor time and the waits from now until the function that is returned is called, in the form of the contract. */
export function meter(): () => object {
  const cpu = cpuNs();
  const before = new Map(ofThreads());
  waitsUs = [];
  observedNs = 0;
  return () => {
    let busiest = 0;
    let waited = 0;
    for (const [thread, [used, wait]] of ofThreads()) {
      const [usedBefore, waitBefore] = before.get(thread) ?? [0, 0];
      busiest = Math.max(busiest, used - usedBefore);
      waited = Math.max(waited, wait - waitBefore);
    }
    const used = { total_ns: cpuNs() - cpu, busiest_ns: busiest, waited_ns: waited };
    return { used, waits_us: waitsUs, observed_ns: observedNs };
  };
}

function nowNs(): number {
  return performance.now() * 1e6;
}

/** How long a thread of this process was ready to run without a core. */
function waitedNs(thread: number): number {
  return scheduled(thread)?.[1] ?? 0;
}

/** The processor time of each thread, and how long it was ready to run without a core, in nanoseconds. */
function ofThreads(): [thread: number, times: [number, number]][] {
  let threads: string[];
  try {
    threads = readdirSync("/proc/self/task");
  } catch {
    return [];
  }
  return threads.map((thread) => [Number(thread), scheduled(Number(thread)) ?? [0, 0]]);
}

function scheduled(thread: number): [number, number] | undefined {
  try {
    const words = readFileSync(`/proc/self/task/${thread}/schedstat`, "latin1").split(" ");
    return [Number(words[0]), Number(words[1])];
  } catch {
    // Another system, or the thread has ended.
    return undefined;
  }
}
