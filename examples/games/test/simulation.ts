/** A hall on simulated time, and watchers that know it by its events alone. */

import { Refusal } from "../src/core/errors.js";
import { Hall, type HallEvent, type HallOptions } from "../src/core/hall.js";
import { answer, type Replies, type RequestType } from "../src/core/requests.js";
import { applyEvent, type RoomEvent, type RoomView } from "../src/core/view.js";

export class Simulation {
  hall: Hall;
  nowMs = 1_000_000;
  /** All events, in their order. */
  events: HallEvent[] = [];
  /** The view of each room that is watched, changed by events alone. */
  readonly watched = new Map<string, RoomView>();
  readonly #options: HallOptions;

  constructor(options: HallOptions) {
    this.#options = options;
    this.hall = new Hall(options);
    this.#collect();
  }

  request<Type extends RequestType>(player: string, type: Type, payload: unknown = {}): Replies[Type] {
    try {
      return answer(this.hall, type, player, payload, this.nowMs);
    } finally {
      this.#collect();
    }
  }

  /** The code with which a request is refused; `undefined` if it is not. */
  refusal(player: string, type: RequestType, payload: unknown = {}): string | undefined {
    try {
      this.request(player, type, payload);
    } catch (error) {
      if (error instanceof Refusal) return error.code;
      throw error;
    }
    return undefined;
  }

  watch(room: string): void {
    this.watched.set(room, this.request("watcher", "room", { room }));
  }

  /** Lets time go by, and polls the hall whenever it has something to do. */
  pass(ms: number): void {
    const endMs = this.nowMs + ms;
    for (;;) {
      const dueMs = this.hall.nextDeadlineMs;
      if (dueMs === undefined || dueMs > endMs) break;
      this.nowMs = Math.max(this.nowMs, dueMs);
      this.hall.poll(this.nowMs);
      this.#collect();
    }
    this.nowMs = endMs;
    this.hall.poll(this.nowMs);
    this.#collect();
  }

  /** Ends the hall and continues with what a snapshot has kept, some time later. */
  restart(pauseMs = 60_000): void {
    const saved = JSON.parse(JSON.stringify(this.hall.save(this.nowMs)));
    this.nowMs += pauseMs;
    this.hall = Hall.restore(this.#options, saved, this.nowMs);
  }

  #collect(): void {
    for (const event of this.hall.takeEvents()) {
      this.events.push(event);
      const room = /^rooms\.(.+)$/.exec(event.topic)?.[1];
      const view = room === undefined ? undefined : this.watched.get(room);
      if (room === undefined || view === undefined) continue;
      const next = applyEvent(view, event as unknown as RoomEvent);
      if (!next) throw new Error(`an event of room ${room} is missing before ${JSON.stringify(event)}`);
      this.watched.set(room, next);
    }
  }
}
