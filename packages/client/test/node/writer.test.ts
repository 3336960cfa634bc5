import { describe, expect, test, vi } from "vitest";
import { OPCODE } from "../../src/transport/node/frames.js";
import { FrameWriter } from "../../src/transport/node/writer.js";
import { PreparedFrame } from "../../src/transport/prepared.js";
import { randomOf } from "../random.js";
import { type FrameCase, rawFrames, vectors, withoutMasks } from "./vectors.js";

vi.setConfig({ testTimeout: 60_000 });

/** What a writer hands over, in pieces, as copies. */
function written(write: (writer: FrameWriter) => void): Buffer[] {
  const pieces: Buffer[] = [];
  const writer = new FrameWriter((bytes) => pieces.push(Buffer.from(bytes)));
  write(writer);
  writer.flush();
  return pieces;
}

const CASES = vectors<FrameCase>("frames").filter(
  (one) => one.frame !== undefined && one.reader === "server",
);

test("the vectors have frames of a client", () => expect(CASES.length).toBeGreaterThan(10));

test.each(CASES.map((one) => [one.name, one] as const))(
  "writes the vector %s, but for the mask",
  (_name, one) => {
    const { opcode, payload } = one.frame!;
    const bytes = Buffer.from(payload, "hex");
    const pieces = written((writer) => {
      if (opcode === "text") writer.message(bytes.toString("utf8"));
      else if (opcode === "binary") writer.message(bytes);
      else writer.control(OPCODE[opcode], bytes);
    });
    const all = Buffer.concat(pieces);
    expect(rawFrames(all).every((frame) => frame.mask !== undefined)).toBe(true);
    expect(withoutMasks(all).toString("hex")).toBe(
      withoutMasks(Buffer.from(one.bytes, "hex")).toString("hex"),
    );
  },
);

test("frames at any offset and of any length are masked as RFC 6455 has it", () => {
  const random = randomOf(7);
  for (let round = 0; round < 200; round += 1) {
    const payloads = Array.from({ length: 1 + random(8) }, () =>
      Buffer.from(Array.from({ length: random(random(3) === 0 ? 700 : 20) }, () => random(256))),
    );
    const all = Buffer.concat(
      written((writer) => {
        for (const payload of payloads) writer.message(payload);
      }),
    );
    const frames = rawFrames(all);
    expect(frames.map((frame) => frame.payload)).toEqual(payloads);
  }
});

test("strings of any length and content arrive as UTF-8", () => {
  const random = randomOf(11);
  const alphabet = ["a", "b", "é", "κ", "€", "🌊", "\u0000"];
  for (const length of [
    0, 1, 41, 42, 60, 124, 125, 126, 127, 200, 5000, 21_840, 21_846, 65_535, 65_536, 70_000,
  ]) {
    for (const kinds of [1, 2, alphabet.length]) {
      const text = Array.from({ length }, () => alphabet[random(kinds)]!).join("");
      const all = Buffer.concat(
        written((writer) => {
          writer.message("first");
          writer.message(text);
          writer.message("last");
        }),
      );
      expect(rawFrames(all).map((frame) => frame.payload.toString("utf8"))).toEqual(["first", text, "last"]);
    }
  }
});

test("a lone surrogate becomes the replacement character", () => {
  const all = Buffer.concat(written((writer) => writer.message("a\ud800b")));
  expect(rawFrames(all)[0]!.payload.toString("utf8")).toBe("a\ufffdb");
});

describe("prepared frames", () => {
  test("are text or binary as their data is", () => {
    const all = Buffer.concat(
      written((writer) => {
        writer.message(new PreparedFrame("é"));
        writer.message(new PreparedFrame(new Uint8Array([1, 2])));
      }),
    );
    expect(rawFrames(all).map((frame) => [frame.first, frame.payload.toString("hex")])).toEqual([
      [0x81, "c3a9"],
      [0x82, "0102"],
    ]);
  });

  test("keep their bytes and get another mask each time", () => {
    const frame = new PreparedFrame("x".repeat(100));
    const all = Buffer.concat(
      written((writer) => {
        for (let index = 0; index < 1000; index += 1) writer.message(frame);
      }),
    );
    const frames = rawFrames(all);
    expect(new Set(frames.map((one) => one.mask!.toString("hex"))).size).toBeGreaterThan(990);
    expect(frames.every((one) => one.payload.toString() === "x".repeat(100))).toBe(true);
    expect(Buffer.from(frame.bytes).toString()).toBe("x".repeat(100));
  });
});

test("the messages of a turn leave in one piece, up to 64 KiB", () => {
  const few = written((writer) => {
    for (let index = 0; index < 300; index += 1) writer.message("x".repeat(175));
  });
  expect(few.length).toBe(1);
  const many = written((writer) => {
    for (let index = 0; index < 1000; index += 1) writer.message("x".repeat(175));
  });
  expect(many.length).toBeLessThanOrEqual(4);
  expect(Math.max(...many.map((piece) => piece.length))).toBeLessThanOrEqual(65_536);
  expect(rawFrames(Buffer.concat(many)).length).toBe(1000);
});

test("a control frame past 125 bytes is refused", () => {
  expect(() => written((writer) => writer.control(OPCODE.ping, Buffer.alloc(126)))).toThrow(RangeError);
});
