/** An order to run, and its results. */

import { clockNs, NS_PER_S } from "./clock.js";
import type { Begin, Run } from "./contract.js";
import { Counts } from "./counts.js";
import { Messages, type Sendable } from "./payload.js";
import type { Session } from "./session.js";

/** Messages in flight between two confirming pings if the order contains no number. */
const ANSWERED_MIN = 256;

/** An activity of all connections of this worker. */
export class Activity {
  readonly counts = new Counts();
  readonly order: Run;
  readonly terms: Begin;
  /** The first of this worker's connections, counted over all, and how many there are in all. */
  readonly number: number;
  readonly connections: number;
  readonly #messages: Messages | undefined;
  readonly #sleepers = new Set<() => void>();
  #isStopped = false;
  /** Ends it at once. */
  abandon: () => void = () => {};

  constructor(order: Run, terms: Begin, isPrepared: boolean) {
    this.order = order;
    this.terms = terms;
    this.number = order.members.slice(0, order.index).reduce((sum, count) => sum + count, 0);
    this.connections = order.members.reduce((sum, count) => sum + count, 0);
    const { counts } = this;
    counts.beganNs = order.begin_ns + terms.zero_clock_ns;
    if (order.longest_ms !== undefined) counts.endNs = counts.beganNs + order.longest_ms * 1e6;
    counts.answered = order.activity === "window" || order.replies === true;
    if (order.message !== undefined) {
      // More messages than are in flight: a reply then differs from the reply to the same message of the next
      // lap.
      const least = counts.answered ? 2 * (order.in_flight ?? ANSWERED_MIN) : 0;
      this.#messages = new Messages(order.message, terms.seed, least, isPrepared && !counts.answered);
    }
  }

  get isOver(): boolean {
    return clockNs() >= this.counts.endNs;
  }

  /** The number of messages or pings of each connection; infinity without a limit. */
  get perConnection(): number {
    return this.order.per_connection ?? Number.POSITIVE_INFINITY;
  }

  /** Ends it early, as if its time were over. */
  stop(): void {
    this.counts.endNs = Math.min(this.counts.endNs, clockNs());
    this.#isStopped = true;
    for (const wake of this.#sleepers) wake();
  }

  /** Waits until a time of the clock, or until the activity is stopped. */
  sleepUntil(ns: number): Promise<void> {
    const waitMs = (ns - clockNs()) / 1e6;
    if (waitMs <= 0 || this.#isStopped) return Promise.resolve();
    return new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        this.#sleepers.delete(wake);
        resolve();
      };
      const timer = setTimeout(wake, waitMs);
      this.#sleepers.add(wake);
    });
  }

  /** What gives the next message of a connection. */
  stream(index: number): () => Sendable {
    if (this.#messages === undefined) throw new Error("an activity that sends has no messages");
    return this.#messages.stream((this.number + index) * 37);
  }

  /** The events of a connection in any activity. */
  events(): Session["events"] {
    const { counts } = this;
    return {
      onRefused: (code, messages) => counts.refuse(code, messages),
      onBroken: (reason) => counts.broken.add(reason),
      onStrangePong: () => {
        counts.pongsStrange += 1;
      },
    };
  }

  /** A ping that proves that the server has read everything before; when it was answered, if it was. */
  async confirmed(session: Session): Promise<number | undefined> {
    this.counts.pings += 1;
    const answeredNs = await session.ping();
    if (answeredNs === undefined) this.counts.pongsLost += 1;
    return answeredNs;
  }

  /** How a given rate was kept, of `offered` messages, in the form of the contract. */
  paceKept(stoppedNs: number, offered: number): object | null {
    const { counts, order } = this;
    const offeredS = Math.max(0, counts.offeredAtNs - counts.beganNs) / NS_PER_S;
    if (order.per_s === undefined) return null;
    return {
      planned_per_s: order.per_s,
      poisson: order.poisson === true,
      planned: counts.planned,
      released: offered,
      offered,
      window_s: (stoppedNs - counts.beganNs) / NS_PER_S,
      released_s: offeredS,
      offered_s: offeredS,
    };
  }
}
