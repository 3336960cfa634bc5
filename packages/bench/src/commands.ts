/** What the leading process and those that hold the connections tell each other. */

import type { Counts, Opened } from "./account.js";
import type { Activity } from "./activities.js";
import type { Target } from "./plan.js";

/** What a worker is told to do; each is answered once, in order. */
export type Command =
  | { do: "open"; target: Target; count: number; first: number; atOnce: number }
  | { do: "reconnect"; target: Target; rounds: number; first: number }
  | { do: "subscribe"; but: number }
  | { do: "run"; activity: Activity }
  | { do: "close" };

/** What a worker answers. */
export type Answer =
  | { kind: "opened"; opened: Opened }
  | { kind: "counts"; counts: Counts }
  | { kind: "done" }
  | { kind: "failed"; reason: string };

/** What the processes of a fan-out tell each other, by way of the leading one. */
export type Word =
  | { kind: "slowest"; slowest: number }
  | { kind: "others"; slowest: number }
  | { kind: "total"; total: number };

/** What is told to a worker. */
export type ToWorker = Command | Word;

/** What is heard from a worker. */
export type FromWorker = Answer | Word;
