import { expect, test } from "vitest";
import { Deadlines } from "../src/core/deadlines.js";
import { Random } from "../src/core/random.js";

test("gives the earliest deadline after any order of changes", () => {
  for (let seed = 1; seed <= 20; seed += 1) {
    const random = new Random(seed);
    const deadlines = new Deadlines();
    const model = new Map<string, number>();
    for (let step = 0; step < 500; step += 1) {
      const key = `room ${random.below(40)}`;
      const atMs = random.below(3) === 0 ? undefined : random.below(1_000);
      deadlines.set(key, atMs);
      if (atMs === undefined) model.delete(key);
      else model.set(key, atMs);
      expect(deadlines.size).toBe(model.size);
      const earliest = model.size === 0 ? undefined : Math.min(...model.values());
      expect(deadlines.next?.atMs).toBe(earliest);
      if (deadlines.next) expect(model.get(deadlines.next.key)).toBe(earliest);
    }
  }
});
