// Generated from protocol/codes.toml by `cargo xtask codes`. Do not edit.

/** Every error code of protocol version 1: the field `code` of an `error`. */
export const ErrorCode = {
  /** the token is missing, expired or not trustworthy. */
  AUTH_FAILED: "AUTH_FAILED",
  /** the token of the session or of a topic has expired, and no other came in time. */
  TOKEN_EXPIRED: "TOKEN_EXPIRED",
  /** the token of an `auth_refresh` or of a topic is not accepted; the session continues. */
  TOKEN_REFUSED: "TOKEN_REFUSED",
  /** more messages than the connection may send; `retry_after` says when to continue. */
  RATE_LIMITED: "RATE_LIMITED",
  /** a message, or its inflated content, exceeds the limit. */
  MESSAGE_TOO_LARGE: "MESSAGE_TOO_LARGE",
  /** not an envelope, or a field of a wrong type. */
  INVALID_MESSAGE: "INVALID_MESSAGE",
  /** a subscription without usable topics, or with a field of a wrong type. */
  INVALID_SUBSCRIPTION: "INVALID_SUBSCRIPTION",
  /** an action that the protocol does not have or this server does not offer. */
  INVALID_ACTION: "INVALID_ACTION",
  /** this user has no access to this topic. */
  TOPIC_FORBIDDEN: "TOPIC_FORBIDDEN",
  /** the peer's public key is unusable. */
  KEY_EXCHANGE_FAILED: "KEY_EXCHANGE_FAILED",
  /** the server accepts only encrypted messages. */
  ENCRYPTION_REQUIRED: "ENCRYPTION_REQUIRED",
  /** the application's handler failed; how much of its work is done is not known. */
  HANDLER_ERROR: "HANDLER_ERROR",
  /** the connection caused too many errors; it is closed. */
  CIRCUIT_BREAKER_OPEN: "CIRCUIT_BREAKER_OPEN",
  /** the server failed. */
  SERVER_ERROR: "SERVER_ERROR",
  /** the session could not be set up. */
  INIT_ERROR: "INIT_ERROR",
  /** there is no handler for that type, or no object of that name. */
  NOT_FOUND: "NOT_FOUND",
  /** more subscriptions, subscribers or open calls than the server allows. */
  LIMIT_EXCEEDED: "LIMIT_EXCEEDED",
  /** no room for a publication or a call now; nothing was done. */
  QUEUE_FULL: "QUEUE_FULL",
  /** the broker behind the servers does not answer; nothing was done. */
  BROKER_UNAVAILABLE: "BROKER_UNAVAILABLE",
  /** the backend does not answer as it should; nothing was done. */
  BACKEND_UNAVAILABLE: "BACKEND_UNAVAILABLE",
  /** the broker behind the servers did not say whether it took the publication. */
  PUBLISH_UNKNOWN: "PUBLISH_UNKNOWN",
  /** a call was not answered in time; how much of its work is done is not known. */
  TIMEOUT: "TIMEOUT",
  /** a number is not the next one: send the numbers after the last acknowledged one. */
  MESSAGE_GAP: "MESSAGE_GAP",
  /** another connection replaces this one as the producer. */
  PRODUCER_SUPERSEDED: "PRODUCER_SUPERSEDED",
} as const;
export type ErrorCode = (typeof ErrorCode)[keyof typeof ErrorCode];

/** Every close code that the protocol names, with those that only stand for how a connection ended. */
export const CloseCode = {
  /** 1000: the purpose of the connection has been fulfilled. */
  NORMAL: 1000,
  /** 1001: the server shuts down, or the page is left. */
  GOING_AWAY: 1001,
  /** 1002: the peer violated RFC 6455 or an extension. */
  PROTOCOL_ERROR: 1002,
  /** 1003: a kind of data that this side does not accept. */
  UNSUPPORTED_DATA: 1003,
  /** 1005: the close frame carried no code. */
  NO_CODE: 1005,
  /** 1006: the connection was lost without a close frame. */
  ABNORMAL: 1006,
  /** 1007: a text message is not UTF-8, or a payload does not match its type. */
  INVALID_PAYLOAD: 1007,
  /** 1008: a policy of this side forbids the session to continue. */
  POLICY_VIOLATION: 1008,
  /** 1009: a message is larger than this side accepts. */
  MESSAGE_TOO_LARGE: 1009,
  /** 1011: the server failed; the peer is not at fault. */
  INTERNAL_ERROR: 1011,
  /** 1012: the server restarts. */
  SERVICE_RESTART: 1012,
  /** 1013: the server is overloaded; try again later. */
  TRY_AGAIN_LATER: 1013,
  /** 1015: the TLS handshake failed. */
  TLS_FAILED: 1015,
  /** 4300: the server drains its connections; reconnect, perhaps to another one. */
  DRAINING: 4300,
  /** 4310: queued messages waited for longer or grew larger than allowed. */
  SLOW_CONSUMER: 4310,
  /** 4401: no valid token, or one that has expired. */
  NOT_AUTHENTICATED: 4401,
  /** 4403: authenticated, but not allowed. */
  FORBIDDEN: 4403,
  /** 4406: the client refuses a message of the server, and cannot send 1002 to 1009. */
  CLIENT_REFUSED: 4406,
  /** 4408: silent for longer than the idle timeout. */
  IDLE_TIMEOUT: 4408,
  /** 4409: another connection replaces this one as the producer. */
  PRODUCER_SUPERSEDED: 4409,
  /** 4429: the rate limit was exceeded for too long. */
  RATE_LIMITED: 4429,
  /** 4430: the connection repeatedly sent messages that were refused. */
  TOO_MANY_ERRORS: 4430,
} as const;
export type CloseCode = (typeof CloseCode)[keyof typeof CloseCode];

