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
  /** a payload of another shape than the handler takes; the handler was not called. */
  INVALID_PAYLOAD: "INVALID_PAYLOAD",
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
  /** 4310: the peer reads too slowly: more messages wait for it than allowed. */
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
  /** 4431: unfinished messages of the user or address took more memory than allowed. */
  UNFINISHED_MESSAGES: 4431,
} as const;
export type CloseCode = (typeof CloseCode)[keyof typeof CloseCode];

/** Errors by who is to blame, as this client sees it: the server's part is also that of its application. */
const clientFaults =
  /^(AUTH_FAILED|TOKEN_EXPIRED|TOKEN_REFUSED|RATE_LIMITED|MESSAGE_TOO_LARGE|INVALID_MESSAGE|INVALID_SUBSCRIPTION|INVALID_ACTION|TOPIC_FORBIDDEN|KEY_EXCHANGE_FAILED|ENCRYPTION_REQUIRED|INVALID_PAYLOAD|CIRCUIT_BREAKER_OPEN|NOT_FOUND|LIMIT_EXCEEDED|MESSAGE_GAP|PRODUCER_SUPERSEDED)$/;
const serverFaults =
  /^(HANDLER_ERROR|SERVER_ERROR|INIT_ERROR|QUEUE_FULL|BROKER_UNAVAILABLE|BACKEND_UNAVAILABLE|PUBLISH_UNKNOWN|TIMEOUT)$/;

/**
 * What follows a close code, where it is not what follows its range: 0 nothing, 1 a new connection, 2 one with another
 * token; 3 more if the server is to blame.
 */
const closes: Readonly<Record<number, number>> = {
  1000: 0,
  1002: 0,
  1003: 0,
  1007: 0,
  1008: 0,
  1009: 0,
  1011: 4,
  1012: 4,
  1013: 4,
  4300: 4,
  4401: 2,
  4408: 1,
  4429: 1,
  4430: 1,
  4431: 1,
};

/** The first and the last code of each range after which there is no new connection. */
const closedRanges: readonly number[] = [4200, 4299, 4400, 4499];

/** Who caused an error of the server; `application` for a code that the protocol does not have. */
export function faultOf(code: string): "client" | "server" | "application" {
  if (clientFaults.test(code)) return "client";
  return serverFaults.test(code) ? "server" : "application";
}

/** What follows a close code: see {@link closes}. */
function policyOf(code: number): number {
  const isClosed = closedRanges.some(
    (from, at) => at % 2 < 1 && from <= code && code <= closedRanges[at + 1]!,
  );
  return closes[code] ?? (isClosed ? 0 : 1);
}

/** Whether a new connection may follow a close code; `new_token` if it needs another token. */
export function reconnectAfter(code: number): boolean | "new_token" {
  const policy = policyOf(code) % 3;
  return policy > 1 ? "new_token" : policy > 0;
}

/** Whether the server is to blame for the end of a connection. */
export function isServersFault(code: number): boolean {
  return policyOf(code) > 2;
}
