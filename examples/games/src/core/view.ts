/**
 * State that clients see: the view of a room, the events that change it, and the function that
 * applies an event to a view. The server and the page use the same function, so that a page which
 * has missed nothing shows what the server has.
 */

import type { ChatLine } from "./chat.js";
import type { ClockView, Side, TimeControl } from "./clock.js";
import type { Result } from "./game.js";

export type RoomStatus = "waiting" | "playing" | "over";

/** A room in the list of the lobby. */
export interface RoomSummary {
  room: string;
  name: string;
  white: string | null;
  black: string | null;
  control: TimeControl;
  status: RoomStatus;
  result: Result | null;
  tournament: string | null;
}

/** A room as a whole. */
export interface RoomView extends RoomSummary {
  /** The version: the number of events so far. An event carries the version that it leads to. */
  v: number;
  host: string | null;
  fen: string;
  moves: string[];
  clock: ClockView;
  /** When the clock showed that, in milliseconds since 1970 by the clock of the server. */
  clockAtMs: number;
  /** The side that offers a draw. */
  offer: Side | null;
  chat: ChatLine[];
  /** Muted players, and until when, in milliseconds since 1970. */
  muted: Record<string, number>;
}

/** Events of the topic `rooms.ID`: the type of the message, and its payload. */
export interface RoomEvents {
  seats: { v: number; white: string | null; black: string | null };
  start: { v: number; clock: ClockView; clockAtMs: number };
  move: {
    v: number;
    /** The number of the move, from 1; moves of both sides count. */
    ply: number;
    move: string;
    san: string;
    fen: string;
    clock: ClockView;
    clockAtMs: number;
    /** When the move was due (machine players) or received (people), in milliseconds since 1970. */
    at: number;
  };
  offer: { v: number; offer: Side | null };
  over: { v: number; result: Result; clock: ClockView; clockAtMs: number };
  chat: { v: number; line: ChatLine };
  mute: { v: number; player: string; untilMs: number | null };
  closed: { v: number };
}

export type RoomEvent = {
  [Type in keyof RoomEvents]: { type: Type; payload: RoomEvents[Type] };
}[keyof RoomEvents];

/**
 * The view after an event. An event that the view already contains changes nothing. `undefined`
 * means that an event before this one is missing, so that the room has to be asked for anew.
 */
export function applyEvent(view: RoomView, event: RoomEvent, keptLines = 50): RoomView | undefined {
  const { v } = event.payload;
  if (v <= view.v) return view;
  if (v !== view.v + 1) return undefined;
  switch (event.type) {
    case "seats":
      return { ...view, v, white: event.payload.white, black: event.payload.black };
    case "start":
      return { ...view, ...event.payload, status: "playing" };
    case "move": {
      const { move, fen, clock, clockAtMs } = event.payload;
      // A move declines the offer of the other side, whose turn it is now; the own offer stays.
      const offer = view.offer === clock.running ? null : view.offer;
      return { ...view, v, fen, clock, clockAtMs, offer, moves: [...view.moves, move] };
    }
    case "offer":
      return { ...view, v, offer: event.payload.offer };
    case "over":
      return { ...view, ...event.payload, offer: null, status: "over" };
    case "chat":
      return { ...view, v, chat: [...view.chat, event.payload.line].slice(-keptLines) };
    case "mute": {
      const { player, untilMs } = event.payload;
      const { [player]: _, ...others } = view.muted;
      return { ...view, v, muted: untilMs === null ? others : { ...others, [player]: untilMs } };
    }
    case "closed":
      return { ...view, v };
  }
}
