import { randomBytes } from "node:crypto";
import { deflateSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { byStreams, compress } from "../src/compress.js";
import { hex, utf8 } from "../src/core/bytes.js";
import { TidewireError } from "../src/errors.js";
import { framesAfter, type MessageCase, unhex, vectors } from "./vectors.js";

const MAX = 1 << 20;

async function codeOf(call: () => unknown): Promise<string> {
  try {
    await call();
  } catch (error) {
    if (error instanceof TidewireError) return error.code;
    throw error;
  }
  return "none";
}

describe.each([
  ["by node:zlib", compress()],
  ["by streams", byStreams()],
])("compression %s", (_, layer) => {
  test("what it deflates is one zlib stream that it inflates", async () => {
    for (const bytes of [new Uint8Array(), utf8("a"), utf8("tide".repeat(5_000)), randomBytes(100_000)]) {
      const deflated = await layer.deflate(bytes);
      expect(deflated[0]).toBe(0x78);
      expect(hex(await layer.inflate(deflated, MAX))).toBe(hex(bytes));
    }
    expect((await layer.deflate(utf8("tide".repeat(5_000)))).length).toBeLessThan(200);
  });

  test("the vectors inflate to the other forms of their messages", async () => {
    let count = 0;
    for (const one of vectors<MessageCase>("envelopes")) {
      const plain = one.frames.flatMap((frame) => ("binary" in frame ? [frame.binary] : []));
      for (const frame of framesAfter("433a", one)) {
        const inflated = hex(await layer.inflate(frame, MAX));
        expect(plain).toContain(inflated);
        count += 1;
      }
    }
    expect(count).toBeGreaterThan(50);
  });

  test("a broken stream, and one with bytes behind it, is refused", async () => {
    let count = 0;
    for (const one of vectors<MessageCase>("malformed").filter((one) => one.reason === "inflate")) {
      const bare = one.frames.flatMap((frame) =>
        "binary" in frame && frame.binary.startsWith("78") ? [unhex(frame.binary)] : [],
      );
      for (const frame of [...framesAfter("433a", one), ...bare]) {
        expect(await codeOf(() => layer.inflate(frame, MAX)), hex(frame)).toBe("PROTOCOL_ERROR");
        count += 1;
      }
    }
    expect(count).toBe(9);
    const dictionary = deflateSync(utf8("tide"), { dictionary: utf8("tide") });
    expect(await codeOf(() => layer.inflate(dictionary, MAX))).toBe("PROTOCOL_ERROR");
  });

  test("the limit holds for what comes out, to the byte", async () => {
    const deflated = deflateSync(new Uint8Array(1_000));
    expect((await layer.inflate(deflated, 1_000)).length).toBe(1_000);
    expect(await codeOf(() => layer.inflate(deflated, 999))).toBe("MESSAGE_TOO_LARGE");
    const bomb = deflateSync(new Uint8Array(100 << 20));
    expect(await codeOf(() => layer.inflate(bomb, 1 << 16))).toBe("MESSAGE_TOO_LARGE");
  });

  test("the bytes given are not needed after the call", async () => {
    const shared = Uint8Array.from(deflateSync(utf8("tide")));
    const inflating = layer.inflate(shared, MAX);
    shared.fill(0);
    expect(hex(await inflating)).toBe(hex(utf8("tide")));
    const plain = utf8("tide");
    const deflating = layer.deflate(plain);
    plain.fill(0);
    expect(hex(await layer.inflate(await deflating, MAX))).toBe(hex(utf8("tide")));
  });
});

test("a stream whose own end stands behind it once more is refused by node:zlib", async () => {
  const whole = deflateSync(utf8("tide"));
  for (const more of [whole.subarray(-4), whole]) {
    expect(await codeOf(() => compress().inflate(Uint8Array.of(...whole, ...more), MAX))).toBe(
      "PROTOCOL_ERROR",
    );
  }
});
