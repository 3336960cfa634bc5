/** The service: connects the hall with an engine and with the time. */

import type { Hall } from "../core/hall.js";
import { answer, REQUEST_TYPES } from "../core/requests.js";
import type { GameEngine } from "./engine.js";
import { Publisher } from "./publisher.js";

/** Rooms of one call of `Hall.poll`; requests are answered in between. */
const ROOMS_PER_POLL = 16;
const TIMER_MAX_MS = 60_000;

export class GameService {
  readonly hall: Hall;
  readonly #now: () => number;
  readonly #publisher: Publisher;
  #timer: NodeJS.Timeout | undefined;
  #timerAtMs = Number.POSITIVE_INFINITY;
  #immediate: NodeJS.Immediate | undefined;
  #isRunning = false;
  /** The number of changes so far; a snapshot is needed when it has grown. */
  changes = 0;

  constructor(hall: Hall, engine: GameEngine, now: () => number) {
    this.hall = hall;
    this.#now = now;
    this.#publisher = new Publisher(engine);
    for (const type of REQUEST_TYPES) {
      engine.handle(type, (user, payload) => {
        try {
          return answer(hall, type, user, payload, now());
        } finally {
          this.#publish();
          this.#plan();
        }
      });
    }
  }

  /** Events that were dropped because the engine had no room for too long. */
  get droppedEvents(): number {
    return this.#publisher.dropped;
  }

  /** Starts to move machine players and to look at the clocks. */
  start(): void {
    this.#isRunning = true;
    this.#poll();
  }

  /** Stops machine players and forfeits; requests are still answered. */
  stop(): void {
    this.#isRunning = false;
    clearTimeout(this.#timer);
    if (this.#immediate) clearImmediate(this.#immediate);
  }

  /** Runs an action of the operator, such as to open a tournament. */
  run<T>(action: (hall: Hall, nowMs: number) => T): T {
    const result = action(this.hall, this.#now());
    this.#publish();
    this.#plan();
    return result;
  }

  #poll(): void {
    this.hall.poll(this.#now(), ROOMS_PER_POLL);
    this.#publish();
    this.#plan();
  }

  #publish(): void {
    const events = this.hall.takeEvents();
    if (events.length === 0) return;
    this.changes += 1;
    this.#publisher.publish(events);
  }

  /** Plans the next poll. */
  #plan(): void {
    const dueMs = this.hall.nextDeadlineMs;
    if (!this.#isRunning || this.#immediate || dueMs === undefined) return;
    const nowMs = this.#now();
    if (dueMs <= nowMs) {
      clearTimeout(this.#timer);
      this.#timerAtMs = Number.POSITIVE_INFINITY;
      this.#immediate = setImmediate(() => {
        this.#immediate = undefined;
        this.#poll();
      });
      return;
    }
    if (this.#timerAtMs === dueMs) return;
    clearTimeout(this.#timer);
    this.#timerAtMs = dueMs;
    const fire = () => {
      this.#timerAtMs = Number.POSITIVE_INFINITY;
      this.#poll();
    };
    // A timer counts whole milliseconds, and one that is too early would only be set again.
    this.#timer = setTimeout(fire, Math.min(Math.ceil(dueMs - nowMs), TIMER_MAX_MS));
  }
}
