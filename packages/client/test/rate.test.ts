import { describe, expect, test } from "vitest";
import { RateLimit } from "../src/core/rate.js";

describe("rate limit", () => {
  test("burst and refill", () => {
    const limit = new RateLimit(10, 100, 0);
    expect(limit.take(25, 0)).toBe(10);
    expect([limit.take(1, 5), limit.nextAt(5)]).toEqual([0, 10]);
    expect(limit.take(25, 10)).toBe(1);
    expect(limit.take(25, 60)).toBe(5);
    expect(limit.take(25, 10_000)).toBe(10);
    limit.giveBack(4);
    expect(limit.nextAt(10_000)).toBe(10_000);
    expect(limit.take(25, 10_000)).toBe(4);
  });

  test("a warning halves the rate for a while", () => {
    const limit = new RateLimit(1_000, 100, 0);
    limit.warned(2, 0);
    expect(limit.take(10, 0)).toBe(2);
    expect(limit.nextAt(0)).toBe(20);
    expect(limit.take(1_000, 1_000)).toBe(50);
    expect(limit.take(1_000, 6_000)).toBe(200 + 100);
  });

  test("a refusal stops and then slows", () => {
    for (const limit of [new RateLimit(1_000, 100, 0), new RateLimit(0, 0, 0)]) {
      limit.refused(2_000, 0);
      expect([limit.take(1, 1_999), limit.nextAt(1_999)]).toEqual([0, 2_000]);
      expect(limit.take(1, 2_100)).toBe(1);
    }
    const limit = new RateLimit(1_000, 100, 0);
    limit.refused(0, 0);
    expect(limit.take(1, 0)).toBe(0);
    limit.refused(Number.POSITIVE_INFINITY, 0);
    expect(limit.nextAt(5)).toBe(60_000);
  });

  test("unlimited stays unlimited", () => {
    const limit = new RateLimit(0, 0, 0);
    expect(limit.take(1e9, 0)).toBe(1e9);
    expect(limit.take(1e9, 5_000)).toBe(1e9);
    limit.giveBack(5);
    expect(limit.nextAt(6_000)).toBe(6_000);
  });

  test("a clock that stands still or errs refills nothing", () => {
    const limit = new RateLimit(10, 100, 1_000);
    expect(limit.take(10, 1_000)).toBe(10);
    expect(limit.take(10, 500)).toBe(0);
    expect(limit.take(10, 1_000)).toBe(0);
  });
});
