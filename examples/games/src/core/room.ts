/** A room: two seats, a game, a chat, and the events for those who watch. */

import { Chat, type ChatLine, type SavedChat } from "./chat.js";
import { other, type Side, type TimeControl } from "./clock.js";
import { Refusal } from "./errors.js";
import { Game, type Result, type SavedGame } from "./game.js";
import { chooseMove, type Skill } from "./machine.js";
import type { Random } from "./random.js";
import type { RoomEvent, RoomEvents, RoomStatus, RoomSummary, RoomView } from "./view.js";

export interface Seat {
  player: string;
  /** The skill of a machine player; `null` for a person. */
  skill: Skill | null;
}

export interface RoomSetup {
  name: string;
  host: string | null;
  control: TimeControl;
  tournament: string | null;
  /** The time that a machine player waits before it moves. */
  machineMoveMs: number;
}

export interface SavedRoom extends RoomSetup {
  room: string;
  v: number;
  seats: Record<Side, Seat | null>;
  game: SavedGame | null;
  chat: SavedChat;
  /**
   * When the room is removed and when a machine player moves, counted from the time of the
   * snapshot.
   */
  closesInMs: number | null;
  machineMovesInMs: number | null;
}

const START_FEN = "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1";

export class Room {
  readonly id: string;
  readonly setup: RoomSetup;
  #v = 0;
  #seats: Record<Side, Seat | null> = { white: null, black: null };
  #game: Game | null = null;
  #chat = new Chat();
  #machineDueMs: number | undefined;
  /** When a room in which nothing is played is removed. */
  closesAtMs: number | undefined;
  readonly #emit: (event: RoomEvent) => void;

  constructor(id: string, setup: RoomSetup, emit: (event: RoomEvent) => void) {
    this.id = id;
    this.setup = setup;
    this.#emit = emit;
  }

  static restore(saved: SavedRoom, emit: (event: RoomEvent) => void, nowMs: number): Room {
    const { room: id, v, seats, game, chat, closesInMs, machineMovesInMs, ...setup } = saved;
    const room = new Room(id, setup, emit);
    room.#v = v;
    room.#seats = seats;
    room.#chat = Chat.restore(chat);
    room.#game = game && Game.restore(game, setup.control, nowMs);
    room.closesAtMs = closesInMs === null ? undefined : nowMs + closesInMs;
    if (machineMovesInMs !== null) room.#machineDueMs = nowMs + machineMovesInMs;
    return room;
  }

