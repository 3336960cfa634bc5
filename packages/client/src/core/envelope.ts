/** The fields of envelopes that were read, and the error for messages that cannot be read. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import type { Envelope } from "./layers.js";

/** An error about a message of the server that cannot be read. */
export function unreadable(what: string | false, cause?: unknown): TidewireError {
  return new TidewireError(
    "INVALID_MESSAGE",
    DEVELOPMENT && `the server sent a message that cannot be read: ${what}`,
    {
      fault: "server",
      cause,
    },
  );
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value);
}

/** The value of a field by its name or its synonym: of both the first one counts. */
function either(envelope: Envelope, name: string, synonym: string): unknown {
  const value = envelope[name];
  if (envelope[synonym] === undefined) return value;
  for (const key in envelope) if (key === name || key === synonym) return envelope[key];
  return value;
}

export function typeOf(envelope: Envelope): unknown {
  return either(envelope, "t", "type");
}

export function payloadOf(envelope: Envelope): unknown {
  return either(envelope, "p", "payload");
}

/** A count; 0 for anything else. */
export function uint(value: unknown): number {
  return typeof value === "number" && value > 0 ? Math.floor(value) : 0;
}

/** A field without which a message means nothing. */
export function required(payload: Envelope, name: string): number {
  const value = payload[name];
  if (typeof value !== "number" || value < 0) throw unreadable(DEVELOPMENT && `${name} is missing`);
  return Math.floor(value);
}

/** Messages that a batch must not hold. */
const ALONE = new Set<unknown>(["batch", "server_hello", "key_update"]);

/** Whether a message may stand in a batch (PROTOCOL 8): one that changes keys or nests must stand alone. */
export function isBatched(message: unknown): message is Envelope {
  return isObject(message) && !ALONE.has(typeOf(message));
}
