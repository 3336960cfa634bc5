/** Payloads: what a message cannot carry as it is, and bytes. */

import { DEVELOPMENT, explainFlaw } from "#development";
import { TidewireError } from "../errors.js";
import { base64, fromBase64 } from "./bytes.js";
import { unreadable } from "./envelope.js";
import type { EncodedPayload, Envelope, EnvelopeFields, Format } from "./layers.js";

/** The levels of maps and arrays that a message may have, its envelope being the first (PROTOCOL 5.2). */
export const LEVELS_MAX = 64;
/** Those of them that are not a payload's: what carries it in a batch or in the answer about a history needs them. */
export const LEVELS_AROUND = 4;

/** The levels around a value that is sent as `name`; without one it holds the payload itself. */
export function levelsAround(name: string): number {
  return name ? LEVELS_AROUND : LEVELS_AROUND - 1;
}

/** Half a surrogate pair, which UTF-8 does not have. */
const HALF = /\p{Surrogate}/u;

/** Whether a text is whole, so that every reader can read it. */
export function isWhole(text: string): boolean {
  return !HALF.test(text);
}

/**
 * Whether JSON carries a value as it is. The value stands inside `level` maps and arrays. Texts are left to the encoder,
 * which marks those that are not whole.
 */
export function isSendable(value: unknown, level: number): boolean {
  if (typeof value !== "object" || !value) return isLeaf(value);
  if (level >= LEVELS_MAX) return false;
  if (Array.isArray(value)) {
    // One that is missing is undefined here.
    for (let index = 0; index < value.length; index++) {
      if (!isSendable(value[index], level + 1)) return false;
    }
    return true;
  }
  if (!isRecord(value)) return false;
  for (const key in value) {
    const field = (value as Envelope)[key];
    // Most fields are texts and numbers: a call less for each.
    if (!isLeaf(field) && !isSendable(field, level + 1)) return false;
  }
  return true;
}

/** Whether JSON has a value that holds no others. */
export function isLeaf(value: unknown): boolean {
  const type = typeof value;
  return type === "string" || type === "boolean" || value === null || Number.isFinite(value);
}

/** Whether an object consists of its own fields: that of a class does, one of the language or one with `toJSON` does not. */
export function isRecord(value: object): boolean {
  return (
    Object.getPrototypeOf(value) === Object.prototype ||
    (Object.prototype.toString.call(value) === "[object Object]" && !("toJSON" in value))
  );
}

/** The error for a value that would not arrive unchanged. In development it names the flaw and its place. */
export function unsendable(name: string, value: unknown, isBinary?: boolean): TidewireError {
  return new TidewireError(
    "INVALID_ARGUMENT",
    DEVELOPMENT && explainFlaw(name, value, isBinary),
    "application",
  );
}

/** The bytes of a binary payload; `undefined` for any other. */
export function bytesOf(value: unknown): Uint8Array | undefined {
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (!ArrayBuffer.isView(value)) return undefined;
  return value instanceof Uint8Array
    ? value
    : new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
}

/** A payload as it stands in a message, which `fields` then marks as binary if it is. Nothing for `undefined`. */
export function encode(format: Format, payload: unknown, fields: EnvelopeFields): EncodedPayload | undefined {
  if (payload === undefined) return undefined;
  const bytes = bytesOf(payload);
  if (!bytes) return format.payload(payload);
  fields.b = true;
  return format.payload(format.query ? bytes : base64(bytes));
}

/** The payload of a message that was read. With `mark` true it is binary: a text is then base64 (PROTOCOL 5.5). */
export function readPayload(payload: unknown, mark: unknown): unknown {
  if (payload === undefined) return {};
  if (mark !== true || payload instanceof Uint8Array) return payload;
  const bytes = fromBase64(payload);
  // Encoding the last one to three bytes again shows whether the end is written as it must be.
  const last = bytes && base64(bytes.subarray(-1 - ((bytes.length - 1) % 3)));
  if (!bytes || /\s/.test(payload as string) || last !== (payload as string).slice(-4))
    throw unreadable(DEVELOPMENT && "its payload is not base64");
  return bytes;
}
