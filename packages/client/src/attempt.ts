/** One attempt to have a connection, from the choice of an endpoint to its end. */

import type { KeyExchange } from "./core/layers.js";
import type { Pipeline } from "./core/pipeline.js";
import { TidewireError } from "./errors.js";
import type { CloseInfo, Frame, Socket } from "./transport.js";

export interface Attempt {
  readonly index: number;
  readonly url: string;
  readonly startMs: number;
  socket: Socket | undefined;
  pipeline: Pipeline | undefined;
  exchange: KeyExchange | undefined;
  inbound: Frame[];
  isReading: boolean;
  openMs: number | undefined;
  hasMessage: boolean;
  /** Why the client ended it, if it did. */
  ended: { code: number; reason: string; isFatal: boolean } | undefined;
  isOver: boolean;
  /** The socket has reported its end. */
  isGone: boolean;
  /** Gives up a socket that does not report its end. */
  abandon: ReturnType<typeof setTimeout> | undefined;
}

export function newAttempt(index: number, url: string, startMs: number): Attempt {
  return {
    index,
    url,
    startMs,
    socket: undefined,
    pipeline: undefined,
    exchange: undefined,
    inbound: [],
    isReading: false,
    openMs: undefined,
    hasMessage: false,
    ended: undefined,
    isOver: false,
    isGone: false,
    abandon: undefined,
  };
}

/** Why the client ends with this attempt. */
export function endError(
  attempt: Attempt,
  info: CloseInfo,
  reason: string,
  wasAccepted: boolean,
): TidewireError {
  if (wasAccepted) {
    const words = `the session has ended: ${reason} (${info.code})`;
    return new TidewireError("SESSION_ENDED", words, { fault: "server", closeCode: info.code });
  }
  const isToken = info.status === 401 || info.code === 4401;
  return new TidewireError(isToken ? "AUTH_FAILED" : "CONNECT_FAILED", `${attempt.url}: ${reason}`, {
    fault: isToken ? "application" : "network",
    closeCode: info.code,
    retryAfterMs: info.retryAfterMs,
  });
}

/** A frame that stays valid. A `Buffer` of Node shares its memory with its slices. */
export function copy(frame: Frame): Frame {
  return typeof frame === "string" ? frame : new Uint8Array(frame);
}

/** What a browser or a lost connection leaves unsaid. */
export function describe(info: CloseInfo, attempt: Attempt): string {
  if (info.code !== 1006) return "the server closed the connection";
  if (attempt.hasMessage) return "the connection was lost";
  return "the connection failed before the first message; the network, the address, the origin or the token may be why";
}

/** A reason fits a close frame with at most 123 bytes. */
export function truncate(reason: string): string {
  let short = reason.slice(0, 123);
  while (new TextEncoder().encode(short).length > 123) short = short.slice(0, -1);
  return short;
}
