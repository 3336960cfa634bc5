/** Errors of the client: one class, distinguished by `code`. */

import { DEVELOPMENT } from "#development";

/** Who caused an error. */
export type Fault = "client" | "server" | "network" | "application";

/** The codes of the client itself, beside the server's codes of `codes.ts`. */
export type ClientErrorCode =
  | "ABORTED"
  | "BUSY"
  | "CLOSED"
  | "CONNECTION_LOST"
  | "CONNECT_FAILED"
  | "INVALID_ARGUMENT"
  | "INVALID_OPTION"
  | "MESSAGE_TOO_LARGE"
  | "NOT_SUPPORTED"
  | "PROTOCOL_ERROR"
  | "QUEUE_FAILED"
  | "SESSION_ENDED"
  | "SUBSCRIPTION_FAILED"
  | "TIMEOUT";

export interface TidewireErrorOptions {
  fault?: Fault;
  retryAfterMs?: number | undefined;
  closeCode?: number | undefined;
  cause?: unknown;
}

/** Every error that this package throws or rejects with. */
export class TidewireError extends Error {
  override readonly name: string = "TidewireError";
  /** A code of the client (see {@link ClientErrorCode}), of the protocol, or of the application that answered a call. */
  readonly code: ClientErrorCode | (string & {});
  /** Who caused it. */
  readonly fault: Fault;
  /** How long to wait before another try makes sense, in milliseconds, if the server sent it. */
  readonly retryAfterMs: number | undefined;
  /** The close code, where a connection ended. */
  readonly closeCode: number | undefined;

  /** Without a `message` it is the code. In place of `options` the fault alone may stand. */
  constructor(
    code: ClientErrorCode | (string & {}),
    message?: string | false,
    options: TidewireErrorOptions | Fault = {},
  ) {
    const {
      fault = "client",
      retryAfterMs,
      closeCode,
      ...cause
    }: TidewireErrorOptions = typeof options === "string" ? { fault: options } : options;
    super(message || code, cause);
    this.code = code;
    this.fault = fault;
    this.retryAfterMs = retryAfterMs;
    this.closeCode = closeCode;
  }
}

/** The error of a call whose signal was aborted. */
export function aborted({ reason }: AbortSignal): TidewireError {
  return new TidewireError("ABORTED", DEVELOPMENT && "the call was aborted", {
    fault: "application",
    cause: reason,
  });
}
