/** The messages of the tests: the load lab's trades, as JavaScript values. */

import { PreparedFrame } from "@tidewire/client/node";
import { encodeMessagePack } from "./msgpack.js";
import type { Format } from "./plan.js";
import { type Random, randomOf } from "./random.js";

export const TRADE_BYTES = 175;
export const PAYLOAD_BYTES_MIN = 64;
export const PAYLOAD_BYTES_MAX = 15 * 1024 * 1024;
export const FAN_OUT_BYTES = 95;
export const FAN_OUT_BYTES_MIN = 80;

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
const RING_MIN = 16;
const RING_MAX = 256;
const RING_BYTES = 1024 * 1024;

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

/** A message as the transport takes it, and its length. */
export interface MessageStream {
  /** The next message: a new value, encoded. Valid until the next call. */
  next(): string | Uint8Array | PreparedFrame;
  /** The mean length of a message in its format, without WebSocket's framing. */
  readonly wireBytes: number;
}

/** Trades of `size` bytes in their JSON form, no two alike. */
export class Messages {
  readonly #ring: Trade[];
  readonly #format: Format;
  readonly #prepared: PreparedFrame[] | undefined;
  readonly wireBytes: number;

  constructor(size: number, format: Format, seed: number, isPrepared: boolean) {
    const random = randomOf(seed);
    const wanted = Math.max(RING_MIN, Math.min(RING_MAX, Math.floor(RING_BYTES / size)));
    const letters = lettersOf(random, Math.min(size, 64 * 1024) + 1024);
    this.#ring = Array.from({ length: wanted }, () => trade(size, random, letters));
    this.#format = format;
    const encoded = this.#ring.map((payload) => encode(format, payload));
    const total = encoded.reduce((sum, message) => sum + Buffer.byteLength(message), 0);
    this.wireBytes = total / wanted;
    if (isPrepared) this.#prepared = encoded.map((message) => new PreparedFrame(message));
  }

  /** Messages that begin somewhere in the ring. */
  stream(start: number): MessageStream {
    const ring = this.#ring;
    const prepared = this.#prepared;
    const format = this.#format;
    let at = start % ring.length;
    const following = () => {
      const index = at;
      at = at + 1 === ring.length ? 0 : at + 1;
      return index;
    };
    const next =
      prepared === undefined
        ? () => {
            // A copy, as an application makes a new value for each message.
            const message = { t: "trade", p: { ...ring[following()]! } };
            return format === "json" ? JSON.stringify(message) : encodeMessagePack(message);
          }
        : () => prepared[following()]!;
    return { next, wireBytes: this.wireBytes };
  }
}

function encode(format: Format, payload: Trade): string | Uint8Array {
  const message = { t: "trade", p: payload };
  return format === "json" ? JSON.stringify(message) : Uint8Array.from(encodeMessagePack(message));
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
export function messageBytes(type: string, payload: object): number {
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
  pad: string;
}

/** The payload of the publication with a number, which was due at a time, filled up to `size` bytes. */
export function publication(n: number, at: number, size: number): Publication {
  const payload: Publication = { n, at, pad: "" };
  payload.pad = padOf(n, at, size);
  return payload;
}

/** The letters that fill a publication. */
export function padOf(n: number, at: number, size: number): string {
  // {"t":"tick","p":{"n":…,"at":…,"pad":""}} without the digits has 35 bytes.
  const bytes = PUBLICATION_FRAME_BYTES + String(n).length + String(at).length;
  return PADDING.slice(0, Math.max(0, size - bytes)).padEnd(Math.max(0, size - bytes), "x");
}

const PUBLICATION_FRAME_BYTES = messageBytes("tick", { n: 0, at: 0, pad: "" }) - 2;
const PADDING = "x".repeat(1024);