  save(nowMs: number): SavedRoom {
    return {
      ...this.setup,
      room: this.id,
      v: this.#v,
      seats: this.#seats,
      game: this.#game?.save(nowMs) ?? null,
      chat: this.#chat.save(),
      closesInMs: timeUntil(this.closesAtMs, nowMs),
      machineMovesInMs: timeUntil(this.#machineDueMs, nowMs),
    };
  }

  get status(): RoomStatus {
    if (!this.#game) return "waiting";
    return this.#game.result ? "over" : "playing";
  }

  get result(): Result | null {
    return this.#game?.result ?? null;
  }

  get seats(): Readonly<Record<Side, Seat | null>> {
    return this.#seats;
  }

  /** When this room has something to do by itself. */
  get deadlineMs(): number | undefined {
    const times = [this.#game?.deadlineMs, this.#machineDueMs, this.closesAtMs];
    const known = times.filter((time) => time !== undefined);
    return known.length === 0 ? undefined : Math.min(...known);
  }

  summary(): RoomSummary {
    return {
      room: this.id,
      name: this.setup.name,
      white: this.#seats.white?.player ?? null,
      black: this.#seats.black?.player ?? null,
      control: this.setup.control,
      status: this.status,
      result: this.result,
      tournament: this.setup.tournament,
    };
  }

  view(nowMs: number): RoomView {
    const { initialMs } = this.setup.control;
    return {
      ...this.summary(),
      v: this.#v,
      host: this.setup.host,
      fen: this.#game?.fen ?? START_FEN,
      moves: this.#game?.moves ?? [],
      clock: this.#game?.clock(nowMs) ?? { whiteMs: initialMs, blackMs: initialMs, running: null },
      clockAtMs: nowMs,
      offer: this.#game?.offer ?? null,
      chat: [...this.#chat.lines],
      muted: this.#chat.muted(nowMs),
    };
  }

  sideOf(player: string): Side | undefined {
    if (this.#seats.white?.player === player) return "white";
    if (this.#seats.black?.player === player) return "black";
    return undefined;
  }

  /** Takes a seat, by default the one that is free. The game starts when both seats are taken. */
  sit(seat: Seat, side: Side | undefined, nowMs: number, firstMoveDueMs?: number): void {
    if (this.#game) throw new Refusal("SEAT_TAKEN", "the game has started; you can watch");
    if (this.sideOf(seat.player)) throw new Refusal("SEAT_TAKEN", "you have a seat in this room");
    const chosen = side ?? (this.#seats.white ? "black" : "white");
    if (this.#seats[chosen]) throw new Refusal("SEAT_TAKEN", `${chosen} is taken`);
    this.#setSeat(chosen, seat);
    if (this.#seats.white && this.#seats.black)
      this.#start(nowMs, firstMoveDueMs ?? nowMs + this.setup.machineMoveMs);
  }

  /** Leaves a seat before the game has started. */
  leave(player: string): void {
    const side = this.#sideBefore(player);
    this.#setSeat(side, null);
  }

  /**
   * Makes a move of a player. `ply` is the number of the move, from 1: a move that is sent again
   * changes nothing.
   */
  move(player: string, move: string, ply: number, nowMs: number): void {
    const [game, side] = this.#playing(player);
    if (ply <= game.ply && game.moves[ply - 1] === move) return;
    if (ply !== game.ply + 1)
      throw new Refusal("WRONG_PLY", `the next move is number ${game.ply + 1}, not ${ply}`);
    this.#move(game, side, move, nowMs, nowMs);
  }

  resign(player: string, nowMs: number): void {
    const [game, side] = this.#playing(player);
    game.resign(side, nowMs);
    this.#publishEnd(game, nowMs);
  }

  draw(player: string, answer: "offer" | "accept" | "decline", nowMs: number): void {
    const [game, side] = this.#playing(player);
    const before = game.offer;
    if (answer === "offer") game.offerDraw(side, nowMs);
    else if (answer === "accept") game.acceptDraw(side, nowMs);
    else game.declineDraw(side);
    if (game.result) this.#publishEnd(game, nowMs);
    else if (game.offer !== before) this.#publish("offer", { offer: game.offer });
  }

  post(player: string, text: string, nowMs: number): ChatLine {
    const mutedBefore = this.#chat.mutedUntilMs(player, nowMs);
    try {
      const line = this.#chat.post(player, text, nowMs);
      this.#publish("chat", { line });
      return line;
    } finally {
      const mutedNow = this.#chat.mutedUntilMs(player, nowMs);
      if (mutedBefore === undefined && mutedNow !== undefined)
        this.#publish("mute", { player, untilMs: mutedNow });
    }
  }

  /** Mutes a player for some time, or not any more for 0. Only the host may. */
  mute(host: string, player: string, forMs: number, nowMs: number): void {
    if (host !== this.setup.host)
      throw new Refusal("NOT_ALLOWED", "only the host of a room mutes players in it");
    if (player === host) throw new Refusal("NOT_ALLOWED", "the host cannot be muted");
    if (forMs > 0) {
      this.#publish("mute", { player, untilMs: this.#chat.mute(player, forMs, nowMs) });
    } else if (this.#chat.mutedUntilMs(player, nowMs) !== undefined) {
      this.#chat.unmute(player);
      this.#publish("mute", { player, untilMs: null });
    }
  }

  /** Does what is due: forfeits by time, and the move of a machine player. */
  poll(nowMs: number, random: Random): void {
    const game = this.#game;
    if (!game || game.result) return;
    if (game.expire(nowMs)) {
      this.#publishEnd(game, nowMs);
      return;
    }
    const dueMs = this.#machineDueMs;
    if (dueMs === undefined || dueMs > nowMs) return;
    const skill = this.#seats[game.turn]?.skill;
    if (skill === null || skill === undefined) return;
    if (game.offer === other(game.turn)) game.declineDraw(game.turn);
    this.#move(game, game.turn, chooseMove(game.position, skill, random), nowMs, dueMs);
  }

  /** Publishes that the room is removed. */
  close(): void {
    this.#publish("closed", {});
  }

  #sideBefore(player: string): Side {
    const side = this.sideOf(player);
    if (!side) throw new Refusal("NOT_ALLOWED", "you have no seat in this room");
    if (this.#game) throw new Refusal("NOT_ALLOWED", "the game has started; resign to end it");
    return side;
  }

  #playing(player: string): [Game, Side] {
    const side = this.sideOf(player);
    if (!side) throw new Refusal("NOT_ALLOWED", "you do not play in this room");
    if (!this.#game) throw new Refusal("NOT_STARTED", "the other seat is empty");
    return [this.#game, side];
  }

  #setSeat(side: Side, seat: Seat | null): void {
    this.#seats = { ...this.#seats, [side]: seat };
    const { white, black } = this.#seats;
    this.#publish("seats", { white: white?.player ?? null, black: black?.player ?? null });
  }

  #start(nowMs: number, firstMoveDueMs: number): void {
    this.#game = Game.start(this.setup.control, nowMs);
    this.#planMachine(firstMoveDueMs);
    this.#publish("start", { clock: this.#game.clock(nowMs), clockAtMs: nowMs });
  }

  #move(game: Game, side: Side, move: string, nowMs: number, atMs: number): void {
    const record = game.move(side, move, nowMs);
    if (record) {
      const { ply, fen } = game;
      this.#publish("move", { ply, ...record, fen, clock: game.clock(nowMs), clockAtMs: nowMs, at: atMs });
    }
    // Machine against machine keeps its pace: the next move counts from when this one was due.
    this.#planMachine(Math.max(nowMs + 1, atMs + this.setup.machineMoveMs));
    if (game.result) this.#publishEnd(game, nowMs);
  }

  #planMachine(dueMs: number): void {
    const game = this.#game;
    const isTurn = game && !game.result && this.#seats[game.turn]?.skill !== null;
    this.#machineDueMs = isTurn ? dueMs : undefined;
  }

  #publishEnd(game: Game, nowMs: number): void {
    this.#machineDueMs = undefined;
    if (game.result)
      this.#publish("over", { result: game.result, clock: game.clock(nowMs), clockAtMs: nowMs });
  }

  #publish<Type extends keyof RoomEvents>(type: Type, payload: Omit<RoomEvents[Type], "v">): void {
    this.#v += 1;
    this.#emit({ type, payload: { v: this.#v, ...payload } } as RoomEvent);
  }
}

function timeUntil(atMs: number | undefined, nowMs: number): number | null {
  return atMs === undefined ? null : Math.max(0, atMs - nowMs);
}
