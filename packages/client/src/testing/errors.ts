/** Refusals of handlers. */

/** What a handler of the test server throws to refuse a message in words of its own, and what a client's refusal is. */
export class CallError extends Error {
  override readonly name = "CallError";
  readonly code: string;

  constructor(message: string, { code = "HANDLER_ERROR" }: { code?: string } = {}) {
    super(message);
    this.code = code;
  }
}

/** What a client learns of an error: of other errors than refusals not even the words, as from the real server. */
export function textOfRefusal(error: unknown): { code: string; message: string } {
  if (error instanceof CallError) return { code: error.code, message: error.message };
  return { code: "HANDLER_ERROR", message: "the handler failed" };
}
