import { describe, expect, test, vi } from "vitest";
import {
  DEFLATE_OFFER,
  type DeflateParameters,
  deflate,
  inflate,
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
/** Those in which no message refers to the one before. */
const STREAMS = vectors<Stream>("deflate").filter((one) => !one.keeps_context || one.messages.length === 1);

test("the vectors have answers and streams", () => {
  expect(ANSWERS.filter((one) => one.agreed !== undefined).length).toBeGreaterThan(1);
  expect(ANSWERS.filter((one) => one.agreed === undefined).length).toBeGreaterThan(4);
  expect(STREAMS.length).toBeGreaterThan(12);
});

test.each(ANSWERS.map((one) => [one.name, one] as const))("the answer %s", (_name, one) => {
  expect(readDeflateAnswer(one.response!)).toEqual(one.agreed);
});

test.each(STREAMS.map((one) => [one.name, one] as const))("the stream %s", (_name, one) => {
  for (const { payload, plain } of one.messages) {
    const read = () => inflate(Buffer.from(payload, "hex"), one.inflated_bytes_max ?? 1_048_576);
    if (plain !== undefined) {
      expect(read().toString("hex")).toBe(plain);
      continue;
    }
    let found: unknown;
    try {
      read();
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
    const agreed = readDeflateAnswer(
      `permessage-deflate; server_no_context_takeover; client_max_window_bits=${bits}`,
    )!;
    for (let round = 0; round < 50; round += 1) {
      const letters = Array.from({ length: random(5_000) }, () => "abc "[random(4)]!);
      const message = Buffer.from(letters.join("") + "repeated ".repeat(random(200)));
      const payload = deflate(message, agreed);
      expect(inflate(payload, 1_048_576).equals(message)).toBe(true);
    }
  });

  test("has the size that a message may have, and no byte more", () => {
    const agreed = readDeflateAnswer("permessage-deflate; server_no_context_takeover")!;
    const payload = deflate(Buffer.from("x"), agreed);
    expect(inflate(payload, 1).toString()).toBe("x");
    expect(() => inflate(payload, 0)).toThrow(FrameError);
  });

  test("keeps little memory for a short message", () => {
    const agreed = readDeflateAnswer("permessage-deflate; server_no_context_takeover")!;
    const message = inflate(deflate(Buffer.from("short"), agreed), 1_048_576);
    expect(message.buffer.byteLength).toBeLessThanOrEqual(8_192);
  });

  test("may have few streams", () => {
    const stream = Buffer.from("f348cdc9c90700", "hex");
    const streams = (count: number) => Buffer.concat(Array.from({ length: count }, () => stream));
    expect(inflate(streams(10), 1000).toString()).toBe("Hello".repeat(10));
    expect(() => inflate(streams(1000), 1_048_576)).toThrow(FrameError);
  });
});
