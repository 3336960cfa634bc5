/** One attempt to have a connection, from the choice of an endpoint to its end. */

import { DEVELOPMENT } from "#development";
import type { Pipeline } from "./core/pipeline.js";
import { TidewireError } from "./errors.js";
import { type ResolvedOptions, withoutSecrets } from "./options.js";
import type { CloseInfo, Socket, Transport } from "./transport.js";

export interface Attempt {
  readonly index: number;
  readonly url: string;
  readonly startMs: number;
  /** The token, which no reason shows. */
  secret?: string;
  socket?: Socket;
  pipeline?: Pipeline;
  openMs?: number;
  hasMessage?: boolean;
  /** Why the client ended it, if it did. */
  ended?: { code: number; reason: string; isFatal: boolean };
  isOver: boolean;
  /** The socket has reported its end. */
  isGone?: boolean;
  /** Gives up a socket that does not report its end. */
  abandon?: ReturnType<typeof setTimeout>;
}

/** What a transport needs to open the connection: the address with the protocol's query, and the token at its place. */
export function requestOf(
  address: string,
  options: ResolvedOptions,
  token: string | undefined,
  transport: Transport,
): { url: string; protocols: string[]; headers: Record<string, string> } {
  const [base, before] = address.split("?");
  const query = new URLSearchParams(before);
  const { format, compression } = options;
  if (format?.query) query.set("format", format.query);
  if (compression) query.set("compression", "true");
  query.set("protocol_version", "1");
  const protocols = [...options.protocols];
  const headers = { ...options.headers };
  const place = options.tokenPlacement ?? (transport.canSendHeaders ? "header" : { subprotocol: "token." });
  if (token) {
    if (place === "header") headers.Authorization = `Bearer ${token}`;
    else if ("query" in place) query.set(place.query, token);
    else protocols.push(place.subprotocol + token.replace(/=+$/, ""));
  }
  return { url: `${base}?${query}`, protocols, headers };
}

/** Why the client ends with this attempt. */
export function endError(
  attempt: Attempt,
  { code, status, retryAfterMs }: CloseInfo,
  reason: string,
  wasAccepted: boolean,
): TidewireError {
  if (wasAccepted) {
    const words = DEVELOPMENT ? `the session has ended: ${reason} (${code})` : reason;
    return new TidewireError("SESSION_ENDED", words, { fault: "server", closeCode: code });
  }
  const isToken = status === 401 || code === 4401;
  return new TidewireError(
    isToken ? "AUTH_FAILED" : "CONNECT_FAILED",
    `${withoutSecrets(attempt.url)}: ${reason}`,
    {
      fault: isToken ? "application" : "network",
      closeCode: code,
      retryAfterMs,
    },
  );
}

/** What a browser or a lost connection leaves unsaid. */
export function describe(code: number, attempt: Attempt): string {
  if (code !== 1006) return "the server closed the connection";
  if (attempt.hasMessage) return "the connection was lost";
  return DEVELOPMENT
    ? "the connection failed before the first message; the network, the address, the origin or the token may be why"
    : "the connection failed";
}

/** A reason fits a close frame with at most 123 bytes. */
export function truncate(reason: string): string {
  let short = reason.slice(0, 123);
  // A unit past ASCII has at most three bytes of UTF-8.
  while (short.replace(/[^\0-\x7f]/g, "---").length > 123) short = short.slice(0, -1);
  return short;
}
