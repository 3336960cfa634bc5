/** The server's own counters, as a Tidewire server's operations listener gives them. */

import type { Tally } from "./account.js";

const SETTLE_MS_MAX = 2000;
const SETTLE_STEP_MS = 20;
const TIMEOUT_MS = 5000;
const REFUSED = "messages_refused_";

/** The counters of a server. */
export interface Counters {
  /** Messages handed to the application. */
  delivered: number;
  /** Messages refused, by reason. */
  refusedBy: Tally;
  /** Publications sent, counted for each receiver. */
  deliveries: number | undefined;
}

/** Reads the counters at the address of an operations listener, such as `http://127.0.0.1:5007`. */
export async function readCounters(statsUrl: string): Promise<Counters> {
  let shards: Record<string, number>[];
  try {
    const answer = await fetch(new URL("/stats", statsUrl), { signal: AbortSignal.timeout(TIMEOUT_MS) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    shards = ((await answer.json()) as { shards?: Record<string, number>[] }).shards ?? [];
  } catch (error) {
    const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
    throw new Error(
      `the counters at ${statsUrl} cannot be read: ${cause instanceof Error ? cause.message : cause}`,
    );
  }
  const first = shards[0];
  if (first === undefined || first.messages_delivered === undefined) {
    throw new Error(`${statsUrl} gives no counters of a Tidewire server`);
  }
  const sum = (name: string) => shards.reduce((total, shard) => total + (shard[name] ?? 0), 0);
  const refusedBy: Tally = {};
  for (const name of Object.keys(first)) {
    if (name.startsWith(REFUSED)) refusedBy[name.slice(REFUSED.length)] = sum(name);
  }
  const deliveries = first.deliveries === undefined ? undefined : sum("deliveries");
  return { delivered: sum("messages_delivered"), refusedBy, deliveries };
}

/** The counts since `before`, as soon as they are complete, or after the time a server may take to add up. */
export async function settledCounters(
  statsUrl: string,
  before: Counters,
  isSettled: (counters: Counters) => boolean,
): Promise<Counters> {
  const endMs = performance.now() + SETTLE_MS_MAX;
  for (;;) {
    const counters = since(await readCounters(statsUrl), before);
    if (isSettled(counters) || performance.now() > endMs) return counters;
    await new Promise((resolve) => setTimeout(resolve, SETTLE_STEP_MS));
  }
}

function since(now: Counters, before: Counters): Counters {
  const refusedBy: Tally = {};
  for (const [reason, count] of Object.entries(now.refusedBy)) {
    refusedBy[reason] = Math.max(0, count - (before.refusedBy[reason] ?? 0));
  }
  return {
    delivered: now.delivered - before.delivered,
    refusedBy,
    deliveries: now.deliveries === undefined ? undefined : now.deliveries - (before.deliveries ?? 0),
  };
}
