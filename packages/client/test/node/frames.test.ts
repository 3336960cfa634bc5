import { describe, expect, test, vi } from "vitest";
import { inflate } from "../../src/transport/node/deflate.js";
import { FrameError, FrameReader } from "../../src/transport/node/frames.js";
import { type Random, randomOf } from "../random.js";
import { type FrameCase, vectors, withoutMasks } from "./vectors.js";

vi.setConfig({ testTimeout: 60_000 });

interface Read {
  events: Record<string, unknown>[];
  error?: { name: string; close_code: number };
}

/** Feeds the parts to a reader, each as a copy, as the reader may overwrite headers. */
function read(parts: Buffer[], bytesMax: number, hasDeflate = false): Read {
  const events: Record<string, unknown>[] = [];
  const reader = new FrameReader(bytesMax, {
    message: (frame) =>
      events.push(
        typeof frame === "string" ? { text: frame } : { binary: Buffer.from(frame).toString("hex") },
      ),
    ping: (payload) => events.push({ ping: Buffer.from(payload).toString("hex") }),
    pong: (payload) => events.push({ pong: Buffer.from(payload).toString("hex") }),
    close: (code, reason) => events.push({ close: { code: code ?? null, reason } }),
  });
  if (hasDeflate) reader.inflateWith(inflate);
  try {
    for (const part of parts) reader.read(Buffer.from(part));
  } catch (error) {
    if (!(error instanceof FrameError)) throw error;
    return { events, error: { name: error.rule, close_code: error.closeCode } };
  }
  return { events };
}

function everyByte(bytes: Buffer): Buffer[] {
  return Array.from(bytes, (_, index) => bytes.subarray(index, index + 1));
}

function randomParts(bytes: Buffer, random: Random): Buffer[] {
  const parts: Buffer[] = [];
  for (let at = 0; at < bytes.length; ) {
    const size = 1 + random(random(4) === 0 ? 400 : 12);
    parts.push(bytes.subarray(at, at + size));
    at += size;
  }
  return parts;
}

/** Cases in which a message refers to the one before, which this client forbids the server. */
const REFERRING = ["compressed and not compressed in turn"];

/** Cases for the client's reader: its own, and those of a server's with the masks taken off. */
function casesOf(file: string): [name: string, bytes: Buffer, found: FrameCase][] {
  return vectors<FrameCase>(file)
    .filter((one) => one.error?.name !== "not_masked" && !REFERRING.includes(one.name))
    .map((one) => {
      const bytes = Buffer.from(one.bytes, "hex");
      return [one.name, one.reader === "client" ? bytes : withoutMasks(bytes), one];
    });
}

describe.each(["frames", "fragmentation", "deflate-frames"])("the vectors of %s", (file) => {
  test.each(casesOf(file))("%s", (_name, bytes, found) => {
    const bytesMax = found.message_bytes_max ?? 1_048_576;
    const wanted: Read = { events: found.events, ...(found.error ? { error: found.error } : {}) };
    expect(read([bytes], bytesMax, found.deflate)).toEqual(wanted);
    expect(read(everyByte(bytes), bytesMax, found.deflate)).toEqual(wanted);
    const random = randomOf(bytes.length);
    for (let round = 0; round < 5; round += 1) {
      expect(read(randomParts(bytes, random), bytesMax, found.deflate)).toEqual(wanted);
    }
  });
});

test("every case of the frames for clients is among the cases", () => {
  expect(casesOf("frames").length).toBeGreaterThan(100);
  expect(casesOf("frames").filter(([, , one]) => one.reader === "client").length).toBeGreaterThan(15);
});

const TEXTS = [
  "",
  "a",
  '{"t":"trade"}',
  "größe κόσμε 🌊",
  "\ufffd in itself",
  "\u0000\u007f",
  "x".repeat(300),
];

function frameOf(opcode: number, payload: Buffer, isFinal = true): Buffer {
  const first = (isFinal ? 0x80 : 0) | opcode;
  if (payload.length < 126) return Buffer.concat([Buffer.from([first, payload.length]), payload]);
  const header = Buffer.from([first, 126, payload.length >> 8, payload.length & 255]);
  return Buffer.concat([header, payload]);
}

/** Messages, some in fragments with pings in between, and the events they make. */
function randomStream(random: Random): { bytes: Buffer; events: Record<string, unknown>[] } {
  const parts: Buffer[] = [];
  const events: Record<string, unknown>[] = [];
  for (let index = 0; index < 40; index += 1) {
    const isText = random(3) > 0;
    const text = TEXTS[random(TEXTS.length)]!;
    const payload = isText
      ? Buffer.from(text)
      : Buffer.from(Array.from({ length: random(300) }, () => random(256)));
    const event = isText ? { text } : { binary: payload.toString("hex") };
    const opcode = isText ? 1 : 2;
    if (random(4) > 0) {
      parts.push(frameOf(opcode, payload));
    } else {
      const cut = random(payload.length + 1);
      parts.push(frameOf(opcode, payload.subarray(0, cut), false));
      if (random(2) === 0) {
        parts.push(frameOf(9, Buffer.from([index])));
        events.push({ ping: Buffer.from([index]).toString("hex") });
      }
      parts.push(frameOf(0, payload.subarray(cut)));
    }
    events.push(event);
  }
  return { bytes: Buffer.concat(parts), events };
}

