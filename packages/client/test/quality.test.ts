import { describe, expect, test } from "vitest";
import { type Quality, QualityMeter } from "../src/core/quality.js";

function after(latenciesMs: number[]): Quality {
  const meter = new QualityMeter();
  let nowMs = 0;
  for (const latencyMs of latenciesMs) {
    meter.pingSent(nowMs);
    nowMs += latencyMs;
    expect(meter.pongReceived(nowMs)).toBe(latencyMs);
  }
  return meter.quality(nowMs);
}

describe("quality", () => {
  test("good and bad", () => {
    const good = after(new Array(30).fill(10));
    expect(good).toEqual({ latencyMs: 10, jitterMs: 0, loss: 0, score: 100, answered: 30 });
    expect(after(new Array(30).fill(1_000)).score).toBe(60);
    const shaky = after(new Array(50).fill([10, 410]).flat());
    expect(shaky.jitterMs).toBeGreaterThan(380);
    expect(shaky.score).toBeLessThan(65);
    expect(new QualityMeter().quality(0).score).toBe(100);
  });

  test("fractions of a millisecond count", () => {
    expect(after([0.25, 0.25]).latencyMs).toBe(0.25);
  });

  test("pings without an answer are lost", () => {
    const meter = new QualityMeter();
    for (let second = 0; second < 10; second += 1) {
      meter.pingSent(second * 1_000);
      if (second < 5) meter.pongReceived(second * 1_000 + 5);
    }
    expect(meter.quality(10_000).loss, "not yet").toBe(0);
    expect(meter.quality(30_000)).toMatchObject({ loss: 0.5, score: 60 });
    meter.disconnected();
    expect(meter.quality(10_000).loss).toBe(0.5);
    expect(meter.pongReceived(30_000)).toBeUndefined();
  });

  test("a silent server costs a bounded window", () => {
    const meter = new QualityMeter();
    for (let second = 0; second < 10_000; second += 1) meter.pingSent(second * 1_000);
    expect(meter.quality(10_000_000).loss).toBe(1);
    let answers = 0;
    while (meter.pongReceived(10_000_000) !== undefined) answers += 1;
    expect(answers).toBe(64);
    // The window has 50 places: as many answers in time make it whole again.
    for (let second = 0; second < 50; second += 1) {
      meter.pingSent(0);
      meter.pongReceived(1);
    }
    expect(meter.quality(10_000_000).loss).toBe(0);
  });
});
