/** Activities of the connections of a process in a test. Each function runs for all of them at once. */

import type { Account } from "./account.js";
import { tally } from "./account.js";
import { clockNs, NS_PER_S, sleepUntil } from "./clock.js";
import { Messages } from "./payload.js";
import type { Format } from "./plan.js";
import type { Session } from "./session.js";

/** One test's part of a process. */
export interface Activity {
  kind: "send" | "paced" | "ping" | "hold" | "survive" | "fan-out";
  /** When all processes begin. */
  beganNs: number;
  durationS: number;
  size: number;
  format: Format;
  isPrepared: boolean;
  ratePerS: number | undefined;
  inFlight: number;
  pings: number;
  everyS: number;
  seed: number;
  /** The first of this process's connections, counted over all, and how many there are in all. */
  number: number;
  connections: number;
  /** Whether the last connection of this process publishes. */
  publishes: boolean;
}

/** Bytes that all connections together may have in flight, unconfirmed. */
const UNCONFIRMED_BYTES = 64 * 1024 * 1024;
/** Messages between two pings that confirm them, at most: what one write takes. */
const BURST_MAX = 256;
const BURST_BYTES = 48 * 1024;
/** Bursts in flight: one is confirmed while the next is written. */
const BURSTS = 2;
/** How long after its end a test makes up for messages that were due before it. */
const CATCH_UP_NS = NS_PER_S;

/** The messages of one burst. */
export function burstOf(size: number, connections: number): number {
  const bytes = Math.min(BURST_BYTES, UNCONFIRMED_BYTES / BURSTS / Math.max(1, connections));
  return Math.max(1, Math.min(BURST_MAX, Math.floor(bytes / size)));
}

/** Bytes that a connection may have in flight, unconfirmed, at full speed. */
export function unconfirmedBytesMax(size: number, connections: number): number {
  return BURSTS * burstOf(size, connections) * size;
}

/** Runs an activity that is no fan-out from its beginning to its end. */
export async function runActivity(activity: Activity, sessions: Session[], account: Account): Promise<void> {
  for (const session of sessions) session.events = eventsOf(account);
  if (activity.kind === "paced") {
    await paced(activity, sessions, account);
    return;
  }
  const messages = activity.kind === "send" ? messagesOf(activity) : undefined;
  await sleepUntil(activity.beganNs);
  const each = (session: Session, index: number): Promise<void> => {
    if (activity.kind === "send") return send(activity, session, account, messages!, index);
    if (activity.kind === "ping") return ping(activity, session, account);
    return activity.kind === "hold"
      ? hold(activity, session, account, index)
      : survive(activity, session, account);
  };
  await Promise.all(sessions.map(each));
  if (messages !== undefined) account.counts.wireBytes = messages.wireBytes * account.counts.offered;
}

/** The events of a connection in any test. */
export function eventsOf(account: Account): Session["events"] {
  const { counts } = account;
  return {
    onRefused: (code, messages) => tally(counts.errors, code, messages),
    onBroken: (reason) => tally(counts.broken, reason),
    onStrangePong: () => {
      counts.pongsStrange += 1;
    },
  };
}

function messagesOf(activity: Activity): Messages {
  return new Messages(activity.size, activity.format, activity.seed, activity.isPrepared);
}

/** Where in the ring of messages a connection begins. */
function startOf(activity: Activity, index: number): number {
  return (activity.number + index) * 37;
}

/** A ping that proves that the server has read everything before; when it was answered, if it was. */
export async function confirmed(session: Session, account: Account): Promise<number | undefined> {
  account.counts.pings += 1;
  const answeredNs = await session.ping();
  if (answeredNs === undefined) account.counts.pongsLost += 1;
  return answeredNs;
}

/** Messages as fast as the server takes them, confirmed by pings between them. */
async function send(
  activity: Activity,
  session: Session,
  account: Account,
  messages: Messages,
  index: number,
): Promise<void> {
  const endNs = activity.beganNs + activity.durationS * NS_PER_S;
  const stream = messages.stream(startOf(activity, index));
  const burst = burstOf(activity.size, activity.connections);
  const settle = async () => {
    const answeredNs = await confirmed(session, account);
    if (answeredNs === undefined) return false;
    account.confirm(burst, answeredNs);
    return true;
  };
  let before: Promise<boolean> | undefined;
  // Once at least: a starved process may wake when the time is over.
  while (!session.isOver && (before === undefined || clockNs() < endNs)) {
    for (let sent = 0; sent < burst; sent += 1) session.send(stream.next());
    account.counts.offered += burst;
    const previous = before;
    before = settle();
    if (previous !== undefined && !(await previous)) break;
  }
  await before;
}

