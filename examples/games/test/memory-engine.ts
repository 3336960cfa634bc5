/** An engine in memory: the test plays the clients. */

import type { GameEngine } from "../src/server/engine.js";

export interface Published {
  topic: string;
  type: string;
  payload: unknown;
}

export class MemoryEngine implements GameEngine {
  readonly url = "ws://memory/ws";
  connections = 0;
  readonly published: Published[] = [];
  /** While it is true, nothing can be published. */
  isBusy = false;
  isRunning = false;
  readonly #handlers = new Map<string, (user: string, payload: unknown) => unknown>();

  async start(): Promise<void> {
    this.isRunning = true;
  }

  handle(type: string, handler: (user: string, payload: unknown) => unknown): void {
    this.#handlers.set(type, handler);
  }

  publish(topic: string, type: string, payload: unknown): boolean {
    if (this.isBusy) return false;
    this.published.push(structuredClone({ topic, type, payload }));
    return true;
  }

  async drain(): Promise<number> {
    this.isRunning = false;
    return 0;
  }

  /** Sends a request as a client would. */
  request(user: string, type: string, payload: unknown = {}): unknown {
    const handler = this.#handlers.get(type);
    if (!handler) throw new Error(`no handler of ${type}`);
    return structuredClone(handler(user, payload));
  }
}
