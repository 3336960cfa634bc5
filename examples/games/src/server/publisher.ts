/**
 * Publishes events in their order. While the engine has no room they wait; past the limit the
 * oldest are dropped.
 */

import type { HallEvent } from "../core/hall.js";
import type { GameEngine } from "./engine.js";

const RETRY_MS = 5;
/**
 * Events that may wait. A client that misses an event of a room sees it by the version, and asks
 * for the room.
 */
const WAITING_MAX = 50_000;

export class Publisher {
  readonly #engine: Pick<GameEngine, "publish">;
  #waiting: HallEvent[] = [];
  #timer: NodeJS.Timeout | undefined;
  /** Events that were dropped. */
  dropped = 0;

  constructor(engine: Pick<GameEngine, "publish">) {
    this.#engine = engine;
  }

  get waiting(): number {
    return this.#waiting.length;
  }

  publish(events: readonly HallEvent[]): void {
    if (this.#waiting.length === 0) {
      const sent = this.#send(events);
      if (sent === events.length) return;
      this.#waiting = events.slice(sent);
    } else {
      this.#waiting.push(...events);
    }
    const excess = this.#waiting.length - WAITING_MAX;
    if (excess > 0) {
      this.#waiting.splice(0, excess);
      this.dropped += excess;
    }
    this.#timer ??= setTimeout(() => this.#retry(), RETRY_MS);
  }

  #retry(): void {
    this.#timer = undefined;
    this.#waiting = this.#waiting.slice(this.#send(this.#waiting));
    if (this.#waiting.length > 0) this.#timer = setTimeout(() => this.#retry(), RETRY_MS);
  }

  /** The number of events that were published before the engine had no room. */
  #send(events: readonly HallEvent[]): number {
    const stuck = events.findIndex(({ topic, type, payload }) => !this.#engine.publish(topic, type, payload));
    return stuck === -1 ? events.length : stuck;
  }
}
