/** Machine players: always legal, never strong, and the same for the same seed. */

import type { Chess, Square } from "chess.js";
import type { Random } from "./random.js";

/**
 * 0 makes any legal move, 1 the best one by itself, 2 also looks at the answers of the other side.
 */
export type Skill = 0 | 1 | 2;

const VALUE: Record<string, number> = { p: 1, n: 3, b: 3, r: 5, q: 9, k: 0 };
const MATE = 1000;
/** How many of the best moves skill 2 looks at the answers of; it bounds the time of a move. */
const CANDIDATES = 6;

/**
 * Chooses a move of the side to move, as `e2e4`. The position must have one. It is the same before
 * and after.
 */
export function chooseMove(chess: Chess, skill: Skill, random: Random): string {
  const moves = chess.moves();
  const first = moves[0];
  if (first === undefined) throw new Error("no legal move: the game must be over");
  if (skill === 0) return coordinates(chess, moves[random.below(moves.length)] ?? first);
  const scored = moves.map((san) => ({ san, score: gain(chess, san) + random.next() / 2 }));
  scored.sort((a, b) => b.score - a.score);
  if (skill === 1) return coordinates(chess, scored[0]?.san ?? first);
  let best = first;
  let bestScore = -Infinity;
  for (const { san, score } of scored.slice(0, CANDIDATES)) {
    const answered = score >= MATE ? score : score - bestAnswer(chess, san);
    if (answered > bestScore) [best, bestScore] = [san, answered];
  }
  return coordinates(chess, best);
}

/**
 * The value that a move wins at once, in pawns. The notation has everything but the captured piece.
 */
function gain(chess: Chess, san: string): number {
  if (san.endsWith("#")) return MATE;
  let score = san.endsWith("+") ? 0.3 : 0;
  const promoted = /=([QRBN])/.exec(san)?.[1];
  if (promoted) score += (VALUE[promoted.toLowerCase()] ?? 0) - 1;
  if (san.startsWith("O-O")) score += 0.6;
  if (san.includes("x")) {
    const square = /([a-h][1-8])(?:=[QRBN])?[+#]?$/.exec(san)?.[1];
    const captured = square ? chess.get(square as Square)?.type : undefined;
    // En passant captures a pawn that is on another square.
    score += VALUE[captured ?? "p"] ?? 1;
  }
  return score;
}

function bestAnswer(chess: Chess, san: string): number {
  chess.move(san);
  const best = chess.moves().reduce((max, answer) => Math.max(max, gain(chess, answer)), 0);
  chess.undo();
  return best;
}

function coordinates(chess: Chess, san: string): string {
  const { lan } = chess.move(san);
  chess.undo();
  return lan;
}
