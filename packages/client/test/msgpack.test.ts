import { describe, expect, test } from "vitest";
import { base64, hex } from "../src/core/bytes.js";
import { TidewireError } from "../src/errors.js";
import { msgpack } from "../src/msgpack.js";
import { seeded } from "./random.js";
import { framesAfter, type MessageCase, unhex, vectors } from "./vectors.js";

const format = msgpack();
const PREFIX = "4d3a";

function written(value: unknown): string {
  return Buffer.from(format.payload(value) as Uint8Array).toString("hex");
}

/** Reads a payload, given in hex. */
function read(digits: string): unknown {
  return format.read(unhex(`81a170${digits}`)).p;
}

/** Nested arrays around nothing. */
function nested(levels: number): unknown {
  let value: unknown = [];
  for (let level = 1; level < levels; level += 1) value = [value];
  return value;
}

function codeOf(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    if (error instanceof TidewireError) return error.code;
    throw error;
  }
  return "none";
}

describe("msgpack: vectors", () => {
  const cases = [...vectors<MessageCase>("envelopes"), ...vectors<MessageCase>("limits")];
  test.each(cases.filter((one) => one.kind !== "refused" && framesAfter(PREFIX, one).length > 0))(
    "$name",
    (one) => {
      for (const frame of framesAfter(PREFIX, one)) {
        if (one.envelope === null) {
          expect(codeOf(() => format.read(frame))).toBe("PROTOCOL_ERROR");
          continue;
        }
        const { type, payload, ...fields } = format.read(frame);
        const found: Record<string, unknown> = { t: type, p: payload, ...fields };
        for (const [name, value] of Object.entries(one.envelope ?? {})) {
          // Compared as JSON has them, which has doubles for all numbers as well, and bytes as base64.
          const own = found[name] instanceof Uint8Array ? base64(found[name]) : found[name];
          expect(JSON.parse(JSON.stringify(own))).toEqual(value);
        }
      }
    },
  );

  const refused = [...vectors<MessageCase>("malformed"), ...vectors<MessageCase>("limits")];
  const isRefused = (one: MessageCase) => one.kind === "refused" && framesAfter(PREFIX, one).length > 0;
  // Whether a type and fields are as they should be is not a matter of the format.
  const isBroken = ({ name, reason }: MessageCase) =>
    ["not_an_object", "malformed", "too_deep"].includes(reason ?? "") || name === "65 levels";
  test.each(refused.filter(isRefused))("$name", (one) => {
    for (const frame of framesAfter(PREFIX, one)) {
      const code = codeOf(() => format.read(frame));
      if (isBroken(one)) expect(code, hex(frame)).toBe("PROTOCOL_ERROR");
      else expect(["none", "PROTOCOL_ERROR"]).toContain(code);
    }
  });

  interface Time {
    name: string;
    timestamp: string;
    unix_ms: number;
    written?: boolean;
  }
  test.each(vectors<Time>("scalars").filter((one) => one.written))("$name", ({ timestamp, unix_ms }) => {
    const seconds = BigInt(Math.floor(unix_ms / 1000));
    const nanos = (unix_ms % 1000) * 1_000_000 + 999_999;
    const digits = (value: bigint | number, bytes: number) => value.toString(16).padStart(bytes * 2, "0");
    expect(read(`c70cff${digits(nanos, 4)}${digits(seconds, 8)}`)).toBe(timestamp);
    if (seconds < 2n ** 34n) {
      expect(read(`d7ff${digits((BigInt(nanos) << 34n) | seconds, 8)}`)).toBe(timestamp);
    }
  });
});

