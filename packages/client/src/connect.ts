/** Opens clients. */

import { defaultTransport } from "#transport";
import { Client } from "./client.js";
import { type ClientOptions, resolveOptions, type Target } from "./options.js";
import type { TypedClient } from "./typed.js";

/**
 * Opens a client and returns at once; it connects, and reconnects, until it is closed. `await client.connected()` waits for
 * the first session. Throws `INVALID_OPTION` for a wrong option; in development also for an unknown one, and names the nearest.
 */
export function connect(target: Target, options?: ClientOptions): Client;
/** The same with a map of topics to the types of their payloads: `connect<{ "chat.eu": Chat }>(url)`. */
export function connect<Topics extends object>(target: Target, options?: ClientOptions): TypedClient<Topics>;
export function connect(target: Target, options: ClientOptions = {}): Client {
  return make(target, options, false);
}

/**
 * Opens a client and resolves when a server has accepted it. Each endpoint is tried once; rejects with `CONNECT_FAILED`
 * or `AUTH_FAILED` if none accepts.
 */
export function open(target: Target, options?: ClientOptions): Promise<Client>;
/** The same with a map of topics to the types of their payloads. */
export function open<Topics extends object>(
  target: Target,
  options?: ClientOptions,
): Promise<TypedClient<Topics>>;
export async function open(target: Target, options: ClientOptions = {}): Promise<Client> {
  return make(target, options, true).connected();
}

function make(target: Target, options: ClientOptions, isFirstRound: boolean): Client {
  const resolved = resolveOptions(target, options);
  let transport = resolved.transport ?? defaultTransport();
  let client: Client | undefined;
  // It may be known before the application can listen.
  const degraded = (reason: string) => queueMicrotask(() => client?.degraded("shared", reason));
  if (resolved.shared) transport = resolved.shared.transport(transport, resolved, { degraded });
  resolved.transport = transport;
  client = new Client(resolved, transport, isFirstRound);
  return client;
}
