/** Refusals: what a player asked for and cannot have. */

export type RefusalCode =
  | "CHAT_TOO_FAST"
  | "CHAT_TOO_LONG"
  | "GAME_OVER"
  | "ILLEGAL_MOVE"
  | "INVALID_ARGUMENT"
  | "LIMIT_REACHED"
  | "MUTED"
  | "NOT_ALLOWED"
  | "NOT_STARTED"
  | "NOT_YOUR_TURN"
  | "NO_OFFER"
  | "SEAT_TAKEN"
  | "UNKNOWN_ROOM"
  | "UNKNOWN_TOURNAMENT"
  | "WRONG_PLY";

/**
 * A request that is refused. The state is unchanged; the client receives the code and the message.
 */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly code: RefusalCode;

  constructor(code: RefusalCode, message: string) {
    super(message);
    this.code = code;
  }
}
