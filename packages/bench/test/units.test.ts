import { describe, expect, test } from "vitest";
import { Counts, Failures } from "../src/counts.js";
import { Histogram } from "../src/histogram.js";
import { encodeMessagePack } from "../src/msgpack.js";
import { Pace } from "../src/pace.js";
import { Messages, publication } from "../src/payload.js";
import { randomOf } from "../src/random.js";
import { Replies } from "../src/replies.js";

const kind = (json_bytes: number, content: "trade" | "trades" = "trade") =>
  ({ json_bytes, encoding: "json", content }) as const;

describe("the histogram", () => {
  test("has buckets that are at most 0.1 % wide, over the whole range", () => {
    const random = randomOf(3);
    const histogram = new Histogram();
    const values = Array.from(
      { length: 20_000 },
      () => Math.floor(10 ** ((random(1_000_000) / 1_000_000) * 10.7)) + 1,
    );
    for (const value of values) {
      histogram.record(value);
    }
    values.sort((one, other) => one - other);
    // In ascending order each value has its bucket.
    const buckets = histogram.buckets().flatMap(([bucket, count]) => new Array<number>(count).fill(bucket));
    expect(buckets.length).toBe(values.length);
    const misplaced = values.filter(
      (value, index) => buckets[index]! > value || buckets[index]! * 1.001 + 1 <= value,
    );
    expect(misplaced).toEqual([]);
  });

  test("records more than a minute as a minute, and nothing as nothing", () => {
    const histogram = new Histogram();
    expect(histogram.buckets()).toEqual([]);
    histogram.record(1e15);
    expect(histogram.buckets()[0]![0]).toBeGreaterThan(59_900_000_000);
  });
});

describe("messages", () => {
  test.each([64, 100, 169, 170, 175, 1024, 65_536, 200_000])("have %i bytes, no two alike", (size) => {
    for (const content of ["trade", "trades"] as const) {
      const next = new Messages(kind(size, content), 1, 0, false).stream(3);
      const seen = Array.from({ length: 16 }, next);
      expect(seen.map(({ frame }) => Buffer.byteLength(frame as string))).toEqual(seen.map(() => size));
      expect(new Set(seen.map(({ payload }) => payload)).size).toBe(16);
      const { t, p } = JSON.parse(seen[0]!.frame as string);
      expect(t).toBe(content === "trades" && size >= 512 ? "trades" : "trade");
      expect(JSON.stringify(p)).toBe(seen[0]!.payload);
    }
  });

  test("are the same for the same seed, and as many as are asked for", () => {
    const first = (seed: number) => new Messages(kind(175), seed, 0, false).stream(0)().payload;
    expect(first(5)).toBe(first(5));
    expect(first(5)).not.toBe(first(6));
    const next = new Messages(kind(65_536), 1, 40, false).stream(0);
    expect(new Set(Array.from({ length: 40 }, () => next().payload)).size).toBe(40);
  });

  test("of a fan-out have the size that was asked for", () => {
    for (const [n, at] of [
      [1, 5],
      [99_999, 123_456_789_012],
    ] as const) {
      for (const size of [95, 3000]) {
        const message = { c: "U", t: "f", tp: "fan-out", p: publication(n, at, size) };
        expect(JSON.stringify(message).length).toBe(size);
      }
    }
  });

  test("in MessagePack are those of the specification", () => {
    const hex = (value: object) => Buffer.from(encodeMessagePack(value)).toString("hex");
    const prefix = Buffer.from("M:").toString("hex");
    expect(hex({ a: 1, b: -1, c: 200, d: 70_000, e: 2 ** 40 })).toBe(
      `${prefix}85a16101a162ffa163ccc8a164ce00011170a165cf0000010000000000`,
    );
    expect(hex({ a: 1.5, b: true, c: null, d: [], e: "é" })).toBe(
      `${prefix}85a161cb3ff8000000000000a162c3a163c0a16490a165a2c3a9`,
    );
    const long = "é".repeat(200);
    expect(hex({ a: long })).toBe(`${prefix}81a161da0190${Buffer.from(long).toString("hex")}`);
    expect(encodeMessagePack({ a: "x".repeat(300_000) }).length).toBe(300_000 + 10);
    expect(hex({ a: -33 })).toBe(`${prefix}81a161d3ffffffffffffffdf`);
  });
});

describe("the pace", () => {
  const times = (pace: Pace, count: number) =>
    Array.from({ length: count }, () => {
      const { nextNs } = pace;
      pace.advance();
      return nextNs;
    });

  test("of all connections together is even", () => {
    const all = [0, 1, 2, 3].flatMap((index) => times(new Pace(1e9, 100, 4, index), 25));
    all.sort((one, other) => one - other);
    for (const [index, ns] of all.entries()) expect(ns).toBeCloseTo(1e9 + index * 1e7, -1);
  });

  test("at random times keeps the rate", () => {
    expect(times(new Pace(0, 1000, 1, 0, 7), 5)).toEqual(times(new Pace(0, 1000, 1, 0, 7), 5));
    const last = times(new Pace(0, 1000, 1, 0, 7), 20_000).at(-1)!;
    expect(last / 20e9).toBeGreaterThan(0.95);
    expect(last / 20e9).toBeLessThan(1.05);
  });
});

describe("the account", () => {
  test("counts into quarters of a second, up to the end", () => {
    const counts = new Counts();
    counts.beganNs = 1e9;
    counts.endNs = 2e9;
    for (const [at, number] of [
      [1e9, 1],
      [1.2e9, 2],
      [1.3e9, 4],
      [2.5e9, 8],
    ] as const) {
      counts.confirm(number, at);
    }
    expect(counts.figures(2e9)).toMatchObject({ confirmed: 15, windows: [3, 4, 0, 0] });
    expect([counts.firstConfirmedNs, counts.lastConfirmedNs]).toEqual([1e9, 2.5e9]);
  });

  test("has the kinds of failures of the contract", () => {
    const failures = new Failures();
    for (const reason of [
      "connect ECONNREFUSED 127.0.0.1:1",
      "closed with 4408: nothing was heard for too long",
      "closed with 1006",
      "the server answered with HTTP 503",
      "the server refused the connection: 401 Unauthorized: the token is malformed",
      "odd",
      "odd",
    ]) {
      failures.add(reason);
    }
    expect(failures.figures()).toEqual([
      { kind: "refused", count: 1 },
      { kind: "closed", code: 4408, count: 1 },
      { kind: "closed", count: 1 },
      { kind: "unexpected-status", code: 503, count: 1 },
      { kind: "unexpected-status", code: 401, count: 1 },
      { kind: "other", count: 2 },
    ]);
    expect(failures.total).toBe(7);
    expect(failures.notes.length).toBe(3);
  });

  test("finds each fault of replies", () => {
    const counts = new Counts();
    const replies = new Replies(counts, false);
    for (const payload of ["a", "b", "c", "d", "e"]) replies.sent(payload, 10, 10);
    expect(replies.heard("a", 20)).toBe(1);
    expect(replies.heard("a", 20)).toBe(0);
    expect(replies.heard("c", 20)).toBe(1);
    expect(replies.heard("b", 20)).toBe(1);
    expect(replies.heard("x", 20)).toBe(1);
    expect(replies.heard("e", 20)).toBe(1);
    replies.end(30);
    expect(counts.replies).toEqual({ doubled: 1, reordered: 1, wrong: 1, missing: 0 });
    expect(counts.confirmed).toBe(4);
  });
});
