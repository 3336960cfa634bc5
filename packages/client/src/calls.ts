/** Calls of the server: it asks, and this client answers. */

import type { Client } from "./client.js";
import type { Answer } from "./core/session.js";
import { TidewireError } from "./errors.js";

/** A handler of the server's calls. It returns the answer, or throws. */
export type CallHandler = (
  payload: never,
  context: { type: string; signal: AbortSignal },
) => unknown | Promise<unknown>;

/** Answers the server's calls of a type. The result ends that. */
export function handle(client: Client, type: string, handler: CallHandler): () => void {
  const { answers } = client.driver.session;
  const own = (payload: unknown, timeoutMs: number | undefined) => answer(handler, type, payload, timeoutMs);
  answers.set(type, own);
  return () => {
    if (answers.get(type) === own) answers.delete(type);
  };
}

async function answer(
  handler: CallHandler,
  type: string,
  payload: unknown,
  timeoutMs: number | undefined,
): Promise<Answer> {
  const signal = timeoutMs === undefined ? new AbortController().signal : AbortSignal.timeout(timeoutMs);
  try {
    return { payload: await handler(payload as never, { type, signal }) };
  } catch (error) {
    const code = error instanceof TidewireError ? error.code : "HANDLER_ERROR";
    return { error: { code, message: error instanceof Error ? error.message : String(error) } };
  }
}