describe("msgpack: writing", () => {
  test("numbers take the shortest form that keeps them", () => {
    const forms: [number, string][] = [
      [0, "00"],
      [127, "7f"],
      [128, "cc80"],
      [255, "ccff"],
      [256, "cd0100"],
      [65_535, "cdffff"],
      [65_536, "ce00010000"],
      [2 ** 32 - 1, "ceffffffff"],
      [2 ** 32, "cf0000000100000000"],
      [Number.MAX_SAFE_INTEGER, "cf001fffffffffffff"],
      [-1, "ff"],
      [-32, "e0"],
      [-33, "d0df"],
      [-128, "d080"],
      [-129, "d1ff7f"],
      [-32_768, "d18000"],
      [-32_769, "d2ffff7fff"],
      [-(2 ** 31), "d280000000"],
      [-(2 ** 31) - 1, "d3ffffffff7fffffff"],
      [0.25, "ca3e800000"],
      [0.1, "cb3fb999999999999a"],
      [1e300, "cb7e37e43c8800759c"],
      [2 ** 64, "ca5f800000"],
    ];
    for (const [value, digits] of forms) {
      expect(written(value)).toBe(digits);
      expect(read(digits)).toBe(value);
    }
    expect(written(2n ** 64n - 1n)).toBe("cfffffffffffffffff");
    expect(written(-(2n ** 63n))).toBe("d38000000000000000");
    expect(read("cfffffffffffffffff"), "the nearest number, as JSON.parse").toBe(2 ** 64);
    for (const value of [2n ** 64n, -(2n ** 63n) - 1n]) {
      expect(codeOf(() => format.payload(value))).toBe("INVALID_ARGUMENT");
    }
  });

  test("lengths take the shortest form", () => {
    const heads: [number, string, string, string, string][] = [
      [15, "af", "9f", "8f", "c40f"],
      [16, "b0", "dc0010", "de0010", "c410"],
      [31, "bf", "dc001f", "de001f", "c41f"],
      [32, "d920", "dc0020", "de0020", "c420"],
      [255, "d9ff", "dc00ff", "de00ff", "c4ff"],
      [256, "da0100", "dc0100", "de0100", "c50100"],
      [65_535, "daffff", "dcffff", "deffff", "c5ffff"],
      [65_536, "db00010000", "dd00010000", "df00010000", "c600010000"],
    ];
    for (const [count, text, array, map, binary] of heads) {
      const items = new Array(count).fill(0);
      const object = Object.fromEntries(items.map((_, index) => [`k${index}`, index]));
      expect(written("x".repeat(count)).slice(0, text.length)).toBe(text);
      expect(written(items).slice(0, array.length)).toBe(array);
      expect(written(object).slice(0, map.length)).toBe(map);
      expect(written(new Uint8Array(count)).slice(0, binary.length)).toBe(binary);
      for (const value of ["x".repeat(count), items, object]) {
        expect(JSON.stringify(read(written(value)))).toBe(JSON.stringify(value));
      }
    }
  });

  test("text past ASCII, whatever its length", () => {
    for (const letter of ["é", "漢", "🌊"]) {
      for (const count of [1, 10, 11, 15, 16, 31, 85, 86, 127, 128, 255, 21_845, 21_846, 65_535]) {
        const text = letter.repeat(count);
        expect(read(written(text))).toBe(text);
      }
    }
    expect(read(written("\ufeffx")), "a byte order mark is text").toBe("\ufeffx");
  });

  test("bytes inside a payload read as base64, a payload of bytes as bytes", () => {
    const binary = "c403010203";
    expect(read(`81a662696e617279${binary}`)).toEqual({ binary: "AQID" });
    expect(read(`81a170${binary}`)).toEqual({ p: "AQID" });
    for (const value of [{ p: Uint8Array.of(1, 2, 3) }, [new ArrayBuffer(3)]])
      expect(codeOf(() => format.payload(value))).toBe("INVALID_ARGUMENT");
    expect(read(written(Uint8Array.of(1, 2, 3).buffer))).toEqual(Uint8Array.of(1, 2, 3));
    expect(read(written(Uint8Array.of(255, 254)))).toEqual(Uint8Array.of(255, 254));
    expect(read(written(new Uint8Array(0)))).toEqual(new Uint8Array(0));
  });

  test("at most 60 levels", () => {
    expect(read(written(nested(60)))).toEqual(nested(60));
    expect(codeOf(() => format.payload(nested(61)))).toBe("INVALID_ARGUMENT");
    const cycle: unknown[] = [];
    cycle.push(cycle);
    expect(codeOf(() => format.payload(cycle))).toBe("INVALID_ARGUMENT");
  });

  test("an envelope has its fields, its version and its payload as it was encoded", () => {
    const fields = { c: "U", t: "trade", id: "i", seq: 300, n: 7 };
    const frame = format.envelope(fields, format.payload({ x: 1 })) as Uint8Array;
    expect(hex(frame.subarray(0, 2))).toBe(PREFIX);
    expect(format.read(frame.subarray(2))).toEqual({ ...fields, v: 1, p: { x: 1 } });
    const bare = format.envelope({ t: "ping" }, undefined) as Uint8Array;
    expect(format.read(bare.subarray(2))).toEqual({ t: "ping", v: 1 });
  });

  test("a payload past the buffer, and small ones after it", () => {
    const large = "é".repeat(3_000_000);
    const frame = format.envelope({ t: "a" }, format.payload({ large })) as Uint8Array;
    expect(format.read(frame.subarray(2))).toEqual({ t: "a", v: 1, p: { large } });
    expect(written({ a: 1 })).toBe("81a16101");
  });
});

