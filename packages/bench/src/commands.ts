/** Messages between the leading process and those that hold the connections. */

import type { Counts, Opened } from "./account.js";
import type { Activity } from "./activities.js";
import type { Target } from "./plan.js";

/** A command to a worker; each is answered once, in order. */
export type Command =
  | { do: "open"; target: Target; count: number; first: number; atOnce: number }
  | { do: "reconnect"; target: Target; rounds: number; first: number }
  | { do: "subscribe"; but: number }
  | { do: "run"; activity: Activity }
  | { do: "close" };

/** The answer of a worker. */
export type Answer =
  | { kind: "opened"; opened: Opened }
  | { kind: "counts"; counts: Counts }
  | { kind: "done" }
  | { kind: "failed"; reason: string };

/** Messages between the processes of a fan-out, by way of the leading one. */
export type Word =
  | { kind: "slowest"; slowest: number }
  | { kind: "others"; slowest: number }
  | { kind: "total"; total: number };

/** A message to a worker. */
export type ToWorker = Command | Word;

/** A message of a worker. */
export type FromWorker = Answer | Word;
