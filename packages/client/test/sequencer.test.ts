import { describe, expect, test } from "vitest";
import { type Sequenced, Sequencer } from "../src/core/sequencer.js";
import { seeded } from "./random.js";

const EPOCH = "00000007";
const at = (offset: number, epoch = EPOCH) => ({ epoch, offset });

function small(heldMax: number, out: Sequenced<number>[]): Sequencer<number> {
  return new Sequencer(out, { topicsMax: 3, heldMax, windowMs: 100 });
}

function gap(from: number, to: number): Sequenced<number> {
  return { gap: { topic: "t", epoch: EPOCH, from, to } };
}

function messages(...offsets: number[]): Sequenced<number>[] {
  return offsets.map((message) => ({ message }));
}

describe("sequencer", () => {
  test("a gap is reported when its window is over and not before", () => {
    const out: Sequenced<number>[] = [];
    const sequencer = small(8, out);
    for (const [offset, nowMs] of [
      [1, 0],
      [4, 10],
      [5, 50],
      [8, 60],
    ] as const) {
      sequencer.handle("t", at(offset), offset, nowMs);
    }
    expect(out).toEqual(messages(1));
    expect(sequencer.nextTimeout()).toBe(110);
    sequencer.handleTimeout(109);
    expect(out).toHaveLength(1);
    sequencer.handleTimeout(110);
    const expected = [...messages(1), gap(2, 3), ...messages(4, 5)];
    expect(out).toEqual(expected);
    expect([sequencer.held, sequencer.position("t")]).toEqual([1, at(5)]);
    expect(sequencer.handle("t", at(3), 3, 111), "its place was reported").toBe("duplicate");
    sequencer.handleTimeout(210);
    expect(out).toEqual([...expected, gap(6, 7), ...messages(8)]);
    expect(sequencer.nextTimeout()).toBeUndefined();
  });

  test("each topic has its own window, the earliest first", () => {
    const out: Sequenced<number>[] = [];
    const sequencer = small(8, out);
    for (const topic of ["a", "b"]) sequencer.advance(topic, at(0), 0);
    sequencer.handle("a", at(2), 2, 0);
    sequencer.handle("b", at(2), 3, 50);
    sequencer.handle("a", at(4), 4, 60);
    sequencer.handle("a", at(1), 1, 70);
    expect(out).toEqual(messages(1, 2));
    expect(sequencer.nextTimeout(), "of b, because a waits for 3 since 70").toBe(150);
    sequencer.handleTimeout(150);
    expect(out[3]).toEqual({ message: 3 });
    expect(sequencer.nextTimeout()).toBe(170);
  });

  test("held messages are bounded", () => {
    const out: Sequenced<number>[] = [];
    const sequencer = small(2, out);
    sequencer.handle("t", at(1), 1, 0);
    for (const offset of [3, 5]) expect(sequencer.handle("t", at(offset), offset, 0)).toBe("held");
    out.length = 0;
    expect(sequencer.handle("t", at(7), 7, 0)).toBe("held");
    expect(out).toEqual([gap(2, 2), ...messages(3)]);
    expect(sequencer.held).toBe(2);
  });

  test("without a window nothing is held", () => {
    const out: Sequenced<number>[] = [];
    const sequencer = new Sequencer<number>(out, { topicsMax: 3, heldMax: 8, windowMs: 0 });
    sequencer.handle("t", at(1), 1, 0);
    expect(sequencer.handle("t", at(9), 9, 0)).toBe("delivered");
    expect(out).toEqual([...messages(1), gap(2, 8), ...messages(9)]);
    expect(sequencer.nextTimeout()).toBeUndefined();
  });

  test("another epoch counts anew", () => {
    const out: Sequenced<number>[] = [];
    const sequencer = small(8, out);
    sequencer.handle("t", at(5), 5, 0);
    sequencer.handle("t", at(7), 7, 0);
    expect(sequencer.handle("t", at(1, "00000008"), 100, 1)).toBe("new_epoch");
    expect(out).toEqual([...messages(5), gap(6, 6), ...messages(7, 100)]);
    expect(sequencer.position("t")).toEqual(at(1, "00000008"));
    expect(sequencer.nextTimeout()).toBeUndefined();
  });

  test("what the server says is missing is not waited for", () => {
    const out: Sequenced<number>[] = [];
    const sequencer = small(8, out);
    sequencer.handle("t", at(1), 1, 0);
    sequencer.handle("t", at(4), 4, 0);
    sequencer.skip("t", EPOCH, 3, 3, 0);
    sequencer.skip("t", "00000008", 2, 3, 0);
    expect(out, "2 is still missing").toEqual(messages(1));
    sequencer.skip("t", EPOCH, 2, 3, 0);
    expect(out).toEqual(messages(1, 4));
    sequencer.handle("t", at(7), 7, 0);
    sequencer.advance("t", at(8), 0);
    expect(out).toEqual(messages(1, 4, 7));
    expect([sequencer.held, sequencer.position("t")]).toEqual([0, at(8)]);
    sequencer.skip("t", EPOCH, 2, 3, 0);
    expect(sequencer.position("t"), "it never goes back").toEqual(at(8));
  });

  test("the short way passes the next message only, and never past held ones", () => {
    const out: Sequenced<number>[] = [];
    const sequencer = small(8, out);
    expect(sequencer.pass("t", EPOCH, 1), "the topic is not known").toBe(false);
    sequencer.advance("t", at(4), 0);
    expect([3, 4, 6].map((offset) => sequencer.pass("t", EPOCH, offset))).toEqual([false, false, false]);
    expect(sequencer.pass("t", "00000008", 5)).toBe(false);
    expect(sequencer.pass("t", EPOCH, 5)).toBe(true);
    sequencer.handle("t", at(7), 7, 0);
    expect(sequencer.pass("t", EPOCH, 6), "7 has to follow it").toBe(false);
    sequencer.handle("t", at(6), 6, 0);
    expect(out).toEqual(messages(6, 7));
    expect(sequencer.pass("t", EPOCH, 8)).toBe(true);
  });

  test("topics are bounded and forgotten with what they hold", () => {
    const out: Sequenced<number>[] = [];
    const sequencer = small(8, out);
    for (const topic of ["a", "b", "c"]) sequencer.advance(topic, at(0), 0);
    sequencer.handle("a", at(2), 2, 0);
    expect([out.length, sequencer.nextTimeout()]).toEqual([0, 100]);
    sequencer.advance("d", at(0), 0);
    expect(out, "a's message and the gap before it").toHaveLength(2);
    expect([sequencer.topics, sequencer.held]).toEqual([3, 0]);
    expect(sequencer.position("a")).toBeUndefined();
    sequencer.forget("d");
    expect(sequencer.topics).toBe(2);
  });

  test("any order with repeats comes out once and sorted", () => {
    const random = seeded(5);
    for (let round = 0; round < 100; round += 1) {
      const heldMax = 1 + Math.floor(random() * 19);
      const offsets = Array.from(
        { length: 1 + Math.floor(random() * 200) },
        () => 1 + Math.floor(random() * 59),
      );
      const out: Sequenced<number>[] = [];
      const sequencer = small(heldMax, out);
      sequencer.advance("t", at(0), 0);
      for (const [step, offset] of offsets.entries()) {
        if (sequencer.pass("t", EPOCH, offset)) out.push({ message: offset });
        else sequencer.handle("t", at(offset), offset, step * 30);
        sequencer.handleTimeout(step * 30);
        expect(sequencer.held).toBeLessThanOrEqual(heldMax);
      }
      sequencer.forget("t");
      // Messages and gaps together are all offsets up to the largest, each once, in order.
      let next = 1;
      for (const { message, gap } of out) {
        expect(gap?.from ?? message).toBe(next);
        next = (gap?.to ?? message!) + 1;
      }
      expect(next).toBe(Math.max(...offsets) + 1);
      expect(sequencer.held).toBe(0);
    }
  });
});
