/** The fan-out: one connection publishes, the others look at every publication. */

import type { Activity } from "./activity.js";
import { clockNs } from "./clock.js";
import { say } from "./link.js";
import { Pace } from "./pace.js";
import { paddingOf, publication } from "./payload.js";
import type { Envelope, Session } from "./session.js";

export const FAN_OUT_TOPIC = "fan-out";
const TYPE = "f";
const LOOK_MS = 20;

/** Runs one measurement. */
export async function runFanOut(activity: Activity, sessions: Session[], crowd: Crowd): Promise<void> {
  const { counts, order } = activity;
  const publisher = sessions.find((session) => session.number === order.publisher);
  const subscribers = sessions.filter((session) => session !== publisher);
  crowd.begin(subscribers);
  await activity.sleepUntil(counts.beganNs);
  const publishing = publisher === undefined ? undefined : publish(activity, publisher, crowd);
  await crowd.done();
  await publishing;
  counts.fanOut = crowd.figures();
}

/** The subscribers of this worker, and how far those of the others are. */
export class Crowd {
  readonly #activity: Activity;
  #last = new Float64Array(0);
  /** How many subscribers have a publication, by its number; only those that not all have. */
  readonly #arrived = new Map<number, number>();
  /** When each milestone was first and last received, and by how many. */
  readonly #milestones: [firstNs: number, lastNs: number, passed: number][] = [];
  #subscribers = 0;
  #alive = 0;
  #slowest = 0;
  #others: number;
  #told = 0;
  #heardNs = 0;
  #total: number | undefined;
  #gaps = 0;
  #duplicates = 0;
  #wrong = 0;
  /** How many this worker has published. */
  publications = 0;
  /** Called when the slowest subscriber has more. */
  onProgress: () => void = () => {};

  constructor(activity: Activity) {
    this.#activity = activity;
    const { order, connections } = activity;
    const isAlone = connections === order.members[order.index];
    this.#others = order.publishes && !isAlone ? 0 : Number.MAX_SAFE_INTEGER;
  }

  begin(sessions: Session[]): void {
    const { counts } = this.#activity;
    this.#subscribers = sessions.length;
    this.#alive = sessions.length;
    this.#last = new Float64Array(sessions.length);
    for (const [index, session] of sessions.entries()) {
      session.events = {
        ...this.#activity.events(),
        onMessage: (message) => this.#take(index, message),
        onBroken: (reason) => {
          counts.broken.add(reason);
          this.#alive -= 1;
          this.#advance();
        },
      };
    }
  }

  /** All subscribers of the other workers have this publication. */
  progress(received: number): void {
    this.#others = received;
    this.onProgress();
  }

  /** The number of all publications is known. */
  published(publications: number): void {
    this.#total = publications;
  }

  /** What all subscribers have. */
  get slowest(): number {
    return Math.min(this.#own, this.#others);
  }

  get #own(): number {
    return this.#alive === 0 ? Number.MAX_SAFE_INTEGER : this.#slowest;
  }

