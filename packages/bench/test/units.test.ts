import { describe, expect, test } from "vitest";
import { Account, durationS, perSecond, together, wholeWindows } from "../src/account.js";
import { burstOf, unconfirmedBytesMax } from "../src/activities.js";
import { commandLine, planOf, redacted, targetOf } from "../src/configuration.js";
import { Histogram } from "../src/histogram.js";
import { encodeMessagePack } from "../src/msgpack.js";
import { nearest, parseArguments } from "../src/options.js";
import { Messages, messageBytes, padOf, publication } from "../src/payload.js";
import { share } from "../src/plan.js";
import { randomOf } from "../src/random.js";
import { exitCodeOf } from "../src/report.js";
import { bottleneckOf } from "../src/usage.js";
import { type Evidence, judge, variation } from "../src/verdict.js";

describe("the histogram", () => {
  test("tells percentiles within three digits, over the whole range", () => {
    const random = randomOf(3);
    const histogram = new Histogram();
    const values = Array.from(
      { length: 20_000 },
      () => Math.floor(10 ** ((random(1_000_000) / 1_000_000) * 10.7)) + 1,
    );
    for (const value of values) histogram.record(value);
    values.sort((one, other) => one - other);
    for (const percentile of [0.1, 1, 10, 50, 90, 99, 99.9, 100]) {
      const exact = values[Math.max(0, Math.ceil((percentile / 100) * values.length - 1e-9) - 1)]!;
      const found = histogram.percentileNs(percentile);
      expect(found).toBeGreaterThanOrEqual(exact);
      expect(found).toBeLessThanOrEqual(exact * 1.001 + 1);
    }
  });

  test("is the same in parts", () => {
    const all = new Histogram();
    const parts = [new Histogram(), new Histogram()];
    for (let value = 1; value < 100_000; value += 7) {
      all.record(value);
      parts[value % 2]!.record(value);
    }
    const merged = new Histogram();
    for (const part of parts) merged.add(structuredClone(part.pack()));
    expect(merged.summary("sent")).toEqual(all.summary("sent"));
  });

  test("records more than a minute as a minute, and nothing as nothing", () => {
    const histogram = new Histogram();
    expect(histogram.summary("sent")).toBeUndefined();
    histogram.record(1e15);
    expect(histogram.summary("sent")).toMatchObject({ max: 60_000_000, p50: 60_000_000, count: 1 });
  });

  test("has points from 0 to 100 in order", () => {
    const histogram = new Histogram();
    for (let value = 1; value <= 1000; value += 1) histogram.record(value * 1000);
    const points = histogram.summary("sent")!.points;
    expect(points[0]![0]).toBe(0);
    expect(points.at(-1)).toEqual([100, 1000]);
    expect(points).toEqual([...points].sort((one, other) => one[0] - other[0] || one[1] - other[1]));
  });
});

