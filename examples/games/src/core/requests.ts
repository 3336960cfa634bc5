/**
 * Requests of clients: names, arguments and replies. Arguments are checked here, and nowhere else.
 */

import type { Side, TimeControl } from "./clock.js";
import { Refusal } from "./errors.js";
import type { Hall } from "./hall.js";
import type { Skill } from "./machine.js";
import { TOURNAMENT_LIMITS, type TournamentSummary, type TournamentView } from "./tournament.js";
import type { RoomSummary, RoomView } from "./view.js";

/** The reply of each request, by its type. */
export interface Replies {
  lobby: { rooms: RoomSummary[]; tournaments: TournamentSummary[] };
  room: RoomView;
  open_room: RoomView;
  join: RoomView;
  leave: null;
  move: null;
  resign: null;
  draw: null;
  chat: null;
  mute: null;
  tournament: TournamentView;
  open_tournament: TournamentView;
  register: null;
  withdraw: null;
  fill: null;
}

export type RequestType = keyof Replies;

const LOBBY_ROOMS_MAX = 200;
const NAME_MAX = 60;
const MINUTE_MS = 60_000;

type Arguments = Record<string, unknown>;
type Handler<Type extends RequestType> = (
  hall: Hall,
  player: string,
  args: Arguments,
  nowMs: number,
) => Replies[Type];

const handlers: { [Type in RequestType]: Handler<Type> } = {
  lobby: (hall) => ({ rooms: hall.roomList(LOBBY_ROOMS_MAX), tournaments: hall.tournamentList() }),
  room: (hall, _, args, nowMs) => hall.room(text(args, "room")).view(nowMs),
  open_room: (hall, player, args, nowMs) => {
    const name = optional(args, "name", () => text(args, "name", NAME_MAX)) ?? "Chess";
    const side = optional(args, "side", () => sideOf(args)) ?? "white";
    const skill = optional(args, "skill", () => skillOf(args)) ?? null;
    return hall.openRoom(player, name, controlOf(args), side, skill, nowMs).view(nowMs);
  },
  join: (hall, player, args, nowMs) => {
    const side = optional(args, "side", () => sideOf(args));
    return hall.join(player, text(args, "room"), side, nowMs).view(nowMs);
  },
  leave: (hall, player, args, nowMs) => done(hall.leave(player, text(args, "room"), nowMs)),
  move: (hall, player, args, nowMs) => {
    const [move, ply] = [text(args, "move", 5), whole(args, "ply", 1, 20_000)];
    return done(hall.move(player, text(args, "room"), move, ply, nowMs));
  },
  resign: (hall, player, args, nowMs) => done(hall.resign(player, text(args, "room"), nowMs)),
  draw: (hall, player, args, nowMs) => {
    const answer = args.answer;
    if (answer !== "offer" && answer !== "accept" && answer !== "decline")
      throw new Refusal("INVALID_ARGUMENT", "answer must be offer, accept or decline");
    return done(hall.draw(player, text(args, "room"), answer, nowMs));
  },
  chat: (hall, player, args, nowMs) =>
    done(hall.post(player, text(args, "room"), text(args, "text", 2_000), nowMs)),
  mute: (hall, player, args, nowMs) => {
    const forMs = whole(args, "forMs", 0, Number.MAX_SAFE_INTEGER);
    return done(hall.mute(player, text(args, "room"), text(args, "player", 120), forMs, nowMs));
  },
  tournament: (hall, _, args) => hall.tournament(text(args, "tournament")).view(),
  open_tournament: (hall, player, args) => {
    const name = optional(args, "name", () => text(args, "name", NAME_MAX)) ?? "Tournament";
    const size = whole(args, "size", TOURNAMENT_LIMITS.playersMin, TOURNAMENT_LIMITS.playersMax);
    return hall.openTournament(player, { name, size, control: controlOf(args) }).view();
  },
  register: (hall, player, args, nowMs) => done(hall.register(player, text(args, "tournament"), nowMs)),
  withdraw: (hall, player, args) => done(hall.withdraw(player, text(args, "tournament"))),
  fill: (hall, player, args, nowMs) => {
    const skill = optional(args, "skill", () => skillOf(args)) ?? 1;
    return done(hall.fillWithMachines(player, text(args, "tournament"), skill, nowMs));
  },
};

export const REQUEST_TYPES = Object.keys(handlers) as RequestType[];

/** Carries out a request of a player, or throws a {@link Refusal}. */
export function answer<Type extends RequestType>(
  hall: Hall,
  type: Type,
  player: string,
  payload: unknown,
  nowMs: number,
): Replies[Type] {
  if (payload !== null && payload !== undefined && (typeof payload !== "object" || Array.isArray(payload)))
    throw new Refusal("INVALID_ARGUMENT", "the payload of a request must be an object");
  return handlers[type](hall, player, (payload ?? {}) as Arguments, nowMs);
}

function done(_: unknown): null {
  return null;
}

function optional<T>(args: Arguments, name: string, read: () => T): T | undefined {
  return args[name] === undefined || args[name] === null ? undefined : read();
}

function text(args: Arguments, name: string, lengthMax = 20): string {
  const value = args[name];
  if (typeof value !== "string" || value === "" || value.length > lengthMax)
    throw new Refusal("INVALID_ARGUMENT", `${name} must be a text of 1 to ${lengthMax} characters`);
  return value;
}

function whole(args: Arguments, name: string, min: number, max: number): number {
  const value = args[name];
  if (typeof value !== "number" || !Number.isInteger(value) || value < min || value > max)
    throw new Refusal("INVALID_ARGUMENT", `${name} must be a whole number from ${min} to ${max}`);
  return value;
}

function sideOf(args: Arguments): Side {
  const value = args.side;
  if (value === "white" || value === "black") return value;
  throw new Refusal("INVALID_ARGUMENT", "side must be white or black");
}

function skillOf(args: Arguments): Skill {
  return whole(args, "skill", 0, 2) as Skill;
}

/**
 * `initialMs` from a second to three hours, `incrementMs` up to a minute; by default five minutes
 * and three seconds.
 */
function controlOf(args: Arguments): TimeControl {
  const initialMs = optional(args, "initialMs", () => whole(args, "initialMs", 1_000, 180 * MINUTE_MS));
  const incrementMs = optional(args, "incrementMs", () => whole(args, "incrementMs", 0, MINUTE_MS));
  return { initialMs: initialMs ?? 5 * MINUTE_MS, incrementMs: incrementMs ?? 3_000 };
}
