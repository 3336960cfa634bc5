/** UTF-8, also where JavaScript has no `TextEncoder` and `TextDecoder`: in Jest's jsdom, and in some versions of Hermes. */

/** Bytes that are not shared with other threads, as the browser's functions want them. */
export type Bytes = Uint8Array<ArrayBuffer>;

/** What `TextEncoder` is used for. */
export interface Utf8Encoder {
  encode(text: string): Bytes;
  encodeInto(text: string, bytes: Uint8Array): { written: number };
}

/** What `TextDecoder` is used for. */
export interface Utf8Decoder {
  decode(bytes: Uint8Array): string;
}

/** An encoder. Half of a surrogate pair is U+FFFD, or an error where the platform has no encoder. */
export function utf8Encoder(): Utf8Encoder {
  return globalThis.TextEncoder
    ? new TextEncoder()
    : {
        encode,
        encodeInto(text, into) {
          const bytes = encode(text);
          into.set(bytes);
          return { written: bytes.length };
        },
      };
}

/** A decoder, which throws for bytes that are not UTF-8 and keeps a byte order mark. */
export function utf8Decoder(): Utf8Decoder {
  return globalThis.TextDecoder ? new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }) : { decode };
}

function encode(text: string): Bytes {
  return fromBinary(unescape(encodeURIComponent(text)));
}

function decode(bytes: Uint8Array): string {
  return decodeURIComponent(escape(toBinary(bytes)));
}

/** The bytes of a text with one byte in each character, which is what `atob` returns. */
export function fromBinary(text: string): Bytes {
  // `Uint8Array.from` needs twenty times as long, and payloads may have megabytes.
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < bytes.length; at += 1) bytes[at] = text.charCodeAt(at);
  return bytes;
}

/** A text with one byte in each character, which is the input of `btoa`. */
export function toBinary(bytes: Uint8Array): string {
  let text = "";
  // In pieces, because a function accepts a limited number of arguments.
  for (let at = 0; at < bytes.length; at += 8192) {
    text += String.fromCharCode(...bytes.subarray(at, at + 8192));
  }
  return text;
}
