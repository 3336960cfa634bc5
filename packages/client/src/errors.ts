/** Errors of the client: one class, told apart by `code`. */

/** Who caused an error. */
export type Fault = "client" | "server" | "network" | "application";

/** What the client itself can say beside the server's codes of `codes.ts`. */
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
  override readonly name = "TidewireError";
  /** A code of the client (see {@link ClientErrorCode}), of the protocol, or of the application that answered a call. */
  readonly code: ClientErrorCode | (string & {});
  /** Who caused it. */
  readonly fault: Fault;
  /** How long to wait before another try makes sense, in milliseconds, if the server said so. */
  readonly retryAfterMs: number | undefined;
  /** The close code, where a connection ended. */
  readonly closeCode: number | undefined;

  constructor(code: ClientErrorCode | (string & {}), message: string, options: TidewireErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.fault = options.fault ?? "client";
    this.retryAfterMs = options.retryAfterMs;
    this.closeCode = options.closeCode;
  }
}
