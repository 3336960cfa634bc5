/** What the connections do in each activity. Each function runs for all of them at once. */

import type { Activity } from "./activity.js";
import { clockNs, NS_PER_S } from "./clock.js";
import { FAN_OUT_TOPIC } from "./fan_out.js";
import { Pace } from "./pace.js";
import { Replies } from "./replies.js";
import type { Envelope, Session } from "./session.js";

/** Bytes that all connections together may have in flight, unconfirmed. */
const UNCONFIRMED_BYTES = 64 * 1024 * 1024;
/** Maximum number of messages between two confirming pings, so that they fit into one write. */
const BURST_MAX = 256;
const BURST_BYTES = 48 * 1024;
/** Bursts in flight: one is confirmed while the next is written. */
const BURSTS = 2;
/** How long after its end a test makes up for messages that were due before it. */
const CATCH_UP_NS = NS_PER_S;

/** Runs an activity that is no fan-out from its beginning to its end. */
export async function runActivity(activity: Activity, sessions: Session[]): Promise<void> {
  const { order, counts } = activity;
  for (const session of sessions) session.events = activity.events();
  await activity.sleepUntil(counts.beganNs);
  const work = {
    blast,
    window: windowed,
    pings,
    hold,
    subscribe,
    paced: order.replies === true ? pacedReplies : paced,
    fan_out: () => Promise.reject(new Error("a fan-out is no activity of single connections")),
  }[order.activity];
  await Promise.all(sessions.map((session, index) => work(activity, session, index)));
}

/** The messages of one burst. */
function burstOf(bytes: number, connections: number): number {
  const most = Math.min(BURST_BYTES, UNCONFIRMED_BYTES / BURSTS / Math.max(1, connections));
  return Math.max(1, Math.min(BURST_MAX, Math.floor(most / bytes)));
}

/** Sends messages as fast as the server accepts them. Pings between the messages confirm them. */
async function blast(activity: Activity, session: Session, index: number): Promise<void> {
  const { counts } = activity;
  const bytes = activity.order.message.json_bytes;
  const next = activity.stream(index);
  const burst = burstOf(bytes, activity.connections);
  counts.unconfirmedBytesMax = BURSTS * burst * bytes;
  const settle = async (messages: number) => {
    const answeredNs = await activity.confirmed(session);
    if (answeredNs === undefined) return false;
    counts.confirm(messages, answeredNs);
    return true;
  };
  let before: Promise<boolean> | undefined;
  let left = activity.perConnection;
  // Once at least: a starved process may wake when the time is over.
  while (!session.isOver && left > 0 && (before === undefined || !activity.isOver)) {
    const messages = Math.min(burst, left);
    for (let sent = 0; sent < messages; sent += 1) session.send(next().frame);
    counts.offered += messages;
    left -= messages;
    const previous = before;
    before = settle(messages);
    if (previous !== undefined && !(await previous)) break;
  }
  await before;
}

function paceOf(activity: Activity, index: number): Pace {
  const { order, counts, connections, number } = activity;
  const seed = order.poisson === true ? activity.terms.seed : undefined;
  return new Pace(counts.beganNs, order.per_s ?? 1, connections, number + index, seed);
}

/** Calls `send` for each message at its due time. A message too late to be made up for only counts as planned. */
async function onTime(activity: Activity, pace: Pace, send: (dueNs: number) => boolean): Promise<void> {
  const { counts } = activity;
  let going = true;
  for (let sent = 1; pace.nextNs < counts.endNs; sent += 1) {
    const dueNs = pace.nextNs;
    if (going && clockNs() <= counts.endNs + CATCH_UP_NS) {
      if (dueNs > clockNs()) await activity.sleepUntil(dueNs);
      else if (sent % BURST_MAX === 0) await new Promise(setImmediate);
      if (dueNs >= counts.endNs) return;
      counts.planned += 1;
      counts.late.record(Math.max(1, clockNs() - dueNs));
      going = send(dueNs);
    } else counts.planned += 1;
    pace.advance();
  }
}

/** Sends messages at their due times, even if the connection has no room. */
async function paced(activity: Activity, session: Session, index: number): Promise<void> {
  const { counts } = activity;
  const next = activity.stream(index);
  const settled: Promise<void>[] = [];
  let unconfirmed = 0;
  const settle = async () => {
    const count = unconfirmed;
    unconfirmed = 0;
    const answeredNs = await activity.confirmed(session);
    if (answeredNs !== undefined) counts.confirm(count, answeredNs);
  };
  await onTime(activity, paceOf(activity, index), () => {
    if (session.isOver) return false;
    session.send(next().frame);
    counts.offer();
    counts.offeredAtNs = clockNs();
    unconfirmed += 1;
    if (unconfirmed >= BURST_MAX) settled.push(settle());
    return true;
  });
  if (unconfirmed > 0 && !session.isOver) settled.push(settle());
  await Promise.all(settled);
}

/** A connection whose messages are answered. */
class Dialogue {
  readonly replies: Replies;
  readonly #activity: Activity;
  readonly #session: Session;
  #heardNs = clockNs();
  #settle: () => void = () => {};
  #endSending: () => void = () => {};
  #hasSentAll = false;

