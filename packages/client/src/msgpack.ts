/** MessagePack (PROTOCOL 5.3) instead of JSON: smaller messages, and payloads with binary. */

import { DEVELOPMENT } from "#development";
import { base64 } from "./core/bytes.js";
import type { EncodedPayload, Envelope, EnvelopeFields, Format } from "./core/layers.js";
import {
  bytesOf,
  isRecord,
  isWhole,
  LEVELS_AROUND,
  LEVELS_MAX,
  levelsAround,
  unsendable,
} from "./core/payload.js";
import { utf8Decoder, utf8Encoder } from "./core/utf8.js";
import { TidewireError } from "./errors.js";

/**
 * MessagePack as the format of a connection. Numbers are written in the shortest form that keeps their value,
 * bigints as integers of 64 bits, bytes as binary. Other values that JSON does not have are refused, as JSON
 * refuses them. When read, such values become JSON by the rules of PROTOCOL 5.3: binary inside a payload is
 * base64, timestamps are RFC 3339, NaN and infinity are null. An integer past 2^53 reads as the nearest number,
 * as `JSON.parse` does it.
 */
export function msgpack(): Format {
  return { query: "msgpack", payload, envelope, read };
}

/** What {@link write} throws for a value that cannot be written. */
const FLAW = new Error();

function payload(value: unknown, name = "payload"): EncodedPayload {
  length = 0;
  try {
    write(value, levelsAround(name));
  } catch (error) {
    if (error !== FLAW) throw error;
    throw unsendable(name, value, true);
  }
  return bytes.slice(0, length);
}

function envelope(fields: EnvelopeFields, payload: EncodedPayload | undefined): Uint8Array {
  length = 0;
  reserve(8);
  bytes[length++] = 0x4d;
  bytes[length++] = 0x3a;
  const names = Object.keys(fields).filter((name) => fields[name as keyof EnvelopeFields] !== undefined);
  writeHead(names.length + (payload === undefined ? 1 : 2), 0x80, 15, 0xde - 1);
  for (const name of names) {
    writeText(name);
    write(fields[name as keyof EnvelopeFields], 1);
  }
  writeText("v");
  write(1, 1);
  if (payload !== undefined) {
    writeText("p");
    reserve(payload.length);
    bytes.set(payload as Uint8Array, length);
    length += payload.length;
  }
  return bytes.slice(0, length);
}

// One message is written at a time, so that one buffer is enough. It does not stay large.
let bytes = new Uint8Array(4096);
let view = new DataView(bytes.buffer);
let length = 0;
const encoder = utf8Encoder();

/** Makes room for `count` bytes and the head of a value. */
function reserve(count: number): void {
  if (length === 0 && bytes.length > 1 << 20) bytes = new Uint8Array(4096);
  if (length + count + 9 > bytes.length) {
    const larger = new Uint8Array(Math.max(bytes.length * 2, length + count + 9));
    larger.set(bytes.subarray(0, length));
    bytes = larger;
  }
  if (view.buffer !== bytes.buffer) view = new DataView(bytes.buffer);
}

/**
 * Writes an unsigned integer of 1, 2 or 4 bytes behind a code, which is counted up from `code` for
 * each size.
 */
function writeUint(value: number, code: number): void {
  if (value < 0x100) {
    bytes[length] = code;
    bytes[length + 1] = value;
    length += 2;
  } else if (value < 0x10000) {
    bytes[length] = code + 1;
    view.setUint16(length + 1, value);
    length += 3;
  } else {
    bytes[length] = code + 2;
    view.setUint32(length + 1, value);
    length += 5;
  }
}

/** Writes the length of a text, array or map: within the code up to `fixMax`, else behind one. */
function writeHead(count: number, fix: number, fixMax: number, code: number): void {
  if (count <= fixMax) bytes[length++] = fix | count;
  // Arrays and maps have no length of one byte.
  else if (code > 0xd9 && count < 0x100) {
    bytes[length] = code + 1;
    view.setUint16(length + 1, count);
    length += 3;
  } else writeUint(count, code);
}

function writeText(text: string): void {
  reserve(text.length * 3);
  const start = length;
  // The head is as large as it would be for ASCII; if it is not, the text is moved.
  writeHead(text.length, 0xa0, 31, 0xd9);
  const at = length;
  // Short ASCII texts, which most are, are faster without the encoder.
  let ascii = 0;
  while (ascii < text.length && ascii < 64) {
    const unit = text.charCodeAt(ascii);
    if (unit >= 0x80) break;
    bytes[at + ascii] = unit;
    ascii += 1;
  }
  length = at + ascii;
  if (ascii === text.length) return;
  if (!isWhole(text)) throw FLAW;
  const { written } = encoder.encodeInto(text, bytes.subarray(at));
  if (written !== text.length) {
    const head = written < 32 ? 1 : written < 0x100 ? 2 : written < 0x10000 ? 3 : 5;
    bytes.copyWithin(start + head, at, at + written);
    length = start;
    writeHead(written, 0xa0, 31, 0xd9);
  } else length = at;
  length += written;
}

