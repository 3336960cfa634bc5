/** Counts of the connections of one process, and then of all of them. */

import { NS_PER_S } from "./clock.js";
import { Histogram, type PackedHistogram } from "./histogram.js";

/** How many parts a second has in which events are counted. */
const WINDOWS_PER_S = 4;

/** How often each of some reasons was seen. */
export type Tally = Record<string, number>;

/** Adds to a count. */
export function tally(counts: Tally, name: string, times = 1): void {
  counts[name] = (counts[name] ?? 0) + times;
}

/** The sum of all counts. */
export function sumOf(counts: Tally): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** The processor time of a process. */
export interface Used {
  cpuS: number;
  /** Of the thread that was busiest. */
  busiestS: number;
  /** Of the thread that waited longest for a core. */
  waitedS: number;
}

/** Connections that were opened. Times are nanoseconds of the clock. */
export interface Opened {
  attempted: number;
  connected: number;
  failures: Tally;
  latencies: PackedHistogram;
  beganNs: number;
  endedNs: number;
  server: string | undefined;
  used: Used;
}

/** The actions and their results, in a form that travels between processes. */
export interface Counts {
  beganNs: number;
  endedNs: number;
  members: number;
  offered: number;
  confirmed: number;
  pings: number;
  pongsLost: number;
  pongsStrange: number;
  /** Messages that the server refused, by the code of its error. */
  errors: Tally;
  /** Connections that broke, by reason. */
  broken: Tally;
  wrong: number;
  gaps: number;
  duplicates: number;
  publications: number;
  windows: number[];
  latencies: PackedHistogram;
  /** From when a message was due until it was sent, if it was planned. */
  late: PackedHistogram;
  /** Messages that were due in the time of the test, if they were planned. */
  planned: number;
  /** When the last message was sent. */
  offeredAtNs: number;
  /** Bytes of the messages sent, without WebSocket's framing. */
  wireBytes: number;
  /** When some publications were first and last received, by their number. */
  received: Record<number, [firstNs: number, lastNs: number]>;
  used: Used;
}

const NOTHING: Used = { cpuS: 0, busiestS: 0, waitedS: 0 };

/** The account of one process while a test runs. */
export class Account {
  readonly latencies = new Histogram();
  readonly late = new Histogram();
  readonly counts: Counts;

  constructor(beganNs: number, members: number) {
    this.counts = { ...emptyCounts(), beganNs, endedNs: beganNs, members };
  }

  /** Counts messages that the other end has accounted for. */
  confirm(messages: number, nowNs: number): void {
    this.counts.confirmed += messages;
    this.count(messages, nowNs);
  }

  /** Counts what the test's rate counts, at its time. */
  count(events: number, nowNs: number): void {
    const { counts } = this;
    const window = Math.max(0, Math.floor(((nowNs - counts.beganNs) / NS_PER_S) * WINDOWS_PER_S));
    counts.windows[window] = (counts.windows[window] ?? 0) + events;
    counts.endedNs = Math.max(counts.endedNs, nowNs);
  }

  /** The counts with the latencies in them. */
  finish(): Counts {
    const windows = Array.from(this.counts.windows, (events) => events ?? 0);
    return { ...this.counts, windows, latencies: this.latencies.pack(), late: this.late.pack() };
  }
}

function emptyCounts(): Counts {
  return {
    beganNs: 0,
    endedNs: 0,
    members: 0,
    offered: 0,
    confirmed: 0,
    pings: 0,
    pongsLost: 0,
    pongsStrange: 0,
    errors: {},
    broken: {},
    wrong: 0,
    gaps: 0,
    duplicates: 0,
    publications: 0,
    windows: [],
    latencies: new Histogram().pack(),
    late: new Histogram().pack(),
    planned: 0,
    offeredAtNs: 0,
    wireBytes: 0,
    received: {},
    used: NOTHING,
  };
}

const SUMMED = [
  "members",
  "offered",
  "confirmed",
  "pings",
  "pongsLost",
  "pongsStrange",
  "wrong",
  "gaps",
  "duplicates",
  "publications",
  "planned",
  "wireBytes",
] as const;

/** The counts of all processes. */
export function together(parts: readonly Counts[]): Counts {
  const total = emptyCounts();
  total.beganNs = Math.min(...parts.map((part) => part.beganNs));
  for (const part of parts) {
    for (const name of SUMMED) total[name] += part[name];
    total.endedNs = Math.max(total.endedNs, part.endedNs);
    total.offeredAtNs = Math.max(total.offeredAtNs, part.offeredAtNs);
    addTally(total.errors, part.errors);
    addTally(total.broken, part.broken);
    part.windows.forEach((events, index) => {
      total.windows[index] = (total.windows[index] ?? 0) + events;
    });
    for (const [number, [first, last]] of Object.entries(part.received)) {
      const known = total.received[Number(number)] ?? [first, last];
      total.received[Number(number)] = [Math.min(known[0], first), Math.max(known[1], last)];
    }
  }
  total.windows = Array.from(total.windows, (events) => events ?? 0);
  total.latencies = merged(parts.map((part) => part.latencies)).pack();
  total.late = merged(parts.map((part) => part.late)).pack();
  total.used = usedTogether(parts.map((part) => part.used));
  return total;
}

/** The connections of all processes. */
export function openedTogether(parts: readonly Opened[]): Opened {
  const failures: Tally = {};
  for (const part of parts) addTally(failures, part.failures);
  return {
    attempted: parts.reduce((sum, part) => sum + part.attempted, 0),
    connected: parts.reduce((sum, part) => sum + part.connected, 0),
    failures,
    latencies: merged(parts.map((part) => part.latencies)).pack(),
    beganNs: Math.min(...parts.map((part) => part.beganNs)),
    endedNs: Math.max(...parts.map((part) => part.endedNs)),
    server: parts.map((part) => part.server).find((server) => server !== undefined),
    used: usedTogether(parts.map((part) => part.used)),
  };
}

/** One histogram of several. */
export function merged(parts: readonly PackedHistogram[]): Histogram {
  const histogram = new Histogram();
  for (const part of parts) histogram.add(part);
  return histogram;
}

/** The count of each quarter of a second that is over. */
export function wholeWindows(counts: Counts): number[] {
  const whole = Math.floor((durationS(counts) + 1e-9) * WINDOWS_PER_S);
  return Array.from({ length: whole }, (_, index) => counts.windows[index] ?? 0);
}

/** The count of each whole second. */
export function perSecond(counts: Counts): number[] {
  const windows = wholeWindows(counts);
  return Array.from({ length: Math.floor(windows.length / WINDOWS_PER_S) }, (_, second) =>
    windows
      .slice(second * WINDOWS_PER_S, (second + 1) * WINDOWS_PER_S)
      .reduce((sum, events) => sum + events, 0),
  );
}

/** From the start to the last counted event. */
export function durationS(counts: { beganNs: number; endedNs: number }): number {
  return Math.max(0, counts.endedNs - counts.beganNs) / NS_PER_S;
}

function addTally(total: Tally, part: Tally): void {
  for (const [name, count] of Object.entries(part)) tally(total, name, count);
}

function usedTogether(parts: readonly Used[]): Used {
  return {
    cpuS: parts.reduce((sum, part) => sum + part.cpuS, 0),
    busiestS: Math.max(0, ...parts.map((part) => part.busiestS)),
    waitedS: Math.max(0, ...parts.map((part) => part.waitedS)),
  };
}