  constructor(activity: Activity, session: Session, isPlanned: boolean, onFreed: (messages: number) => void) {
    this.#activity = activity;
    this.#session = session;
    this.replies = new Replies(activity.counts, isPlanned);
    session.events = {
      ...activity.events(),
      onMessage: (message: Envelope) => {
        this.#heardNs = clockNs();
        onFreed(this.replies.heard(JSON.stringify(message.p ?? null), this.#heardNs));
        if (this.#isSilent && this.replies.waiting === 0) this.#settle();
      },
      onBroken: (reason) => {
        activity.counts.broken.add(reason);
        this.#settle();
      },
    };
  }

  get #isSilent(): boolean {
    return this.#hasSentAll || this.#activity.isOver;
  }

  /** Nothing more is sent, although the activity is not over. */
  endSending(): void {
    this.#hasSentAll = true;
    this.#endSending();
  }

  /** Waits for the end of the sending, and then for the messages in flight. */
  async end(): Promise<void> {
    const { counts, terms } = this.#activity;
    const isDone = () => this.#session.isOver || (this.#isSilent && this.replies.waiting === 0);
    const settled = new Promise<void>((resolve) => {
      this.#settle = resolve;
    });
    const hasSentAll = new Promise<void>((resolve) => {
      this.#endSending = resolve;
      if (this.#hasSentAll) resolve();
    });
    await Promise.race([this.#activity.sleepUntil(counts.endNs), settled, hasSentAll]);
    const patience = setInterval(() => {
      const sinceNs = clockNs() - Math.max(this.#heardNs, this.#hasSentAll ? 0 : counts.endNs);
      if (isDone() || sinceNs > terms.barrier_timeout_ms * 1e6) this.#settle();
    }, 20);
    if (!isDone()) await settled;
    clearInterval(patience);
    this.replies.end(clockNs());
  }
}

/** Requests and answers, with some in flight at any time. */
async function windowed(activity: Activity, session: Session, index: number): Promise<void> {
  const { counts, order } = activity;
  const next = activity.stream(index);
  let left = activity.perConnection;
  const sendSome = (messages: number) => {
    for (let sent = 0; sent < messages && left > 0 && !session.isOver; sent += 1) {
      left -= 1;
      const { frame, payload } = next();
      const nowNs = clockNs();
      dialogue.replies.sent(payload, nowNs, nowNs);
      session.send(frame);
      counts.offer();
    }
    if (left === 0) dialogue.endSending();
  };
  const dialogue = new Dialogue(activity, session, false, (freed) => {
    if (!activity.isOver) sendSome(freed);
  });
  sendSome(order.in_flight ?? 1);
  await dialogue.end();
}

/** Sends requests at their due times. The latency of a request counts from its due time. */
async function pacedReplies(activity: Activity, session: Session, index: number): Promise<void> {
  const { counts } = activity;
  const next = activity.stream(index);
  const dialogue = new Dialogue(activity, session, true, () => {});
  await onTime(activity, paceOf(activity, index), (dueNs) => {
    if (session.isOver) return false;
    const { frame, payload } = next();
    dialogue.replies.sent(payload, dueNs, clockNs());
    session.send(frame);
    counts.offer();
    counts.offeredAtNs = clockNs();
    return true;
  });
  await dialogue.end();
}

/** Pings, one after another. */
async function pings(activity: Activity, session: Session): Promise<void> {
  for (let round = 0; round < activity.perConnection && !activity.isOver; round += 1) {
    if (!(await roundTrip(activity, session))) return;
  }
}

/** A ping that measures; one without an answer counts at its age. */
async function roundTrip(activity: Activity, session: Session): Promise<boolean> {
  const { counts } = activity;
  const sentNs = clockNs();
  const answeredNs = await activity.confirmed(session);
  counts.latency.record((answeredNs ?? clockNs()) - sentNs);
  if (answeredNs === undefined) return false;
  counts.pongs += 1;
  counts.count(1, answeredNs);
  return true;
}

/** A ping now and then, and one at the end that asks whether the connection lives. */
async function hold(activity: Activity, session: Session, index: number): Promise<void> {
  const { counts, order } = activity;
  // Spread, so that not all connections ping at once.
  const everyNs = order.ping_every_ms * 1e6;
  let dueNs = counts.beganNs + (everyNs * (index + 1)) / (counts.members + 1);
  for (; dueNs < counts.endNs; dueNs += everyNs) {
    await activity.sleepUntil(Math.min(dueNs, counts.endNs));
    if (dueNs >= counts.endNs) break;
    if (!(await roundTrip(activity, session))) return;
  }
  await activity.sleepUntil(counts.endNs);
  if (!session.isOver) await activity.confirmed(session);
}

/** Subscribes a connection to the topic of a fan-out, unless it is the publisher. */
async function subscribe(activity: Activity, session: Session): Promise<void> {
  if (session.number === activity.order.publisher) return;
  const { counts, terms } = activity;
  await new Promise<void>((resolve) => {
    const refuse = (why: string) => {
      clearTimeout(patience);
      counts.broken.addKind("not-subscribed");
      counts.broken.notes.push(why);
      session.terminate();
      resolve();
    };
    const patience = setTimeout(() => refuse("the server did not answer"), terms.barrier_timeout_ms);
    session.events = {
      onMessage: (message) => {
        if (message.t !== "subscription_update") return;
        const done = message.p?.success_topics;
        if (!Array.isArray(done) || !done.includes(FAN_OUT_TOPIC)) {
          refuse(`the server refused the subscription to ${FAN_OUT_TOPIC}`);
          return;
        }
        clearTimeout(patience);
        resolve();
      },
      onRefused: (code) => refuse(`the server refused the subscription to ${FAN_OUT_TOPIC}: ${code}`),
      onBroken: (reason) => refuse(`a connection broke while it subscribed: ${reason}`),
    };
    const request = { action: "subscribe", topics: [FAN_OUT_TOPIC] };
    session.send(JSON.stringify({ c: "WSE", t: "subscription_update", cid: "1", p: request }));
  });
}
