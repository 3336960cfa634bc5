/** The events of a client, by their names for `client.on`. */

import type { QueueEntry, QueueReport } from "./core/queue-port.js";
import { aborted, TidewireError } from "./errors.js";
import type { Message, Position } from "./message.js";

/** Publications of a topic that this client will not get. */
export interface Gap {
  /** The topic; the pattern, where a subscription to a pattern lagged. */
  topic: string;
  /**
   * Why: `dropped` and `conflated` by a slow reader, `expired`, or `broker` (lost behind the servers, `count` 0
   * if unknown); `undefined` if unknown.
   */
  reason: string | undefined;
  /** How many; 0 if nobody knows. */
  count: number;
  /** Where, on a topic with history: from the first offset to the last, both included. */
  range: { epoch: string; from: number; to: number } | undefined;
}

/** Somebody joined a topic with presence, left it, or changed the presence data. */
export interface PresenceEvent {
  topic: string;
  change: "join" | "leave" | "update";
  user: string;
  data: unknown;
}

/** A subscription could not go on where it was: what lies between is not known. */
export interface Unrecovered {
  topic: string;
  /** The last position that this client had. */
  last: Position | undefined;
  /** Where the subscription goes on. */
  now: Position;
}

export interface ClientEvents {
  /** A server has accepted the client (`server_ready`). The limits of `server_hello` are not known yet. */
  connected: { connectionId: string; serverVersion: string; user: string | undefined; url: string };
  /** A connection is over. Without `retryInMs` there is no further one. */
  disconnected: { code: number; reason: string; retryInMs: number | undefined };
  /** A message that matches no subscription: to this user, this connection, or everyone. */
  message: Message;
  gap: Gap;
  unrecovered: Unrecovered;
  /** The server has ended subscriptions, or refuses them after a reconnection. */
  subscriptionLost: { topics: string[] };
  presence: PresenceEvent;
  rateLimitWarning: { limit: number; remaining: number; retryAfterMs: number };
  /**
   * The server has lost the broker that connects it with other servers (`isAway`), so that nothing arrives from them, or
   * has it back. The end of the connection ends this state.
   */
  brokerUpdate: { isAway: boolean };
  /** An error of the server that answers no call, or of a listener of the application. */
  error: TidewireError;
  /**
   * Queued messages of which it is not known whether the server accepted them. Unless they are `resent`, they
   * stay in the queue until `done()` is called.
   */
  uncertain: Extract<QueueReport, { type: "uncertain" }>;
  /** A queued message that the server has refused, or would refuse, for its own fault. It has left the queue. */
  refused: { message: QueueEntry; error: TidewireError };
  /** Queued messages that were too old: their number. */
  expired: { messages: number };
  /** The queue cannot store. */
  queueFailed: TidewireError;
  /** An option has no effect here, such as `queue()` on a page without HTTPS or, in development, `replay` on a pattern. */
  degraded: { what: string; reason: string };
}

/** What a connection is doing. */
export type ConnectionState = "connecting" | "open" | "recovering" | "waiting" | "closed";

export interface ConnectionStatus {
  /**
   * `connecting`: a connection is being opened. `recovering`: it is open, and subscriptions are being restored.
   * `open`: everything is in place. `waiting`: the next attempt follows later. `closed`: there is none.
   */
  readonly state: ConnectionState;
  /** Why, in words, for `waiting` and `closed`. */
  readonly reason: string | undefined;
  /** The close code of the last connection, for `waiting` and `closed`. */
  readonly code: number | undefined;
  /** Milliseconds from the change to the next attempt, for `waiting`; `undefined` while the page is away. */
  readonly retryInMs: number | undefined;
}

/** A status without a reason. */
export function statusOf(state: ConnectionState): ConnectionStatus {
  return { state, reason: undefined, code: undefined, retryInMs: undefined };
}

/** A value that changes: its current state, and a way to learn of changes. Fits React's `useSyncExternalStore`. */
export interface Observable<T> {
  get(): T;
  /** Calls `listener` after each change. The result ends that. */
  subscribe(listener: () => void): () => void;
}

/** A value that notifies its listeners of changes. */
export class Value<T> implements Observable<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get = (): T => this.#value;

  subscribe = (listener: () => void): (() => void) => {
    const own = () => listener();
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  };

  set(value: T): void {
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }
}

/**
 * Resolves when `look`, which is asked now and after each change, is true. Rejects when it throws, when the call is
 * aborted, or with `TIMEOUT`.
 */
export function when(
  changes: Observable<unknown>,
  look: () => unknown,
  signal: AbortSignal | undefined,
  timeoutMs?: number,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let isLate = false;
    const settle = () => {
      try {
        if (look()) resolve();
        else if (signal?.aborted) throw aborted(signal);
        else if (isLate) throw new TidewireError("TIMEOUT", false, "network");
        else return;
      } catch (error) {
        reject(error);
      }
      off();
      clearTimeout(timer);
      signal?.removeEventListener("abort", settle);
    };
    const late = () => {
      isLate = true;
      settle();
    };
    const off = changes.subscribe(settle);
    const timer = timeoutMs === undefined ? undefined : setTimeout(late, timeoutMs);
    signal?.addEventListener("abort", settle);
    settle();
  });
}

type Listener = (detail: never) => void;

/** Listeners by event. An error that a listener throws is given to `onError` and stops no other listener. */
export class Emitter<Events> {
  /** Made by the first listener. */
  #listeners: Map<keyof Events, Set<Listener>> | undefined;
  readonly #onError: (error: unknown) => void;

  constructor(onError: (error: unknown) => void) {
    this.#onError = onError;
  }

  on<Name extends keyof Events>(
    name: Name,
    listener: (detail: Events[Name]) => void,
    options: { signal?: AbortSignal } = {},
  ): () => void {
    const own: Listener = (detail) => listener(detail);
    this.#listeners ??= new Map();
    let set = this.#listeners.get(name);
    if (!set) this.#listeners.set(name, (set = new Set()));
    const { signal } = options;
    const off = () => {
      set.delete(own);
      signal?.removeEventListener("abort", off);
    };
    if (!signal?.aborted) {
      set.add(own);
      signal?.addEventListener("abort", off);
    }
    return off;
  }

  emit<Name extends keyof Events>(name: Name, detail: Events[Name]): void {
    const set = this.#listeners?.get(name);
    if (!set) return;
    for (const listener of set) {
      try {
        listener(detail as never);
      } catch (error) {
        this.#onError(error);
      }
    }
  }

  clear(): void {
    this.#listeners = undefined;
  }
}