  /** Resolves when all subscribers here have everything, or after a silence of `barrier_timeout_ms` past the end. */
  async done(): Promise<void> {
    this.#heardNs = clockNs();
    const { counts, terms } = this.#activity;
    const patienceNs = terms.barrier_timeout_ms * 1e6;
    for (;;) {
      if (this.#total !== undefined && this.#own >= this.#total) return;
      if (clockNs() - Math.max(this.#heardNs, counts.endNs) > patienceNs) return;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  /** The outcome in the form of the contract. */
  figures(): object {
    const zeroNs = this.#activity.terms.zero_clock_ns;
    const open = this.#milestones.findIndex(([, , passed]) => passed < this.#subscribers);
    const whole = open < 0 ? this.#milestones : this.#milestones.slice(0, open);
    return {
      subscribers: this.#subscribers,
      published: this.publications,
      gaps: this.#gaps,
      duplicates: this.#duplicates,
      wrong: this.#wrong,
      spans_ns: whole.map(([first, last]) => [Math.max(0, first - zeroNs), Math.max(0, last - zeroNs)]),
    };
  }

  #take(index: number, message: Envelope): void {
    if (message.t !== TYPE) return;
    const { counts, order, terms } = this.#activity;
    const { n, at, x } = message.p ?? {};
    if (typeof n !== "number" || typeof at !== "number" || x !== paddingOf(n, at, order.message_bytes)) {
      this.#wrong += 1;
      return;
    }
    const last = this.#last[index]!;
    if (n <= last) {
      this.#duplicates += 1;
      return;
    }
    this.#gaps += n - last - 1;
    this.#last[index] = n;
    const nowNs = clockNs();
    this.#heardNs = nowNs;
    counts.confirm(1, nowNs);
    counts.latency.record(nowNs - terms.zero_clock_ns - at * 1000);
    this.#pass(last, n, nowNs);
    for (let number = last + 1; number <= n; number += 1) {
      this.#arrived.set(number, (this.#arrived.get(number) ?? 0) + 1);
    }
    this.#advance();
  }

  /** A subscriber that had everything up to one publication has it up to another. */
  #pass(from: number, to: number, nowNs: number): void {
    const every = this.#activity.order.milestone_every;
    for (let milestone = Math.floor(from / every); milestone < Math.floor(to / every); milestone += 1) {
      while (this.#milestones.length <= milestone) this.#milestones.push([nowNs, nowNs, 0]);
      const one = this.#milestones[milestone]!;
      one[1] = nowNs;
      one[2] += 1;
    }
  }

  #advance(): void {
    const before = this.#slowest;
    for (;;) {
      const arrived = this.#arrived.get(this.#slowest + 1);
      if (arrived === undefined || arrived < this.#alive) break;
      this.#slowest += 1;
      this.#arrived.delete(this.#slowest);
    }
    if (this.#slowest === before && this.#alive > 0) return;
    const { order } = this.#activity;
    const step = Math.max(1, (order.in_flight ?? 0) >> 4);
    if (!order.publishes && this.#own - this.#told >= step) {
      this.#told = this.#own;
      say("progress", { received: this.#told });
    }
    this.onProgress();
  }
}

/** Publishes until the time is over: a few messages ahead of the slowest subscriber, or each at its due time. */
async function publish(activity: Activity, session: Session, crowd: Crowd): Promise<void> {
  const { counts, order, terms } = activity;
  session.events = activity.events();
  const publishOne = (dueNs: number) => {
    crowd.publications += 1;
    const atUs = Math.max(0, Math.floor((dueNs - terms.zero_clock_ns) / 1000));
    const payload = publication(crowd.publications, atUs, order.message_bytes);
    const request = { topic: FAN_OUT_TOPIC, type: TYPE, payload };
    session.send(JSON.stringify({ c: "WSE", t: "publish_request", p: request }));
    counts.offeredAtNs = clockNs();
  };
  if (order.per_s === undefined) {
    const fill = () => {
      const room = () => crowd.publications - crowd.slowest < (order.in_flight ?? 1);
      // Once at least: a starved process may wake when the time is over.
      while (room() && (crowd.publications === 0 || !activity.isOver) && !session.isOver)
        publishOne(clockNs());
    };
    crowd.onProgress = fill;
    fill();
    await activity.sleepUntil(counts.endNs);
    crowd.onProgress = () => {};
  } else {
    const pace = new Pace(counts.beganNs, order.per_s, 1, 0, order.poisson === true ? terms.seed : undefined);
    for (; pace.nextNs < counts.endNs && !session.isOver; pace.advance()) {
      await activity.sleepUntil(pace.nextNs);
      if (pace.nextNs >= counts.endNs) break;
      counts.planned += 1;
      counts.late.record(Math.max(1, clockNs() - pace.nextNs));
      publishOne(pace.nextNs);
    }
  }
  await activity.confirmed(session);
  crowd.published(crowd.publications);
  say("published", { publications: crowd.publications });
}
