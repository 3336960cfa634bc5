/**
 * One game of chess: the rules by chess.js, the clock, offers of a draw, and every way in which a
 * game ends. No I/O; the time is an argument.
 */

import { Chess } from "chess.js";
import { Clock, type ClockView, other, type Side, type TimeControl } from "./clock.js";
import { Refusal } from "./errors.js";

export type Ending =
  | "checkmate"
  | "resignation"
  | "time"
  /**
   * The time of a side is over, but the other side has only a king and cannot mate (FIDE Laws of
   * Chess, article 6.9).
   */
  | "time_without_mating_material"
  | "agreement"
  | "stalemate"
  | "repetition"
  | "fifty_moves"
  | "insufficient_material";

export interface Result {
  /** `null` is a draw. */
  winner: Side | null;
  ending: Ending;
}

/**
 * A game as JSON. The moves have the coordinates of UCI, `e2e4` or `e7e8q`, with a space between
 * them.
 */
export interface SavedGame {
  moves: string;
  clock: ClockView;
  offer: Side | null;
  result: Result | null;
}

/** A move that was made. */
export interface MoveRecord {
  move: string;
  /** The move in algebraic notation, such as `Nf3` or `Qxf7#`. */
  san: string;
}

const MOVE = /^([a-h][1-8])([a-h][1-8])([qrbn]?)$/;

export class Game {
  readonly #chess = new Chess();
  readonly #clock: Clock;
  /** The moves in one text: it costs less memory than a list, and is what a snapshot holds. */
  #moves = "";
  #ply = 0;
  #offer: Side | null = null;
  #result: Result | null = null;

  private constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts a game; the time of White runs from `nowMs`. */
  static start(control: TimeControl, nowMs: number): Game {
    const clock = new Clock(control);
    clock.start("white", nowMs);
    return new Game(clock);
  }

  /**
   * Continues a saved game: the rules library plays all moves again, because repetitions count from
   * the first one.
   */
  static restore(saved: SavedGame, control: TimeControl, nowMs: number): Game {
    const game = new Game(Clock.restore(control, saved.clock, nowMs));
    for (const move of saved.moves.split(" ")) if (move) game.#play(move);
    game.#offer = saved.offer;
    game.#result = saved.result;
    return game;
  }

  save(nowMs: number): SavedGame {
    return { moves: this.#moves, clock: this.clock(nowMs), offer: this.#offer, result: this.#result };
  }

  get turn(): Side {
    return this.#ply % 2 === 0 ? "white" : "black";
  }

  /** The number of moves that were made, by both sides. */
  get ply(): number {
    return this.#ply;
  }

  get moves(): string[] {
    return this.#moves === "" ? [] : this.#moves.split(" ");
  }

  get fen(): string {
    return this.#chess.fen();
  }

  get offer(): Side | null {
    return this.#offer;
  }

  get result(): Result | null {
    return this.#result;
  }

  /** When the running clock expires; `undefined` after the end. */
  get deadlineMs(): number | undefined {
    return this.#clock.deadlineMs;
  }

  clock(nowMs: number): ClockView {
    return this.#clock.view(nowMs);
  }

  /**
   * The rules library's position, for machine players. A caller that changes it must undo the
   * change.
   */
  get position(): Chess {
    return this.#chess;
  }

  /**
   * Makes a move. A move declines the other side's offer of a draw. A move after the time is over
   * ends the game by time.
   */
  move(side: Side, move: string, nowMs: number): MoveRecord | undefined {
    this.#mustRun();
    if (this.expire(nowMs)) return undefined;
    if (side !== this.turn) throw new Refusal("NOT_YOUR_TURN", `it is the turn of ${this.turn}`);
    const { lan, san } = this.#play(move);
    if (this.#offer === other(side)) this.#offer = null;
    this.#clock.press(nowMs);
    const result = this.#resultOnBoard(side);
    if (result) this.#end(result, nowMs);
    return { move: lan, san };
  }

  resign(side: Side, nowMs: number): void {
    this.#mustRun();
    if (!this.expire(nowMs)) this.#end({ winner: other(side), ending: "resignation" }, nowMs);
  }

  /** Offers a draw; an offer of both sides is an agreement. */
  offerDraw(side: Side, nowMs: number): void {
    this.#mustRun();
    if (this.expire(nowMs)) return;
    if (this.#offer === other(side)) this.#end({ winner: null, ending: "agreement" }, nowMs);
    else this.#offer = side;
  }

  acceptDraw(side: Side, nowMs: number): void {
    this.#mustRun();
    if (this.#offer !== other(side)) throw new Refusal("NO_OFFER", "the other side offers no draw");
    this.offerDraw(side, nowMs);
  }

  declineDraw(side: Side): void {
    this.#mustRun();
    if (this.#offer !== other(side)) throw new Refusal("NO_OFFER", "the other side offers no draw");
    this.#offer = null;
  }

  /** Ends the game if the time of the running side is over, and says whether it did. */
  expire(nowMs: number): boolean {
    if (this.#result || !this.#clock.hasExpired(nowMs)) return false;
    const winner = other(this.turn);
    if (this.#hasOnlyKing(winner)) this.#end({ winner: null, ending: "time_without_mating_material" }, nowMs);
    else this.#end({ winner, ending: "time" }, nowMs);
    return true;
  }

  #mustRun(): void {
    if (this.#result) throw new Refusal("GAME_OVER", "the game is over");
  }

  #play(move: string): { lan: string; san: string } {
    const [, from, to, promotion] = MOVE.exec(move) ?? [];
    if (!from || !to)
      throw new Refusal("ILLEGAL_MOVE", `${move.slice(0, 8)} is no move; write e2e4 or e7e8q`);
    const { lan, san } = this.#makeMove({ from, to, ...(promotion ? { promotion } : {}) });
    this.#moves = this.#moves === "" ? lan : `${this.#moves} ${lan}`;
    this.#ply += 1;
    return { lan, san };
  }

  #makeMove(move: { from: string; to: string; promotion?: string }): { lan: string; san: string } {
    try {
      return this.#chess.move(move);
    } catch {
      throw new Refusal("ILLEGAL_MOVE", `${move.from}${move.to} is not legal in this position`);
    }
  }

  #resultOnBoard(mover: Side): Result | null {
    const chess = this.#chess;
    if (chess.isCheckmate()) return { winner: mover, ending: "checkmate" };
    if (chess.isStalemate()) return { winner: null, ending: "stalemate" };
    if (chess.isInsufficientMaterial()) return { winner: null, ending: "insufficient_material" };
    if (chess.isThreefoldRepetition()) return { winner: null, ending: "repetition" };
    if (chess.isDrawByFiftyMoves()) return { winner: null, ending: "fifty_moves" };
    return null;
  }

  #hasOnlyKing(side: Side): boolean {
    const color = side === "white" ? "w" : "b";
    return this.#chess
      .board()
      .every((rank) => rank.every((piece) => piece?.color !== color || piece.type === "k"));
  }

  #end(result: Result, nowMs: number): void {
    this.#clock.stop(nowMs);
    this.#offer = null;
    this.#result = result;
  }
}