function writeNumber(value: number): void {
  if (!Number.isSafeInteger(value)) {
    if (!Number.isFinite(value)) throw FLAW;
    if (Math.fround(value) === value) {
      bytes[length] = 0xca;
      view.setFloat32(length + 1, value);
      length += 5;
    } else {
      bytes[length] = 0xcb;
      view.setFloat64(length + 1, value);
      length += 9;
    }
  } else if (value >= -32 && value < 128) {
    bytes[length++] = value;
  } else if (value >= 0 && value < 2 ** 32) {
    writeUint(value, 0xcc);
  } else if (value >= -(2 ** 31) && value < 0) {
    const size = value >= -0x80 ? 0 : value >= -0x8000 ? 1 : 2;
    bytes[length++] = 0xd0 + size;
    if (size === 0) view.setInt8(length, value);
    else if (size === 1) view.setInt16(length, value);
    else view.setInt32(length, value);
    length += 1 << size;
  } else {
    writeBigint(BigInt(value));
  }
}

function writeBigint(value: bigint): void {
  if (BigInt.asUintN(64, value) !== value && BigInt.asIntN(64, value) !== value) throw FLAW;
  bytes[length] = value < 0n ? 0xd3 : 0xcf;
  view.setBigUint64(length + 1, BigInt.asUintN(64, value));
  length += 9;
}

function write(value: unknown, level: number): void {
  let binary: Uint8Array | undefined;
  reserve(0);
  if (typeof value === "string") writeText(value);
  else if (typeof value === "number") writeNumber(value);
  else if (typeof value === "bigint") writeBigint(value);
  else if (typeof value === "boolean") bytes[length++] = value ? 0xc3 : 0xc2;
  else if (value === null) bytes[length++] = 0xc0;
  else if (typeof value !== "object") throw FLAW;
  // Bytes are a payload of their own: inside one, every reader of JSON would get a text.
  else if (level <= LEVELS_AROUND && (binary = bytesOf(value))) {
    reserve(binary.length);
    writeUint(binary.length, 0xc4);
    bytes.set(binary, length);
    length += binary.length;
  } else if (Array.isArray(value)) {
    if (level >= LEVELS_MAX) throw FLAW;
    writeHead(value.length, 0x90, 15, 0xdc - 1);
    // An item that is missing is undefined here.
    for (const item of value) write(item, level + 1);
  } else if (isRecord(value)) {
    if (level >= LEVELS_MAX) throw FLAW;
    writeMap(value as Record<string, unknown>, level + 1);
  } else throw FLAW;
}

function writeMap(value: Record<string, unknown>, level: number): void {
  const keys = Object.keys(value);
  writeHead(keys.length, 0x80, 15, 0xde - 1);
  for (const key of keys) {
    writeText(key);
    write(value[key], level);
  }
}

function read(message: Uint8Array): Envelope {
  const reader = new Reader(message);
  const value = reader.value(0);
  if (!reader.isAtEnd) throw malformed(DEVELOPMENT && "bytes after the map");
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw malformed(DEVELOPMENT && "it is not a map");
  return value as Envelope;
}

function malformed(why: string | false): TidewireError {
  return new TidewireError(
    "PROTOCOL_ERROR",
    DEVELOPMENT && `a message of the server is malformed MessagePack: ${why}`,
    {
      fault: "server",
    },
  );
}

const decoder = utf8Decoder();

