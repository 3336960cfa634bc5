/** The messages of the tests: the load lab's trades, as JavaScript values. */

import { deflateSync } from "node:zlib";
import { PreparedFrame } from "@tidewire/client/node";
import type { Encoding, MessageKind } from "./contract.js";
import { encodeMessagePack } from "./msgpack.js";
import { type Random, randomOf } from "./random.js";

const SYMBOLS = [
  "BTC-USD",
  "ETH-USD",
  "SOL-USD",
  "XRP-EUR",
  "ADA-USD",
  "LTC-USD",
  "AAPL",
  "MSFT",
  "AMZN",
  "NVDA",
  "EUR-USD",
  "GBP-JPY",
];
const ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz";
/** From this many bytes on a trade has all its fields. */
const FULL_BYTES_MIN = 170;
const TRADES_BYTES_MIN = 512;
const RING_MIN = 16;
const RING_MAX = 256;
const RING_BYTES = 1024 * 1024;
/** What stands before a message that zlib has compressed. */
const COMPRESSED = Buffer.from("C:");
/** The fastest, as the lab's own. */
const ZLIB_LEVEL = 1;

interface ShortTrade {
  s: string;
  x: number;
  r: string;
}

interface FullTrade {
  symbol: string;
  price: number;
  quantity: number;
  side: string;
  venue: string;
  ts: number;
  ref: string;
}

type Trade = ShortTrade | FullTrade;

/** A message in the form that the transport accepts. */
export interface Sendable {
  /** A new value, encoded. Valid until the next call. */
  readonly frame: string | Uint8Array | PreparedFrame;
  /** Its payload as JSON, which its reply has to have. */
  readonly payload: string;
}

/** Messages of one kind, no two alike. */
export class Messages {
  readonly #type: "trade" | "trades";
  readonly #ring: object[];
  readonly #payloads: string[];
  readonly #encoding: Encoding;
  readonly #prepared: PreparedFrame[] | undefined;

  /** At least `least` of them. */
  constructor(kind: MessageKind, seed: number, least: number, isPrepared: boolean) {
    const size = kind.json_bytes;
    const random = randomOf(seed);
    const wanted = Math.max(least, RING_MIN, Math.min(RING_MAX, Math.floor(RING_BYTES / size)));
    const letters = lettersOf(random, Math.min(size, 64 * 1024) + 1024);
    this.#type = kind.content === "trades" && size >= TRADES_BYTES_MIN ? "trades" : "trade";
    const make = this.#type === "trades" ? trades : trade;
    const known = new Map<string, object>();
    while (known.size < wanted) {
      const payload = make(size, random, letters);
      known.set(JSON.stringify(payload), payload);
    }
    this.#ring = [...known.values()];
    this.#payloads = [...known.keys()];
    this.#encoding = kind.encoding;
    if (isPrepared) {
      this.#prepared = this.#ring.map((payload) => {
        const frame = encode(this.#encoding, { t: this.#type, p: payload });
        return new PreparedFrame(typeof frame === "string" ? frame : Uint8Array.from(frame));
      });
    }
  }

  /** What gives the next message, beginning somewhere in the ring. */
  stream(start: number): () => Sendable {
    let at = start % this.#ring.length;
    return () => {
      const index = at;
      at = at + 1 === this.#ring.length ? 0 : at + 1;
      const payload = this.#payloads[index]!;
      const prepared = this.#prepared?.[index];
      if (prepared !== undefined) return { frame: prepared, payload };
      // A copy, as an application makes a new value for each message.
      const message = { t: this.#type, p: { ...this.#ring[index]! } };
      return { frame: encode(this.#encoding, message), payload };
    };
  }
}

function encode(encoding: Encoding, message: object): string | Uint8Array {
  switch (encoding) {
    case "json":
      return JSON.stringify(message);
    case "msgpack":
      return encodeMessagePack(message);
    case "zlib":
      return Buffer.concat([COMPRESSED, deflateSync(JSON.stringify(message), { level: ZLIB_LEVEL })]);
  }
}

/** Several trades whose message has `size` bytes, and a note over the rest. */
function trades(size: number, random: Random, letters: string): object {
  const rows: Trade[] = [];
  const payload = { venue: "XNAS", trades: rows, note: "" };
  let left = size - messageBytes("trades", payload);
  for (;;) {
    const row = { ...(trade(FULL_BYTES_MIN, random, letters) as FullTrade), ref: "" };
    // A comma stands before all but the first.
    const bytes = Buffer.byteLength(JSON.stringify(row)) + Math.min(1, rows.length);
    if (bytes > left) break;
    rows.push(row);
    left -= bytes;
  }
  payload.note = "partial fill ".repeat(Math.ceil(left / 13)).slice(0, left);
  return payload;
}

/** One trade whose message has `size` bytes. */
function trade(size: number, random: Random, letters: string): Trade {
  const symbol = SYMBOLS[random(SYMBOLS.length)]!;
  const price = (100 + random(9_999_900)) / 100;
  if (size < FULL_BYTES_MIN) {
    const short: ShortTrade = { s: symbol, x: price, r: "" };
    short.r = filling(size - messageBytes("trade", short), random, letters);
    return short;
  }
  const full: FullTrade = {
    symbol,
    price,
    quantity: (1 + random(999_999)) / 1_000_000,
    side: random(2) === 0 ? "buy" : "sell",
    venue: "XNAS",
    ts: 1_700_000_000_000 + random(100_000_000) * 1000,
    ref: "",
  };
  full.ref = filling(size - messageBytes("trade", full), random, letters);
  return full;
}

/** The length of a message as the application sees it, in JSON. */
function messageBytes(type: string, payload: object): number {
  return Buffer.byteLength(JSON.stringify({ t: type, p: payload }));
}

function lettersOf(random: Random, count: number): string {
  return Array.from({ length: count }, () => ALPHABET[random(ALPHABET.length)]).join("");
}

/** Random letters, from a random place in many. */
function filling(count: number, random: Random, letters: string): string {
  if (count <= 0) return "";
  const start = random(Math.max(1, letters.length - count));
  let text = letters.slice(start, start + count);
  while (text.length < count) text += letters.slice(0, count - text.length);
  return text;
}

/** The payload of a publication of a fan-out. */
export interface Publication {
  n: number;
  at: number;
  x: string;
}

/** The publication with a number, which was due at a time in microseconds, filled up to `size` bytes. */
export function publication(n: number, at: number, size: number): Publication {
  return { n, at, x: paddingOf(n, at, size) };
}

/** The letters that fill a publication. */
export function paddingOf(n: number, at: number, size: number): string {
  const bytes = size - PUBLICATION_BYTES - String(n).length - String(at).length;
  return PADDING.slice(0, Math.max(0, bytes)).padEnd(bytes, "x");
}

/** A publication without the digits of its numbers and without letters. */
const PUBLICATION_BYTES =
  JSON.stringify({ c: "U", t: "f", tp: "fan-out", p: { n: 0, at: 0, x: "" } }).length - 2;
const PADDING = "x".repeat(1024);