describe("msgpack: reading", () => {
  test("hostile names are plain properties", () => {
    const value = read("83a95f5f70726f746f5f5f81a178c3ab636f6e7374727563746f7201a95f5f70726f746f5f5fc0");
    expect(Object.entries(value as object)).toEqual([
      ["__proto__", { x: true }],
      ["constructor", 1],
    ]);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  });

  test("of a name that comes twice the first counts", () => {
    expect(read("82a16101a16102")).toEqual({ a: 1 });
  });

  test("integer keys of any size", () => {
    const digits = "85cfffffffffffffffff01d3800000000000000002cc80030004ff05";
    expect(read(digits)).toEqual({
      "18446744073709551615": 1,
      "-9223372036854775808": 2,
      128: 3,
      0: 4,
      "-1": 5,
    });
  });

  test("a message that is cut anywhere, or has a byte too many, is refused", () => {
    const value = {
      a: [1, -1000, 1e300, "text", null, true],
      b: { c: "é".repeat(40) },
      d: 2n ** 60n,
    };
    const frame = (format.envelope({ t: "x", n: 2 ** 40 }, format.payload(value)) as Uint8Array).subarray(2);
    for (let end = 0; end < frame.length; end += 1) {
      expect(codeOf(() => format.read(frame.subarray(0, end)))).toBe("PROTOCOL_ERROR");
    }
    expect(codeOf(() => format.read(Uint8Array.of(...frame, 0xc0)))).toBe("PROTOCOL_ERROR");
  });

  test("refused values", () => {
    const refused = [
      "c1",
      "a1ff",
      "d40500",
      "c70cff3b9aca000000000000000000",
      "c70cff00000000ffffffffffffffff",
    ];
    const keys = ["81c0c0", "81cb0000000000000000c0", "81c3c0", "8190c0", "81c400c0"];
    for (const digits of [...refused, ...keys])
      expect(
        codeOf(() => read(digits)),
        digits,
      ).toBe("PROTOCOL_ERROR");
    const deep = "91".repeat(63);
    expect(codeOf(() => read(`${deep}90`))).toBe("PROTOCOL_ERROR");
    expect(codeOf(() => read(`${deep}80`))).toBe("PROTOCOL_ERROR");
    expect(codeOf(() => read(`${deep}c0`))).toBe("none");
  });

  test("any bytes are read or refused", () => {
    const random = seeded(11);
    for (let round = 0; round < 5_000; round += 1) {
      const noise = Uint8Array.from({ length: Math.floor(random() * 40) }, () => random() * 256);
      const frame = Uint8Array.of(0x81, 0xa1, 0x70, ...noise);
      expect(["none", "PROTOCOL_ERROR"]).toContain(codeOf(() => format.read(frame)));
    }
  });

  test("any value survives", () => {
    const random = seeded(12);
    const any = (depth: number): unknown => {
      const kind = Math.floor(random() * (depth > 0 ? 8 : 6));
      const size = Math.floor(random() * 20);
      if (kind === 0) return null;
      if (kind === 1) return random() < 0.5;
      if (kind === 2) return Math.floor((random() - 0.5) * 2 ** (random() * 60));
      if (kind === 3) return (random() - 0.5) * 10 ** (random() * 40 - 20);
      if (kind <= 5)
        return Array.from({ length: size }, () => ["a", "é", "漢", "🌊"][Math.floor(random() * 4)]).join("");
      if (kind === 6) return Array.from({ length: size }, () => any(depth - 1));
      return Object.fromEntries(Array.from({ length: size }, (_, index) => [`k${index}`, any(depth - 1)]));
    };
    for (let round = 0; round < 100; round += 1) {
      const value = any(3);
      expect(read(written(value))).toEqual(JSON.parse(JSON.stringify(value)));
    }
  });
});
