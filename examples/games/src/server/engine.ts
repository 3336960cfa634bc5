/**
 * Interface between the game server and a WebSocket engine. The package `tidewire` implements it,
 * and so does a double in tests.
 */

export interface GameEngine {
  /** Where clients connect; known after `start`. */
  readonly url: string;
  /** Open connections. */
  readonly connections: number;
  start(): Promise<void>;
  /**
   * Registers the handler of a type of requests. Its result is the reply; a `Refusal` that it
   * throws is sent to the client with its code. `user` is the `sub` of the client's token.
   */
  handle(type: string, handler: (user: string, payload: unknown) => unknown): void;
  /**
   * Publishes to the subscribers of a topic. `false` means that there is no room now and that
   * nothing was published.
   */
  publish(topic: string, type: string, payload: unknown): boolean;
  /**
   * Rejects new clients, asks the others to leave, and stops; resolves with the number of those
   * that were left.
   */
  drain(timeoutMs: number): Promise<number>;
}

export interface EngineOptions {
  host: string;
  port: number;
  /** Clients at the same time; the next one gets HTTP 503. */
  clientsMax: number;
  /** The secret of the tokens, at least 32 characters. */
  secret: string;
  /** Origins of the pages that may connect. */
  origins: string[];
  /** Event loops of the engine; by default one for each core. */
  shards?: number;
}
