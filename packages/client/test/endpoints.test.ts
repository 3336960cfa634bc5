import { describe, expect, test } from "vitest";
import { Breaker } from "../src/core/breaker.js";
import { type EndpointChoice, Endpoints } from "../src/core/endpoints.js";
import { seeded } from "./random.js";

function breaker(failuresMax: number, trials: number): Breaker {
  return new Breaker({ failuresMax, openMs: 1_000, trials });
}

describe("circuit breaker", () => {
  test("opens after failures in a row only", () => {
    const it = breaker(3, 1);
    for (const nowMs of [1, 2]) it.failed(nowMs);
    it.succeeded();
    for (const nowMs of [3, 4]) it.failed(nowMs);
    expect([it.state(4), it.acquire(4)]).toEqual(["closed", 0]);
    it.failed(5);
    expect([it.state(5), it.acquire(5)]).toEqual(["open", 1_000]);
    expect(it.acquire(1_004)).toBe(1);
  });

  test("one trial at a time, and as many as asked for", () => {
    const it = breaker(1, 2);
    it.failed(0);
    expect(it.acquire(1_000)).toBe(0);
    expect(it.state(1_000)).toBe("half_open");
    expect(it.acquire(1_001)).toBeGreaterThan(0);
    it.succeeded();
    expect(it.state(1_001)).toBe("half_open");
    expect(it.acquire(1_002)).toBe(0);
    it.succeeded();
    expect(it.state(1_003)).toBe("closed");
  });

  test("a failed trial opens it again", () => {
    const it = breaker(1, 1);
    it.failed(0);
    expect(it.acquire(1_500)).toBe(0);
    it.failed(1_600);
    expect(it.acquire(2_599)).toBe(1);
    expect(it.acquire(2_600)).toBe(0);
  });

  test("zero means never", () => {
    const it = breaker(0, 1);
    for (let failure = 0; failure < 100; failure += 1) it.failed(0);
    expect(it.acquire(0)).toBe(0);
  });
});

function endpoints(weights: number[], choice: EndpointChoice): Endpoints {
  const named = weights.map((weight, index) => ({ url: `ws://${index}/ws`, weight }));
  return new Endpoints(named, choice, { failuresMax: 3, openMs: 10_000, trials: 1 });
}

function index(choice: { index: number } | { waitMs: number }): number {
  if ("waitMs" in choice) throw new Error(`waits ${choice.waitMs} ms`);
  return choice.index;
}

function shares(of: Endpoints, rounds: number): number[] {
  const random = seeded(7);
  const counts = new Array<number>(of.length).fill(0);
  for (let round = 0; round < rounds; round += 1) {
    const at = index(of.choose(0, random()));
    counts[at] = counts[at]! + 1 / rounds;
  }
  return counts;
}

describe("endpoints", () => {
  test("weights are shares", () => {
    const share = shares(endpoints([1, 3], "weighted"), 4_000)[0]!;
    expect(share > 0.22 && share < 0.28, `${share}`).toBe(true);
  });

  test("the second and third choice follow the weights too", () => {
    const three = endpoints([1, 1, 3], "weighted");
    const random = seeded(3);
    let seconds = 0;
    for (let round = 0; round < 4_000; round += 1) {
      if (index(three.choose(0, random(), [], [0])) === 1) seconds += 1 / 4_000;
    }
    expect(seconds > 0.22 && seconds < 0.28, `${seconds}`).toBe(true);
  });

  test("a sick endpoint gets less and recovers", () => {
    const pair = endpoints([1, 1], "weighted");
    pair.failed(0, 0);
    const sick = shares(pair, 4_000)[0]!;
    expect(sick > 0.28 && sick < 0.39, `${sick}`).toBe(true);
    pair.failed(0, 0);
    expect(shares(pair, 100)[0], "25 is poor: the other first").toBe(0);
    for (let success = 0; success < 20; success += 1) pair.succeeded(0, 5);
    expect(shares(pair, 4_000)[0]).toBeGreaterThan(0.45);
    expect(pair.health(0)[0]).toEqual({ url: "ws://0/ws", score: 100, connectMs: 5, breaker: "closed" });
    expect(pair.health(0)[1]!.connectMs).toBeUndefined();
  });

  test("in turn, and past a broken one", () => {
    const three = endpoints([1, 1, 1], "round_robin");
    expect([0, 0, 0, 0].map((nowMs) => index(three.choose(nowMs, 0)))).toEqual([0, 1, 2, 0]);
    for (let failure = 0; failure < 3; failure += 1) three.failed(1, 100);
    expect(three.health(100)[1]!.breaker).toBe("open");
    expect([100, 100, 100].map((nowMs) => index(three.choose(nowMs, 0)))).toEqual([2, 0, 2]);
  });

  test("all broken: how long to wait", () => {
    const pair = endpoints([1, 1], "round_robin");
    for (let failure = 0; failure < 3; failure += 1) {
      pair.failed(0, 0);
      pair.failed(1, 500);
    }
    expect(pair.choose(1_000, 0)).toEqual({ waitMs: 9_000 });
    expect([pair.waitMs(1_000), pair.waitMs(10_000)]).toEqual([9_000, 0]);
    expect(pair.choose(10_000, 0)).toEqual({ index: 0 });
  });

  test("those left out are not chosen", () => {
    const three = endpoints([1_000_000, 1, 1], "weighted");
    const tried: number[] = [];
    for (const random of [0, 2 ** -24, 1 - 2 ** -53]) tried.push(index(three.choose(0, random, [], tried)));
    expect(tried.sort()).toEqual([0, 1, 2]);
    expect(three.choose(0, 0, [], tried)).toEqual({ waitMs: Number.POSITIVE_INFINITY });
  });

  test("the least connections win", () => {
    const three = endpoints([1, 1, 1], "least_connections");
    expect(three.choose(0, 0, [2, 0, 1])).toEqual({ index: 1 });
    expect(three.choose(0, 0, [2, 3, 2]), "in turn among equals").toEqual({ index: 2 });
    three.failed(2, 0);
    expect(three.choose(0, 0, [2, 3, 2]), "the healthier among equals").toEqual({ index: 0 });
  });
});
