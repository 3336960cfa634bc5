/**
 * The hall: every room and every tournament. It does no I/O and has no clock: requests and `poll`
 * take the time as an argument, `takeEvents` returns what has to be published, and `nextDeadlineMs`
 * says when `poll` has to be called next.
 */

import type { Side, TimeControl } from "./clock.js";
import { Deadlines } from "./deadlines.js";
import { Refusal } from "./errors.js";
import type { Skill } from "./machine.js";
import { Random } from "./random.js";
import { Room, type RoomSetup, type SavedRoom, type Seat } from "./room.js";
import {
  type Pairing,
  type SavedTournament,
  Tournament,
  type TournamentSetup,
  type TournamentSummary,
} from "./tournament.js";
import type { RoomSummary } from "./view.js";

export const HALL_LIMITS = {
  roomsMax: 20_000,
  /** Rooms without a result that one player has opened. */
  roomsPerHostMax: 10,
  tournamentsMax: 100,
  tournamentsPerHostMax: 3,
  /** How long a finished game can be looked at. */
  overMs: 10 * 60_000,
  /** How long a room waits for a second player. */
  waitingMs: 30 * 60_000,
} as const;

/** A publication: the topic, the type of the message, and its payload. */
export interface HallEvent {
  topic: string;
  type: string;
  payload: unknown;
}

export interface HallOptions {
  seed: number;
  /** Games of machine against machine that run at any time. Default 0. */
  machineGames?: number;
  /** The time between two moves of machine players, in milliseconds. Default 1,000. */
  machineMoveMs?: number;
  /** The skill of the players of `machineGames`. Default 1. */
  machineSkill?: Skill;
}

/** Everything that a restart has to keep, as JSON. */
export interface SavedHall {
  format: 1;
  lastId: number;
  random: number;
  rooms: SavedRoom[];
  tournaments: SavedTournament[];
}

/** Rooms in one part of a snapshot: they take less than a millisecond. */
const ROOMS_PER_PART = 32;

const MACHINE_CONTROL: TimeControl = { initialMs: 600_000, incrementMs: 2_000 };

export class Hall {
  readonly #options: Required<HallOptions>;
  readonly #rooms = new Map<string, Room>();
  readonly #tournaments = new Map<string, Tournament>();
  readonly #deadlines = new Deadlines();
  readonly #random: Random;
  #lastId = 0;
  #machineRooms = 0;
  #events: HallEvent[] = [];
  /** The snapshot that is being written: rooms that are not, and texts of those that are. */
  #pass: { nowMs: number; pending: Set<Room>; written: string[] } | undefined;

  constructor(options: HallOptions, random?: Random) {
    this.#options = { machineGames: 0, machineMoveMs: 1_000, machineSkill: 1, ...options };
    this.#random = random ?? new Random(options.seed);
  }

  /** Continues from a snapshot. The clocks stood still in between. */
  static restore(options: HallOptions, saved: SavedHall, nowMs: number): Hall {
    if (saved.format !== 1)
      throw new Error(`a snapshot of format ${saved.format} cannot be read; this program reads format 1`);
    const hall = new Hall(options, new Random(saved.random));
    hall.#lastId = saved.lastId;
    for (const room of saved.rooms)
      hall.#adopt(Room.restore(room, (event) => hall.#publishRoom(room.room, event), nowMs));
    for (const tournament of saved.tournaments)
      hall.#tournaments.set(tournament.tournament, Tournament.restore(tournament));
    return hall;
  }

  save(nowMs: number): SavedHall {
    return JSON.parse([...this.saveParts(nowMs)].join("")) as SavedHall;
  }

