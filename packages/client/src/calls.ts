/** Calls of the server: it asks, and this client answers. */

import { DEVELOPMENT } from "#development";
import type { Client } from "./client.js";
import { uint } from "./core/envelope.js";
import type { Answer } from "./core/session.js";
import { TidewireError } from "./errors.js";

/** The longest time of a timer. */
const TIMEOUT_MS_MAX = 2 ** 31 - 1;

/**
 * A handler of the server's calls. It returns the answer, or throws. `signal` is aborted when nobody waits for the answer
 * any more: after the time that the server gives, and when the connection of the call is over.
 */
export type CallHandler = (
  payload: never,
  context: { type: string; signal: AbortSignal },
) => unknown | Promise<unknown>;

/** Answers the server's calls of a type. The result ends that. */
export function handle(client: Client, type: string, handler: CallHandler): () => void {
  const { answers } = client.driver.session;
  const own = (payload: unknown, timeoutMs: number | undefined) =>
    answer(client, handler, type, payload, timeoutMs);
  answers.set(type, own);
  return () => {
    if (answers.get(type) === own) answers.delete(type);
  };
}

async function answer(
  client: Client,
  handler: CallHandler,
  type: string,
  payload: unknown,
  timeoutMs: number | undefined,
): Promise<Answer> {
  const ended = new AbortController();
  const { session } = client.driver;
  const { connectionId } = session;
  const unwatch = client.status.subscribe(() => {
    if (session.connectionId === connectionId) return;
    ended.abort(new TidewireError("CONNECTION_LOST", DEVELOPMENT && "the connection of the call is over"));
  });
  const expire = () => ended.abort(new DOMException("the server waits no longer", "TimeoutError"));
  const delayMs = timeoutMs === undefined ? undefined : Math.min(uint(timeoutMs), TIMEOUT_MS_MAX);
  const timer = delayMs === undefined ? undefined : setTimeout(expire, delayMs);
  try {
    const result = await handler(payload as never, { type, signal: ended.signal });
    return client.driver.inner(result);
  } catch (error) {
    const code = error instanceof TidewireError ? error.code : "HANDLER_ERROR";
    return { error: { code, message: textOf(error) } };
  } finally {
    unwatch();
    clearTimeout(timer);
  }
}

/** The text of a thrown value. It is fixed for an object that is no error, which may have no text. */
function textOf(error: unknown): string {
  if (error instanceof Error) return error.message;
  return typeof error === "object" ? "the handler failed" : String(error);
}
