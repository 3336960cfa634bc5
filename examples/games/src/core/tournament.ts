/** A tournament: registration, rounds, results, and the table. */

import type { TimeControl } from "./clock.js";
import { Refusal } from "./errors.js";
import type { Result } from "./game.js";
import { type Pair, roundRobin, type Standing, swissRound, swissRounds } from "./pairing.js";
import type { Seat } from "./room.js";

/**
 * Up to this many players a tournament is a round robin: 8 players need 7 rounds, and the table is
 * fair. 32 players would need 31 rounds and 100 players 99; a Swiss tournament finds a winner in 5
 * and in 7.
 */
export const ROUND_ROBIN_MAX = 10;

export const TOURNAMENT_LIMITS = { playersMin: 2, playersMax: 128 } as const;

export type TournamentStatus = "open" | "running" | "over";

export interface TournamentSetup {
  name: string;
  host: string | null;
  /** The number of players with which it starts. */
  size: number;
  control: TimeControl;
  machineMoveMs: number;
}

/** A game of a round. */
export interface Pairing extends Pair {
  room: string | null;
  /** The points of White: 1, 0.5 or 0; `null` while it is played. */
  whitePoints: number | null;
}

export interface TableRow {
  rank: number;
  player: string;
  points: number;
  wins: number;
  draws: number;
  losses: number;
  /** Order of players of equal points: Buchholz (Swiss) or Sonneborn-Berger (round robin). */
  tieBreak: number;
}

export interface TournamentView {
  tournament: string;
  name: string;
  host: string | null;
  size: number;
  format: "round robin" | "swiss";
  control: TimeControl;
  status: TournamentStatus;
  players: string[];
  roundsTotal: number;
  rounds: Pairing[][];
  table: TableRow[];
}

export type TournamentSummary = Pick<TournamentView, "tournament" | "name" | "size" | "format" | "status"> & {
  registered: number;
  round: number;
};

export interface SavedTournament extends TournamentSetup {
  tournament: string;
  status: TournamentStatus;
  seats: Seat[];
  rounds: Pairing[][];
}

/** A game as one of its players sees it; a bye has no opponent. */
interface PlayedGame {
  opponent: string | null;
  scored: number | null;
  color: "white" | "black";
}

export class Tournament {
  readonly id: string;
  readonly setup: TournamentSetup;
  #status: TournamentStatus = "open";
  #seats: Seat[] = [];
  #rounds: Pairing[][] = [];

  constructor(id: string, setup: TournamentSetup) {
    this.id = id;
    this.setup = setup;
  }

  static restore(saved: SavedTournament): Tournament {
    const { tournament: id, status, seats, rounds, ...setup } = saved;
    const tournament = new Tournament(id, setup);
    tournament.#status = status;
    tournament.#seats = seats;
    tournament.#rounds = rounds;
    return tournament;
  }

  save(): SavedTournament {
    return {
      ...this.setup,
      tournament: this.id,
      status: this.#status,
      seats: this.#seats,
      rounds: this.#rounds,
    };
  }

  get status(): TournamentStatus {
    return this.#status;
  }

  get players(): string[] {
    return this.#seats.map(({ player }) => player);
  }

  get isFull(): boolean {
    return this.#seats.length >= this.setup.size;
  }

  get isRoundRobin(): boolean {
    return this.setup.size <= ROUND_ROBIN_MAX;
  }

  get roundsTotal(): number {
    if (!this.isRoundRobin) return swissRounds(this.setup.size);
    return this.setup.size % 2 === 0 ? this.setup.size - 1 : this.setup.size;
  }

  seat(player: string): Seat | undefined {
    return this.#seats.find((seat) => seat.player === player);
  }