  /**
   * The state of now as JSON text in parts of some rooms, for a caller that does other things
   * between two parts: a room that changes before its turn is written as it was. One such iteration
   * can run at a time.
   */
  *saveParts(nowMs: number): Generator<string, void> {
    const pass = { nowMs, pending: new Set(this.#rooms.values()), written: [] as string[] };
    this.#pass = pass;
    const tournaments = [...this.#tournaments.values()].map((tournament) => tournament.save());
    const head = { format: 1, lastId: this.#lastId, random: this.#random.state, tournaments };
    try {
      yield `${JSON.stringify(head).slice(0, -1)},"rooms":[`;
      for (let separator = ""; pass.pending.size > 0 || pass.written.length > 0; separator = ",") {
        for (const room of pass.pending) {
          if (pass.written.length >= ROOMS_PER_PART) break;
          this.#write(room);
        }
        yield separator + pass.written.splice(0).join(",");
      }
      yield "]}";
    } finally {
      this.#pass = undefined;
    }
  }

  /** Events since the last call that must be published, in their order. */
  takeEvents(): HallEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  get nextDeadlineMs(): number | undefined {
    return this.#deadlines.next?.atMs;
  }

  get roomCount(): number {
    return this.#rooms.size;
  }

  /**
   * Does what is due: time forfeits, moves of machine players, the end of old rooms, and new games
   * of machines. `roomsMax` bounds the rooms of one call, so that the caller can do other things in
   * between.
   */
  poll(nowMs: number, roomsMax = Number.POSITIVE_INFINITY): void {
    for (let rooms = 0; rooms < roomsMax; rooms += 1) {
      const next = this.#deadlines.next;
      if (!next || next.atMs > nowMs) break;
      const room = this.room(next.key);
      if (room.closesAtMs !== undefined && room.closesAtMs <= nowMs) {
        this.#remove(room);
        continue;
      }
      this.#change(room, nowMs, () => room.poll(nowMs, this.#random));
    }
    this.#openMachineGames(nowMs);
  }

  room(id: string): Room {
    const room = this.#rooms.get(id);
    if (!room) throw new Refusal("UNKNOWN_ROOM", `there is no room ${id}`);
    return room;
  }

  tournament(id: string): Tournament {
    const tournament = this.#tournaments.get(id);
    if (!tournament) throw new Refusal("UNKNOWN_TOURNAMENT", `there is no tournament ${id}`);
    return tournament;
  }

  /** The newest rooms first, those of people before those of machines. */
  roomList(limit: number): RoomSummary[] {
    const newest = [...this.#rooms.values()].reverse();
    const ofPeople = newest.filter((room) => !isOfMachines(room));
    const rooms = [...ofPeople, ...newest.filter(isOfMachines)];
    return rooms.slice(0, limit).map((room) => room.summary());
  }

  tournamentList(): TournamentSummary[] {
    return [...this.#tournaments.values()].reverse().map((tournament) => tournament.summary());
  }

  /**
   * Opens a room in which the host has a seat, and a machine player the other one if a skill is
   * given.
   */
  openRoom(
    host: string,
    name: string,
    control: TimeControl,
    side: Side,
    skill: Skill | null,
    nowMs: number,
  ): Room {
    const own = [...this.#rooms.values()].filter((room) => isOpenRoomOf(room, host));
    if (own.length >= HALL_LIMITS.roomsPerHostMax)
      throw new Refusal("LIMIT_REACHED", `you have ${own.length} open rooms; finish a game first`);
    const room = this.#newRoom({
      name,
      host,
      control,
      tournament: null,
      machineMoveMs: this.#options.machineMoveMs,
    });
    this.#change(room, nowMs, () => {
      room.sit({ player: host, skill: null }, side, nowMs);
      if (skill !== null) room.sit(this.#machine(skill), undefined, nowMs);
      else room.closesAtMs = nowMs + HALL_LIMITS.waitingMs;
    });
    return room;
  }

  join(player: string, id: string, side: Side | undefined, nowMs: number): Room {
    const room = this.room(id);
    this.#change(room, nowMs, () => {
      room.sit({ player, skill: null }, side, nowMs);
      if (room.status === "playing") room.closesAtMs = undefined;
    });
    return room;
  }

  leave(player: string, id: string, nowMs: number): void {
    const room = this.room(id);
    this.#change(room, nowMs, () => room.leave(player));
    if (!room.seats.white && !room.seats.black) this.#remove(room);
  }

  move(player: string, id: string, move: string, ply: number, nowMs: number): void {
    const room = this.room(id);
    this.#change(room, nowMs, () => room.move(player, move, ply, nowMs));
  }

  resign(player: string, id: string, nowMs: number): void {
    const room = this.room(id);
    this.#change(room, nowMs, () => room.resign(player, nowMs));
  }

  draw(player: string, id: string, answer: "offer" | "accept" | "decline", nowMs: number): void {
    const room = this.room(id);
    this.#change(room, nowMs, () => room.draw(player, answer, nowMs));
  }

  post(player: string, id: string, text: string, nowMs: number): void {
    const room = this.room(id);
    this.#write(room);
    room.post(player, text, nowMs);
  }

  mute(host: string, id: string, player: string, forMs: number, nowMs: number): void {
    const room = this.room(id);
    this.#write(room);
    room.mute(host, player, forMs, nowMs);
  }

  /** Opens a tournament; it starts when `size` players are registered. */
  openTournament(host: string | null, setup: Omit<TournamentSetup, "host" | "machineMoveMs">): Tournament {
    const unfinished = [...this.#tournaments.values()].filter(({ status }) => status !== "over");
    if (
      host !== null &&
      unfinished.filter(({ setup }) => setup.host === host).length >= HALL_LIMITS.tournamentsPerHostMax
    )
      throw new Refusal("LIMIT_REACHED", "you have too many open tournaments; finish one first");
    if (this.#tournaments.size >= HALL_LIMITS.tournamentsMax) this.#forgetTournament();
    const id = this.#newId();
    const tournament = new Tournament(id, { ...setup, host, machineMoveMs: this.#options.machineMoveMs });
    this.#tournaments.set(id, tournament);
    this.#publishTournament(tournament);
    return tournament;
  }

  register(player: string, id: string, nowMs: number): void {
    const tournament = this.tournament(id);
    tournament.register({ player, skill: null });
    this.#advance(tournament, nowMs);
  }

  withdraw(player: string, id: string): void {
    const tournament = this.tournament(id);
    tournament.withdraw(player);
    this.#publishTournament(tournament);
  }

  /**
   * Gives all free places to machine players, so that the tournament starts. `null` as the host is
   * the operator.
   */
  fillWithMachines(host: string | null, id: string, skill: Skill, nowMs: number): void {
    const tournament = this.tournament(id);
    if (host !== tournament.setup.host)
      throw new Refusal("NOT_ALLOWED", "only the host of a tournament fills it");
    if (tournament.status !== "open") throw new Refusal("NOT_ALLOWED", "the tournament has started");
    while (!tournament.isFull) tournament.register(this.#machine(skill));
    this.#advance(tournament, nowMs);
  }

  /** Runs an action on a room, and then everything that follows from it. */
  #change(room: Room, nowMs: number, action: () => void): void {
    this.#write(room);
    const before = room.status;
    const seats = room.seats;
    try {
      action();
    } finally {
      if (room.status === "over" && before !== "over") this.#ended(room, nowMs);
      if (room.status !== before || room.seats !== seats) this.#publish("lobby", "room", room.summary());
      this.#deadlines.set(room.id, room.deadlineMs);
    }
  }

  /**
   * Adds a room to the snapshot that is being written, unless it is there or is newer than the
   * snapshot.
   */
  #write(room: Room): void {
    const pass = this.#pass;
    if (pass?.pending.delete(room)) pass.written.push(JSON.stringify(room.save(pass.nowMs)));
  }

  #ended(room: Room, nowMs: number): void {
    room.closesAtMs = nowMs + HALL_LIMITS.overMs;
    if (isOfMachines(room)) this.#machineRooms -= 1;
    const { tournament: id } = room.setup;
    const tournament = id === null ? undefined : this.#tournaments.get(id);
    if (tournament && room.result && tournament.report(room.id, room.result))
      this.#advance(tournament, nowMs);
  }

  #advance(tournament: Tournament, nowMs: number): void {
    // A round of byes alone is over at once, so that several rounds can follow each other.
    for (let games = tournament.nextRound(); games.length > 0; games = tournament.nextRound())
      for (const pairing of games) this.#openPairing(tournament, pairing, nowMs);
    this.#publishTournament(tournament);
  }

  #openPairing(tournament: Tournament, pairing: Pairing, nowMs: number): void {
    const white = tournament.seat(pairing.white);
    const black = pairing.black === null ? undefined : tournament.seat(pairing.black);
    if (!white || !black) return;
    const { name, host, control, machineMoveMs } = tournament.setup;
    const title = `${name}, round ${tournament.summary().round}`;
    const room = this.#newRoom({ name: title, host, control, tournament: tournament.id, machineMoveMs });
    pairing.room = room.id;
    this.#change(room, nowMs, () => {
      room.sit(white, "white", nowMs);
      room.sit(black, "black", nowMs, this.#spread(nowMs, machineMoveMs));
    });
  }

  #openMachineGames(nowMs: number): void {
    const { machineGames, machineMoveMs, machineSkill } = this.#options;
    while (this.#machineRooms < machineGames && this.#rooms.size < HALL_LIMITS.roomsMax) {
      const setup = {
        name: "Machines",
        host: null,
        control: MACHINE_CONTROL,
        tournament: null,
        machineMoveMs,
      };
      const room = this.#newRoom(setup);
      this.#machineRooms += 1;
      this.#change(room, nowMs, () => {
        room.sit(this.#machine(machineSkill), "white", nowMs);
        room.sit(this.#machine(machineSkill), "black", nowMs, this.#spread(nowMs, machineMoveMs));
      });
    }
  }

