/**
 * Chat of one room, with limits: the length of a line, the rate of each player, and mutes. The host
 * of a room mutes players; the room mutes a player who exceeds the rate too often.
 */

import { Refusal } from "./errors.js";

export interface ChatLine {
  player: string;
  text: string;
  /** When the server received it, in milliseconds since 1970. */
  atMs: number;
}

export const CHAT_LIMITS = {
  /** Characters (code points) of a line. */
  lengthMax: 200,
  /** Lines of one player in `windowMs`. */
  linesPerWindow: 5,
  windowMs: 10_000,
  /** Lines over the rate in `strikesWindowMs` after which the room mutes a player for `muteMs`. */
  strikesMax: 3,
  strikesWindowMs: 60_000,
  muteMs: 60_000,
  /** The longest mute by a host. */
  hostMuteMsMax: 24 * 3_600_000,
  /** Players that can be muted in one room at the same time. */
  mutedMax: 1_000,
  /** Lines that a room keeps for those who arrive later. */
  keptLines: 50,
} as const;

export interface SavedChat {
  lines: ChatLine[];
  /** Muted players, and until when. */
  mutedUntilMs: Record<string, number>;
}

interface Talker {
  /** Times of the newest lines, and of the newest lines over the rate, oldest first. */
  linesMs: number[];
  strikesMs: number[];
}

export class Chat {
  #lines: ChatLine[] = [];
  readonly #mutedUntilMs = new Map<string, number>();
  readonly #talkers = new Map<string, Talker>();

  static restore(saved: SavedChat): Chat {
    const chat = new Chat();
    chat.#lines = [...saved.lines];
    for (const [player, untilMs] of Object.entries(saved.mutedUntilMs))
      chat.#mutedUntilMs.set(player, untilMs);
    return chat;
  }

  save(): SavedChat {
    return { lines: [...this.#lines], mutedUntilMs: Object.fromEntries(this.#mutedUntilMs) };
  }

  get lines(): readonly ChatLine[] {
    return this.#lines;
  }

  /** Muted players, and until when. */
  muted(nowMs: number): Record<string, number> {
    return Object.fromEntries([...this.#mutedUntilMs].filter(([, untilMs]) => untilMs > nowMs));
  }

  /** Adds a line, or refuses it. Control characters become spaces. */
  post(player: string, text: string, nowMs: number): ChatLine {
    const mutedUntilMs = this.mutedUntilMs(player, nowMs);
    if (mutedUntilMs !== undefined) {
      const seconds = Math.ceil((mutedUntilMs - nowMs) / 1000);
      throw new Refusal("MUTED", `you are muted in this room for ${seconds} more seconds`);
    }
    const clean = text.replace(/\p{C}+/gu, " ").trim();
    if (clean === "") throw new Refusal("INVALID_ARGUMENT", "the line is empty");
    if ([...clean].length > CHAT_LIMITS.lengthMax)
      throw new Refusal("CHAT_TOO_LONG", `a line has at most ${CHAT_LIMITS.lengthMax} characters`);
    this.#countLine(player, nowMs);
    const line = { player, text: clean, atMs: nowMs };
    this.#lines.push(line);
    if (this.#lines.length > CHAT_LIMITS.keptLines) this.#lines.shift();
    return line;
  }

  /**
   * Mutes a player, and returns until when. Past `mutedMax` players the one whose mute ends first
   * is unmuted.
   */
  mute(player: string, forMs: number, nowMs: number): number {
    const untilMs = nowMs + Math.min(forMs, CHAT_LIMITS.hostMuteMsMax);
    this.#mutedUntilMs.set(player, untilMs);
    if (this.#mutedUntilMs.size > CHAT_LIMITS.mutedMax) {
      const [first] = [...this.#mutedUntilMs].sort(([, a], [, b]) => a - b);
      if (first) this.#mutedUntilMs.delete(first[0]);
    }
    return untilMs;
  }

  unmute(player: string): void {
    this.#mutedUntilMs.delete(player);
  }

  /** Until when a player is muted; `undefined` if it is not. */
  mutedUntilMs(player: string, nowMs: number): number | undefined {
    const untilMs = this.#mutedUntilMs.get(player);
    if (untilMs === undefined) return undefined;
    if (untilMs > nowMs) return untilMs;
    this.#mutedUntilMs.delete(player);
    return undefined;
  }

  #countLine(player: string, nowMs: number): void {
    const talker = this.#talkers.get(player) ?? { linesMs: [], strikesMs: [] };
    talker.linesMs = talker.linesMs.filter((atMs) => atMs > nowMs - CHAT_LIMITS.windowMs);
    talker.strikesMs = talker.strikesMs.filter((atMs) => atMs > nowMs - CHAT_LIMITS.strikesWindowMs);
    this.#talkers.set(player, talker);
    if (talker.linesMs.length < CHAT_LIMITS.linesPerWindow) {
      talker.linesMs.push(nowMs);
      this.#forgetSilent(nowMs);
      return;
    }
    talker.strikesMs.push(nowMs);
    if (talker.strikesMs.length >= CHAT_LIMITS.strikesMax) {
      talker.strikesMs = [];
      this.mute(player, CHAT_LIMITS.muteMs, nowMs);
    }
    const seconds = CHAT_LIMITS.windowMs / 1000;
    throw new Refusal("CHAT_TOO_FAST", `at most ${CHAT_LIMITS.linesPerWindow} lines in ${seconds} seconds`);
  }

  /** Keeps the table of talkers small: past 1,000 players those leave it who have been silent. */
  #forgetSilent(nowMs: number): void {
    if (this.#talkers.size <= 1000) return;
    for (const [player, { linesMs, strikesMs }] of this.#talkers) {
      const newest = Math.max(linesMs.at(-1) ?? 0, strikesMs.at(-1) ?? 0);
      if (newest <= nowMs - CHAT_LIMITS.strikesWindowMs) this.#talkers.delete(player);
    }
  }
}
