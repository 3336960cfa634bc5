/** What follows the end of a connection (PROTOCOL 16.3). */

import { reconnectAfter } from "../codes.js";
import type { CloseInfo } from "../transport.js";
import type { Backoff } from "./backoff.js";
import type { Hints } from "./session.js";

/** The end of a connection. */
export interface End {
  info: CloseInfo;
  /** The server's hints about the next connection. */
  hints: Hints;
  /** This client ended the connection. */
  isOurs: boolean;
  /** The application can give another token. */
  hasTokens: boolean;
}

/** Milliseconds to wait before the next attempt; `undefined` if there is no point in one. `random` is in [0, 1). */
export function retryDelay(backoff: Backoff, end: End, nowMs: number, random: number): number | undefined {
  const { info, hints, isOurs, hasTokens } = end;
  let hintMs = hints.retryAfterMs ?? info.retryAfterMs;
  if (info.status === 401) {
    if (!hasTokens) return undefined;
  } else if (!isOurs && !info.isRefusal && info.status === undefined) {
    const reconnect = reconnectAfter(info.code);
    if (!reconnect) return undefined;
    if (reconnect === "new_token") {
      if (!hasTokens) return undefined;
      hintMs = undefined;
    } else if (hints.reconnectAfterMs !== undefined) {
      // A second time in a row it would be a storm that the server's word makes.
      return backoff.failures > 0
        ? backoff.next(hints.reconnectAfterMs, nowMs, random)
        : backoff.nextAt(hints.reconnectAfterMs, nowMs);
    }
  }
  return backoff.next(hintMs, nowMs, random);
}