  register(seat: Seat): void {
    if (this.#status !== "open") throw new Refusal("NOT_ALLOWED", "the tournament has started");
    if (this.seat(seat.player)) throw new Refusal("SEAT_TAKEN", "you are registered");
    if (this.isFull) throw new Refusal("LIMIT_REACHED", "the tournament is full");
    this.#seats.push(seat);
  }

  withdraw(player: string): void {
    if (this.#status !== "open")
      throw new Refusal("NOT_ALLOWED", "the tournament has started; resign your games");
    if (!this.seat(player)) throw new Refusal("NOT_ALLOWED", "you are not registered");
    this.#seats = this.#seats.filter((seat) => seat.player !== player);
  }

  /** Pairs the next round if the present one is over. Returns its games, or nothing. */
  nextRound(): Pairing[] {
    if (this.#status === "over" || (this.#status === "open" && !this.isFull)) return [];
    if (this.#rounds.at(-1)?.some(({ whitePoints }) => whitePoints === null)) return [];
    if (this.#rounds.length >= this.roundsTotal) {
      this.#status = "over";
      return [];
    }
    this.#status = "running";
    const pairs = this.isRoundRobin
      ? (roundRobin(this.players)[this.#rounds.length] ?? [])
      : swissRound(this.#standings());
    const round = pairs.map((pair) => ({ ...pair, room: null, whitePoints: pair.black === null ? 1 : null }));
    this.#rounds.push(round);
    return round;
  }

  /** The games of the present round that are not over. */
  get openPairings(): Pairing[] {
    return (this.#rounds.at(-1) ?? []).filter(({ whitePoints }) => whitePoints === null);
  }

  /** The result of the game in a room. Says whether it was awaited. */
  report(room: string, result: Result): boolean {
    const pairing = this.openPairings.find((pairing) => pairing.room === room);
    if (!pairing) return false;
    pairing.whitePoints = result.winner === null ? 0.5 : result.winner === "white" ? 1 : 0;
    return true;
  }

  summary(): TournamentSummary {
    const { name, size } = this.setup;
    const format = this.isRoundRobin ? "round robin" : "swiss";
    const registered = this.#seats.length;
    return {
      tournament: this.id,
      name,
      size,
      format,
      status: this.#status,
      registered,
      round: this.#rounds.length,
    };
  }

  view(): TournamentView {
    const { name, host, size, control } = this.setup;
    return {
      tournament: this.id,
      name,
      host,
      size,
      format: this.isRoundRobin ? "round robin" : "swiss",
      control,
      status: this.#status,
      players: this.players,
      roundsTotal: this.roundsTotal,
      rounds: this.#rounds.map((round) => round.map((pairing) => ({ ...pairing }))),
      table: this.table(),
    };
  }

  /** The players by points, tie-break, wins, and registration. */
  table(): TableRow[] {
    const points = this.#points();
    const rows = this.players.map((player) => {
      const games = this.#games(player);
      const count = (wanted: number) => games.filter(({ scored }) => scored === wanted).length;
      const tieBreak = games.reduce((sum, { opponent, scored }) => {
        if (opponent === null || scored === null) return sum;
        return sum + (points.get(opponent) ?? 0) * (this.isRoundRobin ? scored : 1);
      }, 0);
      const counts = { wins: count(1), draws: count(0.5), losses: count(0) };
      return { player, points: points.get(player) ?? 0, ...counts, tieBreak };
    });
    rows.sort((a, b) => b.points - a.points || b.tieBreak - a.tieBreak || b.wins - a.wins);
    return rows.map((row, index) => ({ rank: index + 1, ...row }));
  }

  #games(player: string): PlayedGame[] {
    const games: PlayedGame[] = [];
    for (const { white, black, whitePoints } of this.#rounds.flat()) {
      const blackPoints = whitePoints === null ? null : 1 - whitePoints;
      if (white === player) games.push({ opponent: black, scored: whitePoints, color: "white" });
      else if (black === player) games.push({ opponent: white, scored: blackPoints, color: "black" });
    }
    return games;
  }

  #points(): Map<string, number> {
    const points = new Map(this.players.map((player) => [player, 0]));
    for (const { white, black, whitePoints } of this.#rounds.flat()) {
      if (whitePoints === null) continue;
      points.set(white, (points.get(white) ?? 0) + whitePoints);
      if (black !== null) points.set(black, (points.get(black) ?? 0) + 1 - whitePoints);
    }
    return points;
  }

  #standings(): Standing[] {
    const points = this.#points();
    return this.players.map((player, seed) => {
      const games = this.#games(player);
      const played = games.filter(({ opponent }) => opponent !== null);
      return {
        player,
        points: points.get(player) ?? 0,
        seed,
        opponents: new Set(played.map(({ opponent }) => opponent ?? "")),
        whiteSurplus: played.reduce((sum, { color }) => sum + (color === "white" ? 1 : -1), 0),
        lastColor: played.at(-1)?.color ?? null,
        hadBye: played.length < games.length,
      };
    });
  }
}