  /** A random time within an interval, so that games that start together do not move together. */
  #spread(nowMs: number, intervalMs: number): number {
    return nowMs + Math.floor(this.#random.next() * intervalMs);
  }

  #machine(skill: Skill): Seat {
    return { player: `machine~${this.#newId()}`, skill };
  }

  #newId(): string {
    this.#lastId += 1;
    return String(this.#lastId);
  }

  #newRoom(setup: RoomSetup): Room {
    if (this.#rooms.size >= HALL_LIMITS.roomsMax) this.#makeSpace();
    const id = this.#newId();
    const room = new Room(id, setup, (event) => this.#publishRoom(id, event));
    this.#rooms.set(id, room);
    return room;
  }

  #makeSpace(): void {
    const over = [...this.#rooms.values()].find(({ status }) => status === "over");
    if (!over)
      throw new Refusal("LIMIT_REACHED", "the server has as many rooms as it can have; try again later");
    this.#remove(over);
  }

  #forgetTournament(): void {
    const over = [...this.#tournaments.values()].find(({ status }) => status === "over");
    if (!over)
      throw new Refusal(
        "LIMIT_REACHED",
        "the server has as many tournaments as it can have; try again later",
      );
    this.#tournaments.delete(over.id);
    this.#publish("lobby", "tournament_closed", { tournament: over.id });
  }

  /** Takes over a room of a snapshot. */
  #adopt(room: Room): void {
    this.#rooms.set(room.id, room);
    this.#deadlines.set(room.id, room.deadlineMs);
    if (isOfMachines(room) && room.status !== "over") this.#machineRooms += 1;
  }

  #remove(room: Room): void {
    this.#write(room);
    room.close();
    this.#rooms.delete(room.id);
    this.#deadlines.set(room.id, undefined);
    this.#publish("lobby", "room_closed", { room: room.id });
  }

  #publishRoom(room: string, event: { type: string; payload: unknown }): void {
    this.#publish(`rooms.${room}`, event.type, event.payload);
  }

  #publishTournament(tournament: Tournament): void {
    this.#publish("lobby", "tournament", tournament.summary());
    this.#publish(`tournaments.${tournament.id}`, "changed", tournament.summary());
  }

  #publish(topic: string, type: string, payload: unknown): void {
    this.#events.push({ topic, type, payload });
  }
}

/** Whether a room is one of the games of machines that the operator asked for. */
function isOfMachines({ setup }: Room): boolean {
  return setup.host === null && setup.tournament === null;
}

function isOpenRoomOf({ setup, status }: Room, host: string): boolean {
  return setup.host === host && setup.tournament === null && status !== "over";
}