/** Who is at fault: who receives the code, the application that embeds the server, the server, or nobody. */
export type Fault = "none" | "peer" | "caller" | "server";

/**
 * Whether to send the refused message again, or to open a new connection: no; yes, soon; or once a delay is over, the
 * application has given another token, or the next hello offers a public key.
 */
export type Retry = "no" | "yes" | "delay" | "new_token" | "key_exchange";

/** What `codes.toml` says of an error code. */
export interface ErrorPolicy {
  readonly fault: Fault;
  /** Whether the session goes on after it. */
  readonly recoverable: boolean;
  readonly retry: Retry;
}

/** What `codes.toml` says of a close code. */
export interface ClosePolicy {
  /** Whose fault the end was; `none` for a code that is not known. */
  readonly fault: Fault;
  readonly reconnect: Retry;
}

const faults: readonly Fault[] = ["none", "peer", "caller", "server"];
const retries: readonly Retry[] = ["no", "yes", "delay", "new_token", "key_exchange"];

/** Retry plus 5 times fault, twice, plus 1 if recoverable. */
const errorPolicies: Readonly<Record<string, number>> = {
  AUTH_FAILED: 16,
  TOKEN_EXPIRED: 16,
  TOKEN_REFUSED: 17,
  RATE_LIMITED: 15,
  MESSAGE_TOO_LARGE: 11,
  INVALID_MESSAGE: 11,
  INVALID_SUBSCRIPTION: 11,
  INVALID_ACTION: 11,
  TOPIC_FORBIDDEN: 11,
  KEY_EXCHANGE_FAILED: 10,
  ENCRYPTION_REQUIRED: 18,
  HANDLER_ERROR: 21,
  CIRCUIT_BREAKER_OPEN: 14,
  SERVER_ERROR: 35,
  INIT_ERROR: 34,
  NOT_FOUND: 11,
  LIMIT_EXCEEDED: 11,
  QUEUE_FULL: 35,
  BROKER_UNAVAILABLE: 35,
  BACKEND_UNAVAILABLE: 35,
  PUBLISH_UNKNOWN: 31,
  TIMEOUT: 21,
  MESSAGE_GAP: 13,
  PRODUCER_SUPERSEDED: 10,
};

const closePolicies: Readonly<Record<string, number>> = {
  1000: 0,
  1001: 1,
  1002: 5,
  1003: 5,
  1005: 1,
  1006: 1,
  1007: 5,
  1008: 5,
  1009: 5,
  1011: 17,
  1012: 16,
  1013: 17,
  1015: 2,
  4300: 16,
  4310: 6,
  4401: 8,
  4403: 5,
  4406: 5,
  4408: 6,
  4409: 5,
  4429: 7,
  4430: 7,
};

/** The last code of each range, from 1000 on, and whether to reconnect. */
const closeRanges: readonly number[] = [
  2999, 2, 3999, 2, 4199, 1, 4299, 0, 4399, 1, 4499, 0, 4599, 2, 4999, 2,
];

/** The policy of an error code; `undefined` for one that is not known, which counts as recoverable. */
export function errorPolicy(code: string): ErrorPolicy | undefined {
  const policy = errorPolicies[code];
  if (typeof policy !== "number") return undefined;
  const half = policy >> 1;
  return {
    fault: faults[(half / 5) | 0] as Fault,
    recoverable: policy % 2 === 1,
    retry: retries[half % 5] as Retry,
  };
}

/** The policy of a close code: its own, or that of its range. A number outside 1000 to 4999 reconnects after a delay. */
export function closePolicy(code: number): ClosePolicy {
  const own = closePolicies[code];
  if (typeof own === "number") {
    return { fault: faults[(own / 5) | 0] as Fault, reconnect: retries[own % 5] as Retry };
  }
  let at = 0;
  while (at < closeRanges.length - 2 && code > (closeRanges[at] as number)) at += 2;
  return { fault: "none", reconnect: retries[closeRanges[at + 1] as number] as Retry };
}
