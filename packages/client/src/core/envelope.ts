/** Envelopes that were read: their fields, and what to say of those that cannot be read. */

import { TidewireError } from "../errors.js";
import type { Envelope } from "./layers.js";

/** An error about a message of the server that cannot be read. */
export function unreadable(what: string, cause?: unknown): TidewireError {
  return new TidewireError("INVALID_MESSAGE", `the server sent a message that cannot be read: ${what}`, {
    fault: "server",
    cause,
  });
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value of a field by its name or its synonym. */
export function typeOf(envelope: Envelope): unknown {
  return envelope.t ?? envelope.type;
}

export function payloadOf(envelope: Envelope): unknown {
  return envelope.p ?? envelope.payload;
}
