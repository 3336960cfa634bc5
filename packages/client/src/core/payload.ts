/** Payloads: what a message cannot carry as it is, and bytes. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import { base64, fromBase64 } from "./bytes.js";
import { isObject, unreadable } from "./envelope.js";
import type { EncodedPayload, Envelope, EnvelopeFields, Format } from "./layers.js";

/** The levels of maps and arrays that a message may have, its envelope being the first (PROTOCOL 5.2). */
export const LEVELS_MAX = 64;

/** Half a surrogate pair, which UTF-8 does not have. */
const HALF = /\p{Surrogate}/u;

/** Whether a text is whole, so that every reader can read it. */
export function isWhole(text: string): boolean {
  return !HALF.test(text);
}

/**
 * What of a value JSON would change, with its place, such as `.at is a Date`; `undefined` if it stays as it is. The
 * value stands inside `level` maps and arrays. Texts are looked at only with `hasTexts`, because JSON's encoder marks
 * those that are not whole. With `isBinary` the format has bytes and integers of 64 bits.
 */
export function flawOf(
  value: unknown,
  level: number,
  hasTexts?: boolean,
  isBinary?: boolean,
): string | undefined {
  if (typeof value !== "object" || !value) return flawOfLeaf(value, hasTexts, isBinary);
  if (isBinary && bytesOf(value)) return undefined;
  if (level >= LEVELS_MAX) return ` is deeper than ${LEVELS_MAX} levels`;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const flaw = flawOf(value[index], level + 1, hasTexts, isBinary);
      if (flaw) return `[${index}]${flaw}`;
    }
    return undefined;
  }
  if (!isRecord(value)) return ` is a ${value.constructor?.name}`;
  for (const key in value) {
    const field = (value as Envelope)[key];
    const type = typeof field;
    // Most fields are texts and numbers: a call less for each.
    if (!hasTexts && (type === "string" || (type === "number" && (field as number) - (field as number) === 0)))
      continue;
    const flaw = flawOf(field, level + 1, hasTexts, isBinary);
    if (flaw) return `.${key}${flaw}`;
    if (hasTexts && !isWhole(key)) return " has a name with half a character";
  }
  return undefined;
}

function flawOfLeaf(
  value: unknown,
  hasTexts: boolean | undefined,
  isBinary: boolean | undefined,
): string | undefined {
  const type = typeof value;
  if (type === "string") return hasTexts && !isWhole(value as string) ? " has half a character" : undefined;
  if (type === "number") return Number.isFinite(value) ? undefined : ` is ${value}`;
  if (type === "boolean" || value === null) return undefined;
  if (isBinary && type === "bigint" && has64Bits(value as bigint)) return undefined;
  return ` is ${type === "undefined" ? type : `a ${type}`}`;
}

/** Whether an object consists of its own fields: that of a class does, one of the language or one with `toJSON` does not. */
export function isRecord(value: object): boolean {
  return (
    Object.getPrototypeOf(value) === Object.prototype ||
    (Object.prototype.toString.call(value) === "[object Object]" && !("toJSON" in value))
  );
}

export function has64Bits(value: bigint): boolean {
  return BigInt.asUintN(64, value) === value || BigInt.asIntN(64, value) === value;
}

/** The error about a value that cannot be sent. `flaw` says what is wrong with it, behind its place. */
export function unsendable(name: string, flaw: string): TidewireError {
  const words = (name + flaw).replace(/^\./, "").replace(/^(.{60}).{9,}(.{60})$/s, "$1…$2");
  return new TidewireError(
    "INVALID_ARGUMENT",
    `${words}, which cannot be sent${DEVELOPMENT ? "; send values of JSON, or bytes as the whole payload" : ""}`,
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

/** A payload that was read. The mark says that it is binary: a text is then base64 (PROTOCOL 5.5). */
export function readPayload(payload: unknown, mark: unknown): unknown {
  if (payload === undefined) return {};
  if (mark !== true || payload instanceof Uint8Array) return payload;
  const bytes = typeof payload === "string" ? fromBase64(payload) : undefined;
  // What is left of the last three bytes shows whether the end is written as it must be.
  const last = bytes && base64(bytes.subarray(bytes.length - 1 - ((bytes.length - 1) % 3)));
  if (!bytes || /\s/.test(payload as string) || last !== (payload as string).slice(-4))
    throw unreadable(DEVELOPMENT && "its payload is not base64");
  return bytes;
}
