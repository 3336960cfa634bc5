/** What the connections of this worker have done. Times are nanoseconds of the clock. */

import { NS_PER_S } from "./clock.js";
import { Histogram } from "./histogram.js";

/** How many parts a second has in which events are counted. */
const WINDOWS_PER_S = 4;
const NOTES_MAX = 3;

/** The kinds of failures that the contract names, with the words of a reason that identify each kind. */
const KINDS: readonly [kind: string, words: RegExp][] = [
  ["refused", /ECONNREFUSED/],
  ["connect-timeout", /ETIMEDOUT|timed out|timeout/i],
  ["open-files", /EMFILE|ENFILE/],
  ["no-port", /EADDRNOTAVAIL/],
  ["unreachable", /EHOSTUNREACH|ENETUNREACH/],
  ["no-deflate", /permessage-deflate/],
  ["tls", /certificate|tls|ssl/i],
  ["reset", /ECONNRESET|EPIPE/],
];

/** Failed connections, by kind, and the first few reasons in words. */
export class Failures {
  readonly #counts = new Map<string, { kind: string; code?: number; count: number }>();
  readonly notes: string[] = [];

  add(reason: string): void {
    const closed = /closed with ([0-9]{4})/.exec(reason)?.[1];
    const status = /(?:HTTP|status|refused the connection:) ([1-5][0-9]{2})\b/.exec(reason)?.[1];
    if (closed !== undefined && closed !== "1006") this.addKind("closed", Number(closed));
    else if (status !== undefined) this.addKind("unexpected-status", Number(status));
    else this.addKind(KINDS.find(([, words]) => words.test(reason))?.[0] ?? (closed ? "closed" : "other"));
    const note = `A connection failed: ${reason}`.slice(0, 200);
    if (this.notes.length < NOTES_MAX && !this.notes.includes(note)) this.notes.push(note);
  }

  addKind(kind: string, code?: number): void {
    const known = this.#counts.get(`${kind} ${code}`) ?? {
      kind,
      ...(code === undefined ? {} : { code }),
      count: 0,
    };
    known.count += 1;
    this.#counts.set(`${kind} ${code}`, known);
  }

  get total(): number {
    return this.figures().reduce((sum, { count }) => sum + count, 0);
  }

  figures(): { kind: string; code?: number; count: number }[] {
    return [...this.#counts.values()];
  }
}

/** Connections that were opened. */
export class Opened {
  attempted = 0;
  connected = 0;
  readonly failures = new Failures();
  readonly latency = new Histogram();
  beganNs: number | undefined;
  endedNs: number | undefined;
  interrupted = false;
  untried = 0;
  version: string | undefined;

  /** The outcome in the form of the contract, without times. */
  figures(): object {
    const { attempted, connected, interrupted, untried, version } = this;
    return {
      attempted,
      connected,
      failures: this.failures.figures(),
      latency: this.latency.buckets(),
      interrupted,
      untried,
      facts: version === undefined ? {} : { version },
      notes: this.failures.notes,
    };
  }
}

/** The faults of replies. */
export type ReplyFault = "missing" | "doubled" | "reordered" | "wrong";

/** The actions of an activity and their results. */
export class Counts {
  beganNs = 0;
  /** When nothing more is sent: as planned, or earlier. */
  endNs = Number.POSITIVE_INFINITY;
  firstConfirmedNs = 0;
  lastConfirmedNs = 0;
  members = 0;
  offered = 0;
  confirmed = 0;
  pings = 0;
  pongs = 0;
  pongsLost = 0;
  pongsStrange = 0;
  unsolicited = 0;
  answered = false;
  unconfirmedBytesMax = 0;
  /** Messages that were due in the time of the test, if they were planned. */
  planned = 0;
  offeredAtNs = 0;
  readonly refused: Record<string, number> = {};
  readonly broken = new Failures();
  readonly brokenBefore = new Failures();
  readonly replies: Record<ReplyFault, number> = { missing: 0, doubled: 0, reordered: 0, wrong: 0 };
  /** From when a message was due, or sent if it was not planned. */
  readonly latency = new Histogram();
  /** From when it was sent, if it was planned. */
  readonly latencySent = new Histogram();
  /** From when a message was due until it was sent, if it was planned. */
  readonly late = new Histogram();
  readonly #windows: number[] = [];
  fanOut: object | undefined;

  refuse(code: string, messages: number): void {
    this.refused[code] = (this.refused[code] ?? 0) + messages;
  }

  /** Counts messages that the other end has accounted for. */
  confirm(messages: number, nowNs: number): void {
    this.confirmed += messages;
    this.count(messages, nowNs);
  }

  /** Counts what the test's rate counts, at its time. */
  count(events: number, nowNs: number): void {
    if (events === 0) return;
    if (nowNs < this.endNs) {
      const window = Math.max(0, Math.floor(((nowNs - this.beganNs) / NS_PER_S) * WINDOWS_PER_S));
      this.#windows[window] = (this.#windows[window] ?? 0) + events;
    }
    this.lastConfirmedNs = Math.max(this.lastConfirmedNs, nowNs);
    if (this.firstConfirmedNs === 0) this.firstConfirmedNs = nowNs;
  }

  /** A message has left. */
  offer(): void {
    this.offered += 1;
  }

  /** The outcome in the form of the contract, without times; the windows are those that were over at a time. */
  figures(stoppedNs: number): object {
    const whole = Math.max(0, Math.floor(((stoppedNs - this.beganNs) / NS_PER_S) * WINDOWS_PER_S + 1e-6));
    return {
      answered: this.answered,
      unconfirmed_bytes_max: this.unconfirmedBytesMax,
      members: this.members,
      broken: this.broken.figures(),
      broken_before: this.brokenBefore.figures(),
      offered: this.offered,
      confirmed: this.confirmed,
      replies: this.replies,
      refused: this.refused,
      pings_sent: this.pings,
      pongs: this.pongs,
      pongs_lost: this.pongsLost,
      pongs_strange: this.pongsStrange,
      unsolicited: this.unsolicited,
      latency: this.latency.buckets(),
      latency_sent: this.latencySent.buckets(),
      late: this.late.buckets(),
      windows: Array.from({ length: whole }, (_, index) => this.#windows[index] ?? 0),
      fan_out: this.fanOut ?? null,
      notes: this.broken.notes,
    };
  }
}
