import { describe, expect, test } from "vitest";
import { Backoff, defaultReconnect, type ReconnectPolicy } from "../src/core/backoff.js";
import { seeded } from "./random.js";

/** The largest number below 1. */
const MOST = 1 - 2 ** -53;
const DELAYS = ["exponential", "linear", "fibonacci", "adaptive"] as const;

function backoff(policy: Partial<ReconnectPolicy>): Backoff {
  return new Backoff({ ...defaultReconnect, ...policy });
}

function longest(delay: ReconnectPolicy["delay"], count: number): (number | undefined)[] {
  const attempts = backoff({ delay });
  return Array.from({ length: count }, () => attempts.next(undefined, 0, MOST));
}

describe("backoff", () => {
  test("the delays grow", () => {
    expect(longest("exponential", 7)).toEqual([500, 1000, 2000, 4000, 8000, 16000, 30000]);
    expect(longest("linear", 4)).toEqual([500, 1000, 1500, 2000]);
    expect(longest("fibonacci", 6)).toEqual([500, 500, 1000, 1500, 2500, 4000]);
    const adaptive = longest("adaptive", 40) as number[];
    expect(adaptive).toEqual([...adaptive].sort((a, b) => a - b));
    expect(adaptive[0]).toBe(500);
    expect(adaptive[1]).toBeLessThan(1000);
    expect(adaptive[39]).toBe(30_000);
  });

  test("adaptive grows faster where little succeeds", () => {
    const unlucky = backoff({ delay: "adaptive" });
    for (let attempt = 0; attempt < 10; attempt += 1) unlucky.next(undefined, 0, 0);
    unlucky.succeeded();
    unlucky.next(undefined, 0, MOST);
    expect(unlucky.next(undefined, 0, MOST)).toBeGreaterThan(longest("adaptive", 2)[1]!);
  });

  test("linear growth does not end before the longest time", () => {
    const attempts = backoff({ delay: "linear", baseMs: 10, maxMs: 15_000 });
    const waits = Array.from({ length: 1_600 }, () => attempts.next(undefined, 0, MOST));
    expect(waits.slice(899, 903)).toEqual([9_000, 9_010, 9_020, 9_030]);
    expect(waits.at(-1)).toBe(15_000);
  });

  test.each(DELAYS)("%s: a base of 0 is 0 after any number of failures", (delay) => {
    const attempts = backoff({ delay, baseMs: 0 });
    for (let attempt = 0; attempt < 2_000; attempt += 1) expect(attempts.next(undefined, 0, MOST)).toBe(0);
  });

  test("success begins anew", () => {
    const attempts = backoff({});
    for (let attempt = 0; attempt < 100; attempt += 1) attempts.next(undefined, 0, 0);
    expect(attempts.failures).toBe(100);
    attempts.succeeded();
    expect(attempts.failures).toBe(0);
    expect(attempts.next(undefined, 9, MOST)).toBe(500);
  });

  test("a session that did not last ends what failed before it, and counts with others that did not", () => {
    const attempts = backoff({});
    for (let attempt = 0; attempt < 100; attempt += 1) attempts.next(undefined, 0, 0);
    const after = (hasLasted: boolean) => {
      attempts.succeeded(hasLasted);
      return attempts.next(undefined, 9, MOST);
    };
    expect([after(false), after(false), after(false)]).toEqual([500, 1_000, 2_000]);
    for (let attempt = 0; attempt < 100; attempt += 1) attempts.next(undefined, 0, 0);
    expect(after(false)).toBe(4_000);
    expect([after(true), after(false), after(false)]).toEqual([500, 500, 1_000]);
  });

  test("hints count up to a limit", () => {
    const attempts = backoff({});
    expect(attempts.next(7_000, 0, 0)).toBe(7_000);
    expect(attempts.next(7_000, 0, MOST)).toBe(8_000);
    expect(attempts.next(Number.POSITIVE_INFINITY, 0, 0)).toBe(600_000);
    expect(attempts.nextAt(1_234, 0)).toBe(1_234);
    expect(attempts.nextAt(Number.POSITIVE_INFINITY, 0)).toBe(600_000);
  });

  test("limits of attempts and time", () => {
    const byAttempts = backoff({ attemptsMax: 2 });
    expect(byAttempts.next(undefined, 0, 0)).toBe(0);
    expect(byAttempts.nextAt(5, 0)).toBe(5);
    expect(byAttempts.next(undefined, 0, 0)).toBeUndefined();
    expect(byAttempts.nextAt(5, 0)).toBeUndefined();
    const byTime = backoff({ timeMaxMs: 10_000 });
    expect(byTime.next(undefined, 1_000, 0)).toBe(0);
    expect(byTime.next(10_001, 1_000, 0)).toBeUndefined();
    expect(byTime.next(undefined, 10_000, 0)).toBe(0);
    expect(byTime.next(undefined, 11_001, 0)).toBeUndefined();
  });

  test("a thousand clients spread evenly", () => {
    const random = seeded(1);
    const buckets = new Array<number>(10).fill(0);
    for (let client = 0; client < 1_000; client += 1) {
      const bucket = Math.floor(backoff({}).next(undefined, 0, random())! / 51);
      buckets[bucket] = buckets[bucket]! + 1;
    }
    expect(buckets.length).toBe(10);
    for (const count of buckets) expect(count > 60 && count < 140, `${buckets}`).toBe(true);
  });

  test("never longer than allowed", () => {
    const random = seeded(2);
    for (const delay of DELAYS) {
      for (const failures of [0, 1, 5, 60, 61, 63, 64, 90, 500, 2_000]) {
        for (const baseMs of [0, 500, 100_000]) {
          const attempts = backoff({ delay, baseMs });
          for (let attempt = 0; attempt < failures; attempt += 1) attempts.next(undefined, 0, random());
          const hintMs = Math.floor(random() * 1_200_000);
          const hint = Math.min(hintMs, 600_000);
          const waitMs = attempts.next(hintMs, 0, random())!;
          expect(waitMs >= hint && waitMs <= hint + 30_000, `${delay} ${failures} ${waitMs}`).toBe(true);
        }
      }
    }
  });
});
