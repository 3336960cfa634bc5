import { describe, expect, test } from "vitest";
import { Clock } from "../src/core/clock.js";
import { Refusal } from "../src/core/errors.js";
import { Game } from "../src/core/game.js";
import { chooseMove, type Skill } from "../src/core/machine.js";
import { Random } from "../src/core/random.js";

const CONTROL = { initialMs: 60_000, incrementMs: 1_000 };
const FOOLS_MATE = ["f2f3", "e7e5", "g2g4", "d8h4"];
/**
 * Each side moves a knight out and back: after two rounds the first position has occurred three
 * times.
 */
const KNIGHTS = ["g1f3", "g8f6", "f3g1", "f6g8"];
/** The shortest known stalemate, ten moves long. */
const STALEMATE =
  "e2e3 a7a5 d1h5 a8a6 h5a5 h7h5 h2h4 a6h6 a5c7 f7f6 c7d7 e8f7 d7b7 d8d3 b7b8 d3h7 b8c8 f7g6 c8e6".split(" ");

/** Plays moves, a second each. */
function play(game: Game, moves: readonly string[], startMs = 0): number {
  let nowMs = startMs;
  for (const move of moves) game.move(game.turn, move, (nowMs += 1_000));
  return nowMs;
}

function refusal(action: () => unknown): string | undefined {
  try {
    action();
  } catch (error) {
    if (error instanceof Refusal) return error.code;
    throw error;
  }
  return undefined;
}

describe("the clock", () => {
  test("counts the time of the side to move and adds the increment", () => {
    const clock = new Clock(CONTROL);
    clock.start("white", 0);
    expect(clock.view(10_000)).toEqual({ whiteMs: 50_000, blackMs: 60_000, running: "white" });
    clock.press(10_000);
    expect(clock.view(15_000)).toEqual({ whiteMs: 51_000, blackMs: 55_000, running: "black" });
    expect(clock.deadlineMs).toBe(70_000);
    expect(clock.hasExpired(69_999)).toBe(false);
    expect(clock.hasExpired(70_000)).toBe(true);
    clock.stop(69_000);
    expect(clock.view(99_000)).toEqual({ whiteMs: 51_000, blackMs: 1_000, running: null });
  });

  test("does not gain time when the caller's clock goes back", () => {
    const clock = new Clock(CONTROL);
    clock.start("white", 10_000);
    expect(clock.remainingMs("white", 5_000)).toBe(60_000);
  });
});

describe("a game", () => {
  test("ends with mate, and nothing can be played after it", () => {
    const game = Game.start(CONTROL, 0);
    play(game, FOOLS_MATE);
    expect(game.result).toEqual({ winner: "black", ending: "checkmate" });
    expect(game.deadlineMs).toBeUndefined();
    expect(refusal(() => game.move("white", "e2e4", 9_000))).toBe("GAME_OVER");
    expect(refusal(() => game.resign("white", 9_000))).toBe("GAME_OVER");
  });

  test("ends with a stalemate", () => {
    const game = Game.start({ initialMs: 600_000, incrementMs: 0 }, 0);
    play(game, STALEMATE.slice(0, -1));
    expect(game.result).toBeNull();
    play(game, STALEMATE.slice(-1), 100_000);
    expect(game.result).toEqual({ winner: null, ending: "stalemate" });
  });

  test("ends when a position occurs for the third time", () => {
    const game = Game.start(CONTROL, 0);
    play(game, [...KNIGHTS, ...KNIGHTS.slice(0, 3)]);
    expect(game.result).toBeNull();
    play(game, KNIGHTS.slice(3), 8_000);
    expect(game.result).toEqual({ winner: null, ending: "repetition" });
  });

  test("ends after fifty moves without a capture and without a pawn's move", () => {
    const game = Game.start({ initialMs: 10_000_000, incrementMs: 0 }, 0);
    const random = new Random(1);
    // Random moves of pieces that neither capture nor repeat a position three times.
    for (let ply = 0; ply < 100 && !game.result; ply += 1) game.move(game.turn, quietMove(game, random), ply);
    expect(game.ply).toBe(100);
    expect(game.result).toEqual({ winner: null, ending: "fifty_moves" });
  });

  test("refuses what is not legal, and what is not the player's turn", () => {
    const game = Game.start(CONTROL, 0);
    expect(refusal(() => game.move("white", "e2e5", 1))).toBe("ILLEGAL_MOVE");
    expect(refusal(() => game.move("white", "castle", 1))).toBe("ILLEGAL_MOVE");
    expect(refusal(() => game.move("white", "e7e5", 1))).toBe("ILLEGAL_MOVE");
    expect(refusal(() => game.move("black", "e7e5", 1))).toBe("NOT_YOUR_TURN");
    expect(game.ply).toBe(0);
    expect(game.clock(0).whiteMs).toBe(60_000);
  });

  test("is lost by the side whose time is over", () => {
    const game = Game.start(CONTROL, 0);
    play(game, ["e2e4"]);
    expect(game.expire(60_999)).toBe(false);
    expect(game.expire(61_000)).toBe(true);
    expect(game.result).toEqual({ winner: "white", ending: "time" });
    expect(game.clock(99_000)).toEqual({ whiteMs: 60_000, blackMs: 0, running: null });
  });

  test("is lost by time even if the move comes before the server has looked at the clock", () => {
    const game = Game.start(CONTROL, 0);
    expect(game.move("white", "e2e4", 60_000)).toBeUndefined();
    expect(game.result).toEqual({ winner: "black", ending: "time" });
    expect(game.ply).toBe(0);
  });

  test("is a draw if the time is over and the other side has only a king", () => {
    // White captures all of Black's pieces but the king.
    const game = Game.start({ initialMs: 10_000_000, incrementMs: 0 }, 0);
    const random = new Random(3);
    while (!game.result && !onlyKing(game, "b")) game.move(game.turn, captureBlack(game, random), 1);
    expect(game.result).toBeNull();
    if (game.turn === "black") game.move("black", captureBlack(game, random), 1);
    expect(game.turn).toBe("white");
    game.expire(20_000_000);
    expect(game.result).toEqual({ winner: null, ending: "time_without_mating_material" });
  });

  test("is a draw by agreement, and a move declines the offer", () => {
    const game = Game.start(CONTROL, 0);
    expect(refusal(() => game.acceptDraw("black", 0))).toBe("NO_OFFER");
    game.offerDraw("white", 0);
    expect(refusal(() => game.acceptDraw("white", 0))).toBe("NO_OFFER");
    game.move("white", "e2e4", 1);
    expect(game.offer).toBe("white");
    game.move("black", "e7e5", 2);
    expect(game.offer).toBeNull();
    game.offerDraw("black", 3);
    game.declineDraw("white");
    expect(game.offer).toBeNull();
    game.offerDraw("black", 3);
    game.acceptDraw("white", 4);
    expect(game.result).toEqual({ winner: null, ending: "agreement" });
  });

  test("is lost by who resigns", () => {
    const game = Game.start(CONTROL, 0);
    game.resign("white", 1);
    expect(game.result).toEqual({ winner: "black", ending: "resignation" });
  });

  test("continues from a saved state, with the repetitions of before", () => {
    const game = Game.start(CONTROL, 0);
    const nowMs = play(game, [...KNIGHTS, ...KNIGHTS.slice(0, 3)]);
    const saved = JSON.parse(JSON.stringify(game.save(nowMs + 500)));
    const again = Game.restore(saved, CONTROL, 1_000_000);
    expect(again.fen).toBe(game.fen);
    expect(again.clock(1_000_000)).toEqual(game.clock(nowMs + 500));
    again.move("black", "f6g8", 1_000_100);
    expect(again.result).toEqual({ winner: null, ending: "repetition" });
  });
});

