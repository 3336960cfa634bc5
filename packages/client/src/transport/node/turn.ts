/** The end of the event loop's turn, at which every connection writes what it has collected. */

// jsdom, which Jest uses, has no global `setImmediate`.
import { setImmediate } from "node:timers";

/** A connection with something to write. */
export interface Flushable {
  flush(): void;
}

let waiting: Flushable[] = [];
let isScheduled = false;

/** Calls `flush` of `connection` once, after the callbacks of this turn. Call it at most once before that. */
export function flushThisTurn(connection: Flushable): void {
  waiting.push(connection);
  if (isScheduled) return;
  isScheduled = true;
  setImmediate(flushAll);
}

function flushAll(): void {
  const connections = waiting;
  waiting = [];
  isScheduled = false;
  for (const connection of connections) connection.flush();
}
