import { describe, expect, test } from "vitest";
import { roundRobin, type Standing, swissRound, swissRounds } from "../src/core/pairing.js";
import { Random } from "../src/core/random.js";

const names = (count: number) => Array.from({ length: count }, (_, index) => `p${index}`);

describe("a round robin", () => {
  test.each([2, 5, 8, 9])("of %i players lets everybody meet everybody once, with fair colors", (count) => {
    const rounds = roundRobin(names(count));
    expect(rounds).toHaveLength(count % 2 === 0 ? count - 1 : count);
    const met = new Set<string>();
    const whites = new Map<string, number>();
    for (const round of rounds) {
      const seated = round.flatMap(({ white, black }) => [white, black]);
      expect(new Set(seated).size).toBe(seated.length);
      for (const { white, black } of round) {
        met.add([white, black].sort().join(" "));
        whites.set(white, (whites.get(white) ?? 0) + 1);
      }
    }
    expect(met.size).toBe((count * (count - 1)) / 2);
    for (const player of names(count))
      expect(Math.abs(2 * (whites.get(player) ?? 0) - (count - 1))).toBeLessThanOrEqual(
        count % 2 === 0 ? 1 : 2,
      );
  });
});

/** Plays a Swiss tournament with random results, and checks each round. */
function playSwiss(count: number, rounds: number, seed: number): Standing[] {
  const random = new Random(seed);
  const table = new Map<string, Standing & { opponents: Set<string> }>();
  for (const [index, player] of names(count).entries())
    table.set(player, {
      player,
      points: 0,
      seed: index,
      opponents: new Set(),
      whiteSurplus: 0,
      lastColor: null,
      hadBye: false,
    });
  for (let round = 0; round < rounds; round += 1) {
    const pairs = swissRound([...table.values()]);
    const seated = pairs.flatMap(({ white, black }) => (black === null ? [white] : [white, black]));
    expect(seated.sort()).toEqual(names(count).sort());
    for (const pair of pairs) {
      const white = table.get(pair.white)!;
      if (pair.black === null) {
        expect(white.hadBye).toBe(false);
        white.hadBye = true;
        white.points += 1;
        continue;
      }
      const black = table.get(pair.black)!;
      expect(white.opponents.has(black.player)).toBe(false);
      // The first round needs no common points; later ones pair players whose points are close.
      expect(Math.abs(white.points - black.points)).toBeLessThanOrEqual(1.5);
      white.opponents.add(black.player);
      black.opponents.add(white.player);
      white.whiteSurplus += 1;
      black.whiteSurplus -= 1;
      white.lastColor = "white";
      black.lastColor = "black";
      const points = [0, 0.5, 1][random.below(3)]!;
      white.points += points;
      black.points += 1 - points;
    }
  }
  return [...table.values()];
}

describe("a Swiss tournament", () => {
  test("has as many rounds as a knock-out", () => {
    expect([2, 8, 32, 33, 100].map(swissRounds)).toEqual([1, 3, 5, 6, 7]);
  });

  test.each([
    [32, 5],
    [33, 6],
    [100, 7],
  ])("of %i players has no rematch in %i rounds, and fair colors", (count, rounds) => {
    for (let seed = 1; seed <= 10; seed += 1)
      for (const { whiteSurplus } of playSwiss(count, rounds, seed))
        expect(Math.abs(whiteSurplus)).toBeLessThanOrEqual(2);
  });

  test("gives nobody without a game when rematches cannot be avoided", () => {
    const met = (player: string, other: string): Standing => ({
      player,
      points: 1,
      seed: 0,
      opponents: new Set([other]),
      whiteSurplus: 0,
      lastColor: null,
      hadBye: false,
    });
    expect(swissRound([met("a", "b"), met("b", "a")])).toHaveLength(1);
  });
});
