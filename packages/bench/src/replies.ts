/** Replies to messages, compared with the messages. They arrive in the order of the messages. */

import type { Counts } from "./counts.js";

/** Messages of one connection that are remembered as passed over. */
const PASSED_MAX = 10_000;
/** How far behind a reply is looked for among those that have been answered. */
const BEHIND = 512;

interface Sent {
  /** The payload as JSON. */
  payload: string;
  dueNs: number;
  sentNs: number;
}

/** The messages of one connection and their replies. */
export class Replies {
  readonly #counts: Counts;
  readonly #isPlanned: boolean;
  #sent: Sent[] = [];
  #first = 0;
  readonly #passed: string[] = [];

  constructor(counts: Counts, isPlanned: boolean) {
    this.#counts = counts;
    this.#isPlanned = isPlanned;
  }

  /** Messages that have no reply. */
  get waiting(): number {
    return this.#sent.length - this.#first;
  }

  sent(payload: string, dueNs: number, sentNs: number): void {
    this.#sent.push({ payload, dueNs, sentNs });
  }

  /** A reply has arrived. Returns how many messages may leave for it. */
  heard(payload: string, nowNs: number): number {
    const next = this.#sent[this.#first];
    if (next === undefined || next.payload !== payload) return this.#odd(payload, nowNs);
    this.#answered(next, nowNs);
    this.#first += 1;
    if (this.#first > 4096) {
      this.#sent = this.#sent.slice(this.#first - BEHIND);
      this.#first = BEHIND;
    }
    return 1;
  }

  /** Nothing more is awaited: what has no reply counts at its age. */
  end(nowNs: number): void {
    this.#counts.replies.missing += this.#passed.length;
    for (const sent of this.#sent.slice(this.#first)) this.#counts.latency.record(nowNs - sent.dueNs);
  }

  #answered(sent: Sent, nowNs: number): void {
    this.#counts.latency.record(nowNs - sent.dueNs);
    if (this.#isPlanned) this.#counts.latencySent.record(nowNs - sent.sentNs);
    this.#counts.confirm(1, nowNs);
  }

  #odd(payload: string, nowNs: number): number {
    const counts = this.#counts;
    const first = this.#first;
    const ahead = this.#sent.findIndex((sent, index) => index >= first && sent.payload === payload);
    if (ahead >= 0) {
      for (const sent of this.#sent.slice(first, ahead)) {
        if (this.#passed.length < PASSED_MAX) this.#passed.push(sent.payload);
      }
      this.#answered(this.#sent[ahead]!, nowNs);
      this.#first = ahead + 1;
      return 1;
    }
    const passed = this.#passed.indexOf(payload);
    if (passed >= 0) {
      this.#passed.splice(passed, 1);
      counts.replies.reordered += 1;
      counts.confirm(1, nowNs);
      return 1;
    }
    const behind = this.#sent.slice(Math.max(0, first - BEHIND), first);
    if (behind.some((sent) => sent.payload === payload)) {
      counts.replies.doubled += 1;
      return 0;
    }
    counts.replies.wrong += 1;
    if (first >= this.#sent.length) return 0;
    // It stands where the next reply should.
    this.#first += 1;
    return 1;
  }
}
