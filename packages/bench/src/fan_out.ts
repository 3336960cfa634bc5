/** The fan-out: one connection publishes, the others look at every publication. */

import { type Account, tally } from "./account.js";
import { type Activity, confirmed, eventsOf } from "./activities.js";
import { clockNs, NS_PER_S, sleepUntil } from "./clock.js";
import { padOf, publication } from "./payload.js";
import type { Envelope, Session } from "./session.js";

export const TOPIC = "fan-out";
/** One of this many publications measures the skew. */
const SKEW_EVERY = 64;
const LOOK_MS = 20;

/** Messages between the processes of a fan-out. */
export interface FanOutLink {
  /** Tells the others how many publications the slowest subscriber here has. */
  tell(slowest: number): void;
  /** How many the slowest subscriber of the other processes has. */
  othersSlowest(): number;
  /** Called when that changes. */
  onOthers: () => void;
  /** Tells all processes how many publications there were. */
  finish(total: number): void;
  /** How many there were, once it is known. */
  total(): number | undefined;
}

/** Subscribes a connection; rejects if the server refuses. */
export async function subscribe(session: Session): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    session.events = {
      onMessage: (message) => {
        if (message.t !== "subscription_update") return;
        const done = message.p?.success_topics;
        if (Array.isArray(done) && done.includes(TOPIC)) resolve();
        else reject(new Error(`the server refused the subscription to ${TOPIC}`));
      },
      onRefused: (code) => reject(new Error(`the server refused the subscription to ${TOPIC}: ${code}`)),
      onBroken: (reason) => reject(new Error(`a connection broke while it subscribed: ${reason}`)),
    };
    const request = { action: "subscribe", topics: [TOPIC] };
    session.send(JSON.stringify({ c: "WSE", t: "subscription_update", cid: "1", p: request }));
  });
  session.events = {};
}

/** Runs one measurement. */
export async function runFanOut(
  activity: Activity,
  sessions: Session[],
  account: Account,
  link: FanOutLink,
): Promise<void> {
  const publisher = activity.publishes ? sessions[sessions.length - 1] : undefined;
  const subscribers = publisher === undefined ? sessions : sessions.slice(0, -1);
  account.counts.members = subscribers.length;
  const crowd = new Crowd(activity, subscribers, account, link);
  await sleepUntil(activity.beganNs);
  const publishing = publisher === undefined ? undefined : publish(activity, publisher, account, link, crowd);
  await crowd.done();
  await publishing;
}

/** The subscribers of one process. */
class Crowd {
  readonly #activity: Activity;
  readonly #account: Account;
  readonly #link: FanOutLink;
  readonly #last: Float64Array;
  /** How many subscribers have a publication, by its number; only those that not all have. */
  readonly #arrived = new Map<number, number>();
  #alive: number;
  #slowest = 0;
  #told = 0;
  #heardNs = 0;
  /** How long nothing may come before the rest counts as lost. */
  readonly #patienceNs: number;
  /** Called when the slowest subscriber has more. */
  onProgress: () => void = () => {};

  constructor(activity: Activity, sessions: Session[], account: Account, link: FanOutLink) {
    this.#activity = activity;
    this.#account = account;
    this.#link = link;
    this.#last = new Float64Array(sessions.length);
    this.#alive = sessions.length;
    this.#patienceNs = sessions[0]?.pingTimeoutNs ?? 0;
    for (const [index, session] of sessions.entries()) {
      session.events = {
        ...eventsOf(account),
        onMessage: (message) => this.#take(index, message),
        onBroken: (reason) => {
          tally(account.counts.broken, reason);
          this.#alive -= 1;
          this.#advance();
        },
      };
    }
    if (sessions.length === 0) link.tell(Number.MAX_SAFE_INTEGER);
  }

  /** How many publications the slowest subscriber has. */
  get slowest(): number {
    return this.#alive === 0 ? Number.MAX_SAFE_INTEGER : this.#slowest;
  }

  /** Resolves when all subscribers have everything, or nothing has come for long. */
  async done(): Promise<void> {
    this.#heardNs = clockNs();
    const endNs = this.#activity.beganNs + this.#activity.durationS * NS_PER_S;
    for (;;) {
      const total = this.#link.total();
      if (total !== undefined && this.slowest >= total) return;
      if (clockNs() - Math.max(this.#heardNs, endNs) > this.#patienceNs) return;
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  #take(index: number, message: Envelope): void {
    if (message.t !== "tick") return;
    const { counts } = this.#account;
    const { n, at, pad } = message.p ?? {};
    if (typeof n !== "number" || typeof at !== "number" || pad !== padOf(n, at, this.#activity.size)) {
      counts.wrong += 1;
      return;
    }
    const last = this.#last[index]!;
    if (n <= last) {
      counts.duplicates += 1;
      return;
    }
    counts.gaps += n - last - 1;
    this.#last[index] = n;
    const nowNs = clockNs();
    this.#heardNs = nowNs;
    this.#account.confirm(1, nowNs);
    this.#account.latencies.record(nowNs - at);
    if (n % SKEW_EVERY === 0) {
      const known = counts.received[n];
      counts.received[n] = known === undefined ? [nowNs, nowNs] : [known[0], nowNs];
    }
    for (let number = last + 1; number <= n; number += 1) {
      this.#arrived.set(number, (this.#arrived.get(number) ?? 0) + 1);
    }
    this.#advance();
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
    const step = Math.max(1, this.#activity.inFlight >> 3);
    if (this.slowest - this.#told >= step) {
      this.#told = this.slowest;
      this.#link.tell(this.#told);
    }
    this.onProgress();
  }
}

/** Publishes until the time is over: a few ahead of the slowest subscriber, or when the time has come. */
async function publish(
  activity: Activity,
  session: Session,
  account: Account,
  link: FanOutLink,
  crowd: Crowd,
): Promise<void> {
  const { counts } = account;
  session.events = eventsOf(account);
  const endNs = activity.beganNs + activity.durationS * NS_PER_S;
  let number = 0;
  const publishOne = (dueNs: number) => {
    number += 1;
    const payload = publication(number, dueNs, activity.size);
    const request = { topic: TOPIC, type: "tick", payload };
    session.send(JSON.stringify({ c: "WSE", t: "publish_request", p: request }));
    counts.offeredAtNs = clockNs();
  };
  if (activity.ratePerS === undefined) {
    const fill = () => {
      const room = () => number - Math.min(crowd.slowest, link.othersSlowest()) < activity.inFlight;
      // Once at least: a starved process may wake when the time is over.
      for (
        let nowNs = clockNs();
        room() && (number === 0 || nowNs < endNs) && !session.isOver;
        nowNs = clockNs()
      ) {
        publishOne(nowNs);
      }
    };
    crowd.onProgress = fill;
    link.onOthers = fill;
    fill();
    await sleepUntil(endNs);
    crowd.onProgress = () => {};
    link.onOthers = () => {};
  } else {
    const intervalNs = NS_PER_S / activity.ratePerS;
    for (let due = activity.beganNs; due < endNs && !session.isOver; due += intervalNs) {
      counts.planned += 1;
      await sleepUntil(due);
      account.late.record(Math.max(1, clockNs() - due));
      publishOne(Math.round(due));
    }
  }
  counts.publications = number;
  await confirmed(session, account);
  link.finish(number);
}