test.each([1, 2, 3, 4, 5])("any split of the bytes gives the same messages, seed %i", (seed) => {
  const random = randomOf(seed);
  for (let round = 0; round < 40; round += 1) {
    const { bytes, events } = randomStream(random);
    expect(read([bytes], 65_536)).toEqual({ events });
    expect(read(randomParts(bytes, random), 65_536)).toEqual({ events });
  }
});

describe("text", () => {
  test("that is not UTF-8 is refused after the messages before it, and nothing after it is read", () => {
    const bytes = Buffer.concat([
      frameOf(1, Buffer.from("before")),
      frameOf(1, Buffer.from([0x61, 0xff])),
      frameOf(9, Buffer.from("p")),
      frameOf(1, Buffer.from("after")),
    ]);
    const error = { name: "invalid_utf8", close_code: 1007 };
    expect(read([bytes], 1000)).toEqual({ events: [{ text: "before" }], error });
    expect(read(everyByte(bytes), 1000)).toEqual({ events: [{ text: "before" }], error });
  });

  test("that is not UTF-8 is seen before the message ends", () => {
    const start = Buffer.concat([Buffer.from([0x81, 126, 0x10, 0x00]), Buffer.from([0x61, 0xc0])]);
    expect(read([start], 65_536).error).toEqual({ name: "invalid_utf8", close_code: 1007 });
  });

  test("keeps a byte order mark, whole and in parts", () => {
    const bytes = frameOf(1, Buffer.from("\ufeffx"));
    expect(read([bytes], 1000)).toEqual({ events: [{ text: "\ufeffx" }] });
    expect(read(everyByte(bytes), 1000)).toEqual({ events: [{ text: "\ufeffx" }] });
  });
});

describe("the limit of a message", () => {
  test("is seen in the header, before the payload", () => {
    expect(read([Buffer.from([0x81, 126, 0x03, 0xe9])], 1000)).toEqual({
      events: [],
      error: { name: "message_too_large", close_code: 1009 },
    });
    expect(read([Buffer.from([0x81, 126, 0x03, 0xe8])], 1000)).toEqual({ events: [] });
  });

  test("holds for the fragments together", () => {
    const bytes = Buffer.concat([frameOf(2, Buffer.alloc(600), false), Buffer.from([0x80, 126, 0x01, 0x91])]);
    expect(read([bytes], 1000).error).toEqual({ name: "message_too_large", close_code: 1009 });
    const fits = Buffer.concat([frameOf(2, Buffer.alloc(600), false), frameOf(0, Buffer.alloc(400))]);
    expect(read([fits], 1000).events).toEqual([{ binary: "00".repeat(1000) }]);
  });

  test("does not reserve the memory that a header declares", () => {
    const before = process.memoryUsage().arrayBuffers;
    const readers = Array.from({ length: 50 }, () => {
      const reader = new FrameReader(2 ** 30, { message() {}, ping() {}, pong() {}, close() {} });
      reader.read(Buffer.from([0x82, 127, 0, 0, 0, 0, 0x30, 0, 0, 0, 1, 2, 3]));
      return reader;
    });
    expect(readers.length).toBe(50);
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(64 * 2 ** 20);
  });
});

test.each([1, 2])("a message of opcode %i in a million parts takes no more memory than in one", (opcode) => {
  const parts = 1_000_000;
  let message: unknown;
  const sink = { message: (frame: unknown) => (message = frame), ping() {}, pong() {}, close() {} };
  const reader = new FrameReader(parts, sink);
  const block = Buffer.concat(Array.from({ length: 10_000 }, () => Buffer.from([0, 1, 0x61])));
  reader.read(Buffer.from([opcode, 0]));
  const before = process.memoryUsage();
  for (let read = 0; read < parts / 10_000; read += 1) reader.read(Buffer.from(block));
  const after = process.memoryUsage();
  expect(after.heapUsed + after.external - before.heapUsed - before.external).toBeLessThan(60 * 2 ** 20);
  reader.read(Buffer.from([0x80, 0]));
  expect((message as { length: number }).length).toBe(parts);
});

test("a message longer than a read is put together", () => {
  const payload = Buffer.from("0123456789".repeat(20_000));
  const header = Buffer.alloc(10);
  header.set([0x82, 127]);
  header.writeBigUInt64BE(BigInt(payload.length), 2);
  const bytes = Buffer.concat([header, payload, frameOf(1, Buffer.from("next"))]);
  const parts = Array.from({ length: Math.ceil(bytes.length / 65_536) }, (_, index) =>
    bytes.subarray(index * 65_536, (index + 1) * 65_536),
  );
  expect(read(parts, 1 << 20).events).toEqual([{ binary: payload.toString("hex") }, { text: "next" }]);
});

test("many fragments of a compressed message past its limit cost no more than their bytes", () => {
  const limit = 4 * 1024 * 1024;
  const fragment = (first: number, payload: Buffer) => {
    const header = Buffer.from([first, 127, 0, 0, 0, 0, 0, 0, 0, 0]);
    header.writeUInt32BE(payload.length, 6);
    return payload.length < 126
      ? Buffer.from([first, payload.length, ...payload])
      : Buffer.concat([header, payload]);
  };
  const stored = fragment(0x42, Buffer.alloc(limit));
  const more = Buffer.concat(Array.from({ length: 1500 }, () => fragment(0, Buffer.alloc(1))));
  const copies = vi.spyOn(Buffer, "allocUnsafeSlow");
  read([stored, more], limit, true);
  expect(copies.mock.calls.length).toBeLessThan(10);
  copies.mockRestore();
});
