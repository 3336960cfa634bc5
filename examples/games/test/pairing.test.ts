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

  const standing = (player: string, changes: Partial<Standing> = {}): Standing => ({
    player,
    points: 0,
    seed: player.charCodeAt(0),
    opponents: new Set(),
    whiteSurplus: 0,
    lastColor: null,
    hadBye: false,
    ...changes,
  });
  const meetings = (standings: Standing[]) =>
    swissRound(standings).map(({ white, black }) => [white, black ?? "bye"].sort().join(""));

  test("begins with the upper half against the lower half", () => {
    expect(meetings([..."abcdefgh"].map((player) => standing(player)))).toEqual(["ae", "bf", "cg", "dh"]);
  });

  test("pairs equal points first, and the nearest below if they have met", () => {
    const [a, b] = [standing("a", { points: 2 }), standing("b", { points: 2 })];
    const [c, d] = [standing("c", { points: 1 }), standing("d")];
    expect(meetings([d, c, b, a])).toEqual(["ab", "cd"]);
    const met = { opponents: new Set(["a", "b"]) };
    expect(meetings([d, c, { ...b, ...met }, { ...a, ...met }])).toEqual(["ac", "bd"]);
  });

  test("does not pair two players who had the same color twice too often", () => {
    const often = { whiteSurplus: 2 };
    const seldom = { whiteSurplus: -2 };
    const players = [
      standing("a", often),
      standing("b", seldom),
      standing("c", often),
      standing("d", seldom),
    ];
    // By their halves a would meet c and b would meet d.
    expect(swissRound(players)).toEqual([
      { white: "d", black: "a" },
      { white: "b", black: "c" },
    ]);
  });

  test("gives the bye to the lowest player who has not had one", () => {
    const players = [standing("a", { points: 1 }), standing("b"), standing("c", { hadBye: true })];
    expect(swissRound(players).at(-1)).toEqual({ white: "b", black: null });
  });

  test("has a rematch only when it cannot be avoided", () => {
    const [a, b] = [standing("a", { opponents: new Set("b") }), standing("b", { opponents: new Set("a") })];
    expect(meetings([a, b])).toEqual(["ab"]);
  });
});