describe("a machine player", () => {
  test.each([0, 1, 2] as Skill[])("of skill %i plays legal games to their end", (skill) => {
    for (let seed = 1; seed <= 2; seed += 1) {
      const game = Game.start({ initialMs: 1_000_000, incrementMs: 0 }, 0);
      const random = new Random(seed);
      while (!game.result && game.ply < 200) {
        const before = game.fen;
        const move = chooseMove(game.position, skill, random);
        expect(game.fen).toBe(before);
        game.move(game.turn, move, 1);
      }
      expect(game.ply).toBeGreaterThan(3);
    }
  });

  test("plays the same game for the same seed, and another one for another seed", () => {
    const moves = (seed: number) => {
      const game = Game.start(CONTROL, 0);
      const random = new Random(seed);
      for (let ply = 0; ply < 20; ply += 1) game.move(game.turn, chooseMove(game.position, 1, random), ply);
      return game.save(20).moves;
    };
    expect(moves(7)).toBe(moves(7));
    expect(moves(7)).not.toBe(moves(8));
  });

  test.each([1, 2] as Skill[])("of skill %i gives mate when it can", (skill) => {
    const game = Game.start(CONTROL, 0);
    play(game, FOOLS_MATE.slice(0, -1));
    expect(chooseMove(game.position, skill, new Random(5))).toBe("d8h4");
  });

  test("of skill 2 does not give its queen for a pawn", () => {
    const game = Game.start(CONTROL, 0);
    // The queen on h5 could take the pawn on h7, which the rook defends.
    play(game, ["e2e4", "e7e5", "d1h5", "b8c6"]);
    for (let seed = 1; seed <= 20; seed += 1)
      expect(["h5h7", "h5f7", "h5e5"]).not.toContain(chooseMove(game.position, 2, new Random(seed)));
    const greedy = Array.from({ length: 20 }, (_, seed) => chooseMove(game.position, 1, new Random(seed)));
    expect(greedy.some((move) => ["h5h7", "h5f7", "h5e5"].includes(move))).toBe(true);
  });
});

/**
 * A move of a piece, not a pawn, that captures nothing and does not repeat a position for the third
 * time.
 */
function quietMove(game: Game, random: Random): string {
  const quiet = game.position
    .moves({ verbose: true })
    .filter(({ piece, captured }) => piece !== "p" && !captured);
  for (let attempt = 0; attempt < 100; attempt += 1) {
    const move = quiet[random.below(quiet.length)];
    if (!move) break;
    game.position.move(move.lan);
    const repeats = game.position.isThreefoldRepetition();
    game.position.undo();
    if (!repeats) return move.lan;
  }
  throw new Error("no quiet move");
}

function onlyKing(game: Game, color: "w" | "b"): boolean {
  return (
    game.position
      .board()
      .flat()
      .filter((piece) => piece?.color === color).length === 1
  );
}

/** White captures what it can, Black captures nothing if it can avoid it; nobody ends the game. */
function captureBlack(game: Game, random: Random): string {
  const moves = game.position.moves({ verbose: true });
  const score = (move: (typeof moves)[number]) => {
    game.position.move(move.lan);
    const ends = game.position.isGameOver();
    game.position.undo();
    const capture = move.captured ? (game.turn === "white" ? 10 : -10) : 0;
    return (ends ? -100 : capture) + (move.piece === "p" ? 2 : 0) + random.next();
  };
  const scored = moves.map((move) => ({ move, score: score(move) })).sort((a, b) => b.score - a.score);
  return scored[0]!.move.lan;
}