/** Reads one message. Declared lengths are believed only as far as there are bytes. */
class Reader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  /** Reads a value that stands inside `level` maps and arrays. */
  value(level: number): unknown {
    const code = this.#uint(1);
    if (code < 0x80) return code;
    if (code < 0x90) return this.#map(code & 15, level);
    if (code < 0xa0) return this.#array(code & 15, level);
    if (code < 0xc0) return this.#text(code & 31);
    if (code >= 0xe0) return code - 0x100;
    if (code === 0xc0) return null;
    if (code === 0xc2 || code === 0xc3) return code === 0xc3;
    if (code >= 0xc4 && code <= 0xc6) return base64(this.#take(this.#uint(1 << (code - 0xc4))));
    if (code >= 0xc7 && code <= 0xc9) return this.#extension(this.#uint(1 << (code - 0xc7)));
    if (code === 0xca || code === 0xcb) return this.#float(code === 0xca ? 4 : 8);
    if (code >= 0xcc && code <= 0xcf) return this.#uint(1 << (code - 0xcc));
    if (code >= 0xd0 && code <= 0xd3) return this.#int(1 << (code - 0xd0));
    if (code >= 0xd4 && code <= 0xd8) return this.#extension(1 << (code - 0xd4));
    if (code >= 0xd9 && code <= 0xdb) return this.#text(this.#uint(1 << (code - 0xd9)));
    if (code === 0xdc || code === 0xdd) return this.#array(this.#uint(code === 0xdc ? 2 : 4), level);
    if (code === 0xde || code === 0xdf) return this.#map(this.#uint(code === 0xde ? 2 : 4), level);
    throw malformed(DEVELOPMENT && "a byte that is no code");
  }

  /** Goes past `size` bytes; where they start. */
  #skip(size: number): number {
    const at = this.#at;
    if (size > this.#bytes.length - at) throw malformed(DEVELOPMENT && "it ends too early");
    this.#at += size;
    return at;
  }

  #take(size: number): Uint8Array {
    const at = this.#skip(size);
    return this.#bytes.subarray(at, at + size);
  }

  #uint(size: number): number {
    const at = this.#skip(size);
    if (size === 1) return this.#bytes[at]!;
    if (size === 2) return this.#view.getUint16(at);
    if (size === 4) return this.#view.getUint32(at);
    return Number(this.#view.getBigUint64(at));
  }

  #int(size: number): number {
    const at = this.#skip(size);
    if (size === 1) return this.#view.getInt8(at);
    if (size === 2) return this.#view.getInt16(at);
    if (size === 4) return this.#view.getInt32(at);
    return Number(this.#view.getBigInt64(at));
  }

  #float(size: number): number | null {
    const at = this.#skip(size);
    const value = size === 4 ? this.#view.getFloat32(at) : this.#view.getFloat64(at);
    return Number.isFinite(value) ? value : null;
  }

  #text(size: number): string {
    const at = this.#skip(size);
    const bytes = this.#bytes;
    if (size < 24) {
      // Faster than the decoder for the short ASCII texts that keys are.
      let text = "";
      let index = at;
      while (index < this.#at && bytes[index]! < 0x80) text += String.fromCharCode(bytes[index++]!);
      if (index === this.#at) return text;
    }
    try {
      return decoder.decode(bytes.subarray(at, this.#at));
    } catch {
      throw malformed(DEVELOPMENT && "text that is not UTF-8");
    }
  }

  #array(count: number, level: number): unknown[] {
    if (level >= LEVELS_MAX) throw malformed(DEVELOPMENT && "too many levels");
    const items: unknown[] = [];
    for (let index = 0; index < count; index += 1) items.push(this.value(level + 1));
    return items;
  }

  #map(count: number, level: number): Record<string, unknown> {
    if (level >= LEVELS_MAX) throw malformed(DEVELOPMENT && "too many levels");
    const map: Record<string, unknown> = {};
    for (let index = 0; index < count; index += 1) {
      const key = this.#key();
      const isPayload = level === 0 && (key === "p" || key === "payload");
      const value = (isPayload && this.#binary()) || this.value(level + 1);
      // If a name occurs twice, the first value counts.
      if (Object.hasOwn(map, key)) continue;
      if (key === "__proto__") Object.defineProperty(map, key, { value, enumerable: true, writable: true });
      else map[key] = value;
    }
    return map;
  }

  /** The bytes of a binary, if one is next. */
  #binary(): Uint8Array | undefined {
    const size = (this.#bytes[this.#at] ?? 0) - 0xc4;
    if (size < 0 || size > 2) return undefined;
    this.#at += 1;
    return this.#take(this.#uint(1 << size)).slice();
  }

  #key(): string {
    const code = this.#bytes[this.#at] ?? 0xc0;
    const isText = (code >= 0xa0 && code < 0xc0) || (code >= 0xd9 && code <= 0xdb);
    if (isText) return this.value(LEVELS_MAX) as string;
    this.#at += 1;
    if (code === 0xcf) return String(this.#view.getBigUint64(this.#skip(8)));
    if (code === 0xd3) return String(this.#view.getBigInt64(this.#skip(8)));
    this.#at -= 1;
    const isInteger = code < 0x80 || code >= 0xe0 || (code >= 0xcc && code < 0xd3);
    if (!isInteger) throw malformed(DEVELOPMENT && "a key that is neither text nor an integer");
    return String(this.value(LEVELS_MAX));
  }

  /** A timestamp from 1970 on (extension -1); others are refused. */
  #extension(size: number): string {
    const type = this.#int(1);
    const at = this.#skip(size);
    let seconds = -1;
    let nanos = 0;
    if (type === -1 && size === 4) seconds = this.#view.getUint32(at);
    if (type === -1 && size === 8) {
      nanos = this.#view.getUint32(at) >>> 2;
      seconds = (this.#view.getUint32(at) & 3) * 2 ** 32 + this.#view.getUint32(at + 4);
    }
    if (type === -1 && size === 12) {
      nanos = this.#view.getUint32(at);
      seconds = Number(this.#view.getBigInt64(at + 4));
    }
    if (seconds < 0 || seconds > SECONDS_MAX || nanos > 999_999_999)
      throw malformed(DEVELOPMENT && "an extension");
    return new Date(seconds * 1000 + Math.floor(nanos / 1e6)).toISOString();
  }
}

/** The end of the year 9999, the last that RFC 3339 can write. */
const SECONDS_MAX = 253_402_300_799;