/** Messages of all connections in turn when their time has come, whether there is room or not. */
async function paced(activity: Activity, sessions: Session[], account: Account): Promise<void> {
  const { counts } = account;
  const messages = messagesOf(activity);
  const streams = sessions.map((_, index) => messages.stream(startOf(activity, index)));
  const unconfirmed = sessions.map(() => 0);
  const endNs = activity.beganNs + activity.durationS * NS_PER_S;
  // This process's part of the rate; its first message is due when it is the first connection's turn among all.
  const ratePerS = ((activity.ratePerS ?? 1) * sessions.length) / Math.max(1, activity.connections);
  const intervalNs = NS_PER_S / ratePerS;
  const offsetNs = (NS_PER_S / (activity.ratePerS ?? 1)) * (activity.number / Math.max(1, sessions.length));
  const settled: Promise<void>[] = [];
  const settle = async (index: number) => {
    const count = unconfirmed[index]!;
    unconfirmed[index] = 0;
    const answeredNs = await confirmed(sessions[index]!, account);
    if (answeredNs !== undefined) account.confirm(count, answeredNs);
  };
  for (let sent = 0; sessions.length > 0; sent += 1) {
    const dueNs = activity.beganNs + offsetNs + sent * intervalNs;
    if (dueNs >= endNs) break;
    counts.planned += 1;
    if (clockNs() > endNs + CATCH_UP_NS) continue;
    if (dueNs > clockNs()) await sleepUntil(dueNs);
    else if (sent % BURST_MAX === 0) await new Promise(setImmediate);
    const index = sent % sessions.length;
    const session = sessions[index]!;
    if (session.isOver) continue;
    account.late.record(Math.max(1, clockNs() - dueNs));
    session.send(streams[index]!.next());
    counts.offered += 1;
    counts.offeredAtNs = clockNs();
    unconfirmed[index]! += 1;
    if (unconfirmed[index]! >= BURST_MAX) settled.push(settle(index));
  }
  for (let index = 0; index < sessions.length; index += 1) {
    if (unconfirmed[index]! > 0 && !sessions[index]!.isOver) settled.push(settle(index));
  }
  await Promise.all(settled);
  counts.wireBytes = messages.wireBytes * counts.offered;
}

/** Pings, one after another. */
async function ping(activity: Activity, session: Session, account: Account): Promise<void> {
  for (let round = 0; round < activity.pings; round += 1) {
    if (!(await roundTrip(session, account))) return;
  }
}

async function roundTrip(session: Session, account: Account): Promise<boolean> {
  const sentNs = clockNs();
  const answeredNs = await confirmed(session, account);
  if (answeredNs === undefined) return false;
  account.latencies.record(answeredNs - sentNs);
  account.count(1, answeredNs);
  return true;
}

/** A ping now and then. */
async function hold(activity: Activity, session: Session, account: Account, index: number): Promise<void> {
  const endNs = activity.beganNs + activity.durationS * NS_PER_S;
  // Spread, so that not all connections ping at once.
  const everyNs = activity.everyS * NS_PER_S;
  let dueNs = activity.beganNs + (everyNs * (index + 1)) / (account.counts.members + 1);
  while (dueNs < endNs) {
    await sleepUntil(dueNs);
    if (!(await roundTrip(session, account))) {
      if (!session.isOver) tally(account.counts.broken, "no pong");
      return;
    }
    dueNs += everyNs;
  }
  await sleepUntil(endNs);
}

/** A moment of silence, and a ping: what a server ends right after it has made it ready is no connection. */
async function survive(activity: Activity, session: Session, account: Account): Promise<void> {
  await sleepUntil(activity.beganNs + activity.durationS * NS_PER_S);
  if (session.isOver) return;
  if ((await confirmed(session, account)) === undefined && !session.isOver) {
    tally(account.counts.broken, "no pong");
  }
}
