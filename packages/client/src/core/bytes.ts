/** Bytes and texts of bytes. */

import { type Bytes, fromBinary, toBinary, type Utf8Encoder, utf8Encoder } from "./utf8.js";

export type { Bytes };

let encoder: Utf8Encoder | undefined;

/** Text as UTF-8. */
export function utf8(text: string): Bytes {
  encoder ??= utf8Encoder();
  return encoder.encode(text);
}

export function concat(...parts: readonly Uint8Array[]): Bytes {
  const whole = new Uint8Array(parts.reduce((length, part) => length + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Lower-case hex digits. */
export function hex(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += (byte + 256).toString(16).slice(1);
  return text;
}

/** Base64 with padding (RFC 4648 section 4). */
export function base64(bytes: Uint8Array): string {
  return btoa(toBinary(bytes));
}

/** The bytes of base64, with or without padding; undefined if it is malformed or no text. */
export function fromBase64(text: unknown): Bytes | undefined {
  if (typeof text !== "string") return undefined;
  try {
    return fromBinary(atob(text));
  } catch {
    return undefined;
  }
}
