import { describe, expect, test, vi } from "vitest";
import {
  DEFLATE_OFFER,
  type DeflateParameters,
  Deflater,
  Inflater,
  readDeflateAnswer,
} from "../../src/transport/node/deflate.js";
import { FrameError } from "../../src/transport/node/frames.js";
import { randomOf } from "../random.js";
import { vectors } from "./vectors.js";

vi.setConfig({ testTimeout: 60_000 });

interface Negotiation {
  name: string;
  side: "server" | "client";
  offer?: string;
  response?: string;
  agreed?: DeflateParameters;
}

interface Stream {
  name: string;
  window_bits: number;
  keeps_context: boolean;
  messages: { payload: string; plain?: string }[];
  inflated_bytes_max?: number;
  error?: { name: string; close_code: number };
}

/** The answers to what this client offers. */
const ANSWERS = vectors<Negotiation>("deflate-negotiation").filter((one) => one.offer === DEFLATE_OFFER);
const STREAMS = vectors<Stream>("deflate");

function agreedOn(bits: number, keeps: boolean): DeflateParameters {
  return {
    server_no_context_takeover: !keeps,
    client_no_context_takeover: !keeps,
    server_max_window_bits: bits,
    client_max_window_bits: bits,
  };
}

test("the vectors have answers and streams", () => {
  expect(ANSWERS.filter((one) => one.agreed !== undefined).length).toBeGreaterThan(3);
  expect(ANSWERS.filter((one) => one.agreed === undefined).length).toBeGreaterThan(5);
  expect(STREAMS.length).toBeGreaterThan(15);
});

test.each(ANSWERS.map((one) => [one.name, one] as const))("the answer %s", (_name, one) => {
  expect(readDeflateAnswer(one.response!)).toEqual(one.agreed);
});

test.each(STREAMS.map((one) => [one.name, one] as const))("the stream %s", (_name, one) => {
  const inflater = new Inflater(agreedOn(one.window_bits, one.keeps_context));
  for (const { payload, plain } of one.messages) {
    const inflate = () => inflater.inflate(Buffer.from(payload, "hex"), one.inflated_bytes_max ?? 1_048_576);
    if (plain !== undefined) {
      expect(inflate().toString("hex")).toBe(plain);
      continue;
    }
    let found: unknown;
    try {
      inflate();
    } catch (error) {
      found = error;
    }
    expect(found).toBeInstanceOf(FrameError);
    const { rule, closeCode } = found as FrameError;
    expect({ name: rule, close_code: closeCode }).toEqual(one.error);
  }
});

describe("what is deflated", () => {
  test.each([8, 9, 12, 15])("inflates to itself, window of %i bits", (bits) => {
    const random = randomOf(bits);
    for (const keeps of [true, false]) {
      const deflater = new Deflater(agreedOn(bits, keeps));
      const inflater = new Inflater(agreedOn(bits, keeps));
      for (let round = 0; round < 30; round += 1) {
        const letters = Array.from({ length: random(5_000) }, () => "abc "[random(4)]!);
        const message = Buffer.from(letters.join("") + "repeated ".repeat(random(200)));
        const payload = deflater.deflate(message);
        expect(inflater.inflate(payload, 1_048_576).equals(message)).toBe(true);
      }
    }
  });

  test("is shorter for what was said before, if the client keeps its window", () => {
    const message = Buffer.from(
      JSON.stringify({ t: "trade", p: { symbol: "BTC-USD", price: 1.5, venue: "XNAS" } }),
    );
    const [first, second] = [true, false].map((keeps) => {
      const deflater = new Deflater(agreedOn(15, keeps));
      deflater.deflate(message);
      return deflater.deflate(message).length;
    });
    expect(first).toBeLessThan(second! / 3);
  });
});
