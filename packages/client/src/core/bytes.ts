/** Bytes and texts of bytes. */

import { type Bytes, type Utf8Encoder, utf8Encoder } from "./utf8.js";

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
  let text = "";
  // In pieces, because a function takes a limited number of arguments.
  for (let at = 0; at < bytes.length; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return btoa(text);
}

/** The bytes of base64, with or without padding; undefined if it is malformed or no text. */
export function fromBase64(text: unknown): Bytes | undefined {
  if (typeof text !== "string") return undefined;
  try {
    const digits = atob(text);
    // `Uint8Array.from` takes twenty times as long, and payloads may have megabytes.
    const bytes = new Uint8Array(digits.length);
    for (let at = 0; at < bytes.length; at += 1) bytes[at] = digits.charCodeAt(at);
    return bytes;
  } catch {
    return undefined;
  }
}
