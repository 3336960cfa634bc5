import { describe, expect, test } from "vitest";
import { HALL_LIMITS } from "../src/core/hall.js";
import type { TournamentView } from "../src/core/tournament.js";
import { Simulation } from "./simulation.js";

const SETUP = { initialMs: 30_000, incrementMs: 0 };

/** Plays a tournament of machine players to its end. Their short clocks keep the games short. */
function playTournament(size: number, restartEveryMs?: number): TournamentView {
  const simulation = new Simulation({ seed: size, machineMoveMs: 3_000 });
  const { tournament } = simulation.request("ada", "open_tournament", { size, ...SETUP });
  simulation.request("ada", "fill", { tournament, skill: 0 });
  for (let step = 0; step < 400; step += 1) {
    const view = simulation.request("ada", "tournament", { tournament });
    if (view.status === "over") return view;
    simulation.pass(restartEveryMs ?? 10_000);
    if (restartEveryMs !== undefined) simulation.restart();
  }
  throw new Error("the tournament does not end");
}

describe("a tournament", () => {
  test.each([
    [8, "round robin", 7],
    [32, "swiss", 5],
    [100, "swiss", 7],
  ] as const)("of %i players is a %s of %i rounds, and has a table", (size, format, roundsTotal) => {
    const view = playTournament(size);
    expect(view).toMatchObject({ format, roundsTotal, status: "over" });
    expect(view.rounds).toHaveLength(roundsTotal);
    const met = new Set<string>();
    for (const round of view.rounds) {
      expect(new Set(round.flatMap(({ white, black }) => [white, black])).size).toBe(size);
      for (const { white, black, whitePoints } of round) {
        expect([0, 0.5, 1]).toContain(whitePoints);
        met.add([white, black].sort().join(" "));
      }
    }
    expect(met.size).toBe((size / 2) * roundsTotal);
    const games = (size / 2) * roundsTotal;
    expect(view.table.map(({ rank }) => rank)).toEqual(Array.from({ length: size }, (_, index) => index + 1));
    expect(view.table.reduce((sum, { points }) => sum + points, 0)).toBe(games);
    for (const [index, row] of view.table.entries()) {
      expect(row.wins + row.draws + row.losses).toBe(roundsTotal);
      expect(row.points).toBe(row.wins + row.draws / 2);
      expect(row.points).toBeLessThanOrEqual(view.table[index - 1]?.points ?? row.points);
    }
  });

  test("of an odd number of players gives each round a bye", () => {
    const view = playTournament(11);
    for (const round of view.rounds) expect(round.filter(({ black }) => black === null)).toHaveLength(1);
    const byes = view.rounds.flat().filter(({ black }) => black === null);
    expect(new Set(byes.map(({ white }) => white)).size).toBe(view.rounds.length);
  });

  test("goes on over restarts, with the same pairings", () => {
    const view = playTournament(8, 7_000);
    expect(view.rounds).toHaveLength(7);
    expect(view.rounds.map((round) => round.map(({ white, black }) => `${white} ${black}`))).toEqual(
      playTournament(8).rounds.map((round) => round.map(({ white, black }) => `${white} ${black}`)),
    );
  });

  test("starts when it is full; who is away loses by time", () => {
    const simulation = new Simulation({ seed: 1 });
    const { tournament } = simulation.request("ada", "open_tournament", { size: 2, ...SETUP });
    simulation.request("bob", "register", { tournament });
    expect(simulation.refusal("bob", "register", { tournament })).toBe("SEAT_TAKEN");
    simulation.request("bob", "withdraw", { tournament });
    simulation.request("cleo", "register", { tournament });
    expect(simulation.refusal("bob", "fill", { tournament })).toBe("NOT_ALLOWED");
    expect(simulation.request("ada", "tournament", { tournament }).status).toBe("open");
    simulation.request("bob", "register", { tournament });
    expect(simulation.refusal("dora", "register", { tournament })).toBe("NOT_ALLOWED");
    const running = simulation.request("ada", "tournament", { tournament });
    expect(running).toMatchObject({
      status: "running",
      rounds: [[{ white: "cleo", black: "bob", whitePoints: null }]],
    });
    const { room } = running.rounds[0]![0]!;
    expect(simulation.request("ada", "room", { room })).toMatchObject({
      white: "cleo",
      status: "playing",
      tournament,
    });
    simulation.pass(SETUP.initialMs);
    const over = simulation.request("ada", "tournament", { tournament });
    expect(over).toMatchObject({
      status: "over",
      table: [
        { player: "bob", points: 1 },
        { player: "cleo", points: 0 },
      ],
    });
    expect(simulation.events).toContainEqual(
      expect.objectContaining({ topic: `tournaments.${tournament}`, type: "changed" }),
    );
  });

  test("is one of a bounded number", () => {
    const simulation = new Simulation({ seed: 1 });
    for (let n = 0; n < HALL_LIMITS.tournamentsPerHostMax; n += 1)
      simulation.request("ada", "open_tournament", { size: 4 });
    expect(simulation.refusal("ada", "open_tournament", { size: 4 })).toBe("LIMIT_REACHED");
    for (let n = HALL_LIMITS.tournamentsPerHostMax; n < HALL_LIMITS.tournamentsMax; n += 1)
      simulation.request(`host ${n}`, "open_tournament", { size: 4 });
    expect(simulation.refusal("bob", "open_tournament", { size: 4 })).toBe("LIMIT_REACHED");
  });
});