describe("messages", () => {
  test.each([64, 100, 169, 170, 175, 1024, 65_536, 200_000])("have %i bytes, no two alike", (size) => {
    const stream = new Messages(size, "json", 1, false).stream(3);
    const seen = Array.from({ length: 16 }, () => stream.next() as string);
    expect(seen.map((message) => Buffer.byteLength(message))).toEqual(seen.map(() => size));
    expect(new Set(seen).size).toBe(16);
    expect(JSON.parse(seen[0]!)).toMatchObject({ t: "trade" });
    expect(stream.wireBytes).toBe(size);
  });

  test("are the same for the same seed", () => {
    const first = (seed: number) => new Messages(175, "json", seed, false).stream(0).next();
    expect(first(5)).toBe(first(5));
    expect(first(5)).not.toBe(first(6));
  });

  test("of a fan-out have the size that was asked for, and letters that can be told from number and time", () => {
    for (const [n, at] of [
      [1, 5],
      [99_999, 123_456_789_012],
    ] as const) {
      const payload = publication(n, at, 95);
      expect(messageBytes("tick", payload)).toBe(95);
      expect(padOf(n, at, 95)).toBe(payload.pad);
      expect(messageBytes("tick", publication(n, at, 3000))).toBe(3000);
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

  test("on their way take no more memory than is stated", () => {
    for (const connections of [1, 100, 10_000]) {
      expect(unconfirmedBytesMax(175, connections) * connections).toBeLessThanOrEqual(
        64 * 2 ** 20 + 175 * 2 * connections,
      );
    }
    expect(burstOf(65_536, 10)).toBe(1);
  });
});

describe("the account", () => {
  test("of processes together is their sum, over the time of all", () => {
    const parts = [1, 2].map((number) => {
      const account = new Account(1e9, number);
      account.counts.offered = 10 * number;
      account.confirm(10 * number, 1e9 + number * 0.6e9);
      account.counts.broken.closed = number;
      return structuredClone(account.finish());
    });
    const total = together(parts);
    expect(total).toMatchObject({ members: 3, offered: 30, confirmed: 30, broken: { closed: 3 } });
    expect(durationS(total)).toBeCloseTo(1.2);
    expect(wholeWindows(total)).toEqual([0, 0, 10, 0]);
    expect(perSecond(total)).toEqual([10]);
  });

  test("shares are all of the total", () => {
    expect([0, 1, 2].map((index) => share(10, 3, index))).toEqual([4, 3, 3]);
  });
});

const QUIET: Evidence = {
  aim: "saturate",
  sends: true,
  offered: 1000,
  confirmed: 990,
  delivered: 990,
  refused: 10,
  refusedBy: { rate: 10 },
  connectionsAttempted: 10,
  connectionsFailed: 0,
  pings: 10,
  pongsLost: 0,
  pongsStrange: 0,
  wrong: 0,
  gaps: 0,
  duplicates: 0,
  isUnheard: false,
  countersError: undefined,
  pace: undefined,
  waitedForOthersS: 0,
  lateP99Us: undefined,
  latencyP99Us: undefined,
  usage: {
    durationS: 1,
    client: { busiestS: 0.5, totalS: 0.5, cores: 2 },
    server: { busiestS: 0.95, totalS: 0.95, cores: 2 },
    sharedCores: 0,
  },
  windows: [5, 100, 101, 99, 100, 100],
};

describe("the verdict", () => {
  test("is valid without a doubt", () => {
    expect(judge(QUIET)).toMatchObject({ verdict: "valid", doubts: [] });
  });

  test.each([
    [{ offered: 0, confirmed: 0, delivered: 0, refused: 0 }, "nothing_sent", "failed"],
    [{ confirmed: 0, delivered: 0, refused: 1000 }, "nothing_confirmed", "failed"],
    [{ confirmed: 980 }, "messages_lost", "failed"],
    [{ confirmed: 995 }, "messages_overconfirmed", "failed"],
    [{ delivered: 900 }, "counters_short", "failed"],
    [{ delivered: 995 }, "counters_over", "failed"],
    [{ connectionsFailed: 1 }, "connections_failed", "failed"],
    [{ pongsLost: 1 }, "pongs_lost", "failed"],
    [{ pongsStrange: 1 }, "pongs_strange", "failed"],
    [{ gaps: 1 }, "publications_missed", "failed"],
    [{ duplicates: 1 }, "publications_doubled", "failed"],
    [{ wrong: 1 }, "publications_wrong", "failed"],
    [{ isUnheard: true }, "publications_unheard", "failed"],
    [{ refusedBy: { rate: 9, invalid: 1 } }, "messages_refused", "failed"],
    [{ countersError: "no answer" }, "counters_unreadable", "failed"],
    [
      { pace: { plannedPerS: 100, planned: 100, offered: 90, windowS: 1, offeredS: 1 } },
      "pace_missed",
      "generator_bound",
    ],
    [{ waitedForOthersS: 0.2 }, "generator_starved", "generator_bound"],
    [{ lateP99Us: 2000, latencyP99Us: 3000 }, "generator_late", "generator_bound"],
    [{ windows: [0, 10, 200, 10, 200, 10] }, "noisy", "noisy"],
    [
      { usage: { ...QUIET.usage, client: { busiestS: 0.95, totalS: 0.95, cores: 2 }, server: undefined } },
      "generator_saturated",
      "generator_bound",
    ],
  ])("of %j is %s", (change, doubt, verdict) => {
    const judged = judge({ ...QUIET, ...change });
    expect(judged.doubts).toEqual([doubt]);
    expect(judged.verdict).toBe(verdict);
    expect(judged.notes.length).toBeGreaterThan(0);
  });

  test("is that of the worst doubt, and two sides that fill their common cores are both the limit", () => {
    expect(judge({ ...QUIET, waitedForOthersS: 0.2, confirmed: 1 }).verdict).toBe("failed");
    const client = { busiestS: 0.55, totalS: 0.55, cores: 1 };
    const server = { busiestS: 0.4, totalS: 0.4, cores: 1 };
    expect(bottleneckOf({ durationS: 1, client, server, sharedCores: 1 })).toBe("both");
    expect(bottleneckOf({ durationS: 1, client, server, sharedCores: 0 })).toBe("none");
    expect(variation([1, 2, 3])).toBeUndefined();
  });

  test("gives the exit code of the worst result", () => {
    const results = (...verdicts: string[]) =>
      verdicts.map((verdict) => ({ test: "x", connections: 1, verdict, notes: [] })) as never;
    expect(exitCodeOf(results("valid"), false)).toBe(0);
    expect(exitCodeOf(results("noisy", "valid"), false)).toBe(4);
    expect(exitCodeOf(results("noisy", "generator_bound"), false)).toBe(3);
    expect(exitCodeOf(results("generator_bound", "failed"), false)).toBe(1);
    expect(exitCodeOf(results("failed"), true)).toBe(130);
    expect(exitCodeOf(results(), false)).toBe(1);
  });
});

describe("the command line", () => {
  const room = () => 1500;
  const plan = (...words: string[]) => planOf(parseArguments(words), room);

  test("has usual values, fewer with --quick", () => {
    expect(plan()).toMatchObject({
      tiers: [100, 1000],
      processes: 1,
      durationS: 2,
      pings: 50,
      isPrepared: false,
    });
    expect(plan("--quick")).toMatchObject({ tiers: [10], durationS: 0.3 });
    expect(plan("--quick", "--duration-s=0.5", "--messages", "prepared")).toMatchObject({
      durationS: 0.5,
      isPrepared: true,
    });
  });

  test.each([
    [["--proceses", "2"], /no option --proceses; did you mean --processes\?/],
    [["--x"], /no option --x/],
    [["-q"], /no option -q/],
    [["--test", "thruput"], /no test thruput; did you mean throughput\?/],
    [["--processes"], /--processes needs a value/],
    [["--processes", "0"], /"0" is not a whole number from 1 to 256/],
    [["--connections", "1,x"], /"x" is not a whole number from 1 on/],
    [["--duration-s", "0"], /not a number from 0.01 to 86400/],
    [["--payload-bytes", "12"], /from 64 to/],
    [["--quick=yes"], /--quick takes no value/],
    [["--seed", "1", "--seed", "2"], /--seed was given twice/],
    [["ws://a", "ws://b"], /two URLs/],
    [["--messages", "none"], /neither made nor prepared/],
    [["--test", "fan-out", "--profile", "raw", "ws://a"], /needs --profile v1/],
  ])("%j is a mistake", (words, reason) => {
    expect(() => plan(...words)).toThrow(reason);
    expect(() => plan(...words)).toThrow(/^[^\n]*$/);
  });

  test.each([
    [["http://a/"], /no URL that begins with ws:\/\/ or wss:\/\//],
    [["nonsense"], /no URL/],
    [["--token", "x"], /--token needs a URL/],
    [["--server-shards", "1", "ws://a"], /is for a run without a URL/],
    [["--stats-url", "a", "ws://a"], /--stats-url: a does not begin/],
    [["--profile", "v2", "ws://a"], /neither v1 nor raw/],
  ])("%j does not fit", (words, reason) => {
    expect(() => targetOf(parseArguments(words))).toThrow(reason);
  });

  test("leaves secrets out of what is shown", () => {
    const words = [
      "--token",
      "secret",
      "--jwt-secret=secret",
      "ws://u:secret@a/ws?access=secret&format=json",
    ];
    const shown = commandLine(words);
    expect(shown).not.toContain("secret&");
    expect(shown).toBe("tidewire-bench-ts --token … --jwt-secret=… ws://…@a/ws?access=…&format=json");
    expect(redacted("ws://a/ws")).toBe("ws://a/ws");
  });

  test("finds the nearest word only where one is near", () => {
    expect(nearest("conections", ["connections", "processes"])).toBe("connections");
    expect(nearest("zzzzzz", ["connections", "processes"])).toBeUndefined();
  });
});
