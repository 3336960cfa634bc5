/// <reference lib="esnext.disposable" preserve="true" />

/** A subscription of the application: topics, and what comes of them. */

import type { ActiveTopic, Subscriber, WireOptions } from "./core/subscriptions.js";
import { TidewireError } from "./errors.js";
import { Emitter, type Gap, type Observable, type PresenceEvent, type Unrecovered, Value } from "./events.js";
import type { Message, Position } from "./message.js";
import { type BufferOptions, Stream } from "./stream.js";

export interface SubscribeOptions {
  /** Whether missed publications are asked for after an interruption. Default true. */
  recover?: boolean;
  /** Positions to recover from at the start, by topic: where an earlier client was. */
  from?: Record<string, Position>;
  /** The newest publications to get at the start, if the topic keeps history. Default 0. */
  replay?: number;
  /** Which publications are wanted (PROTOCOL 19.8). Default all. */
  filter?: object;
  /** What happens to publications that this client does not read in time. Default: as the server has it. */
  overload?: "disconnect" | "conflate" | "drop_oldest";
  /** The group of which each publication goes to one member. Default none. */
  queueGroup?: string;
  /** For a member of a group: it calls `client.acknowledge(message)` for each publication. Default false. */
  acknowledge?: boolean;
  /** For a member that acknowledges: publications that may be unacknowledged. */
  window?: number;
  /** What others learn of this subscriber, at most 4 KiB of JSON. */
  presence?: object;
  /** The buffer of the loop over this subscription. */
  buffer?: BufferOptions;
  /** Ends the subscription when it is aborted. */
  signal?: AbortSignal;
}

export const SUBSCRIBE_OPTIONS: readonly (keyof SubscribeOptions)[] = [
  "recover",
  "from",
  "replay",
  "filter",
  "overload",
  "queueGroup",
  "acknowledge",
  "window",
  "presence",
  "buffer",
  "signal",
];

/** How a subscription stands. */
export interface SubscriptionStatus {
  /** `pending` until the server has answered for each topic; `ended` when no topic is left. */
  readonly state: "pending" | "active" | "ended";
  /** Why it has ended, if not by `unsubscribe`. */
  readonly error: TidewireError | undefined;
}

export interface SubscriptionEvents<T> {
  message: Message<T>;
  gap: Gap;
  unrecovered: Unrecovered;
  presence: PresenceEvent;
  /** The server does not give a topic, or has taken it away. */
  failed: { topic: string; error: TidewireError };
}

/** What a subscription needs of its client. */
export interface SubscriptionHost {
  add(subscriber: Subscriber, topics: readonly string[], wire: WireOptions): void;
  remove(subscriber: Subscriber, topic: string): void;
  /** The newest publications of a topic, the oldest of them first. */
  newest(topic: string, limit: number): Promise<Message[]>;
  isClosed(): TidewireError | undefined;
  onError(error: unknown): void;
  readonly requestTimeoutMs: number;
}

/** A subscription. Loop over it, or listen to its events; both may be done at once. */
export class Subscription<T = unknown> implements AsyncIterable<Message<T>> {
  /** Topics and patterns. */
  readonly topics: readonly string[];
  /** Its state, to be read and watched. */
  readonly status: Observable<SubscriptionStatus>;
  readonly #status: Value<SubscriptionStatus>;
  readonly #host: SubscriptionHost;
  readonly #emitter: Emitter<SubscriptionEvents<T>>;
  readonly #streams = new Set<Stream<Message<T>>>();
  readonly #buffer: BufferOptions;
  readonly #pending: Set<string>;
  readonly #left: Set<string>;
  readonly #subscriber: Subscriber;
  /** Topics whose newest publications are on their way; live ones wait for them. */
  readonly #joining = new Map<string, Message[]>();
  readonly #offSignal: () => void;

  /** @internal */
  constructor(host: SubscriptionHost, topics: readonly string[], options: SubscribeOptions) {
    this.topics = topics;
    this.#host = host;
    this.#buffer = options.buffer ?? {};
    this.#emitter = new Emitter((error) => host.onError(error));
    this.#pending = new Set(topics);
    this.#left = new Set(topics);
    this.#status = new Value<SubscriptionStatus>({ state: "pending", error: undefined });
    this.status = this.#status;
    this.#subscriber = {
      recover: options.recover ?? true,
      from: options.from ?? {},
      replay: options.replay ?? 0,
      active: (topic, info) => this.#active(topic, info),
      failed: (topic, error) => this.#failed(topic, error),
      message: (message) => this.#message(message as Message<T>),
      gap: (gap) => this.#emitter.emit("gap", gap),
      unrecovered: (event) => this.#emitter.emit("unrecovered", event),
      presence: (event) => this.#emitter.emit("presence", event),
    };
    const { signal } = options;
    const abort = () => void this.unsubscribe();
    signal?.addEventListener("abort", abort);
    this.#offSignal = () => signal?.removeEventListener("abort", abort);
    const closed = host.isClosed();
    if (closed || signal?.aborted) this.#end(closed);
    else host.add(this.#subscriber, topics, wireOptions(options));
  }

  /** Calls `listener` for each event. The result, or the signal, ends that. */
  on<Name extends keyof SubscriptionEvents<T>>(
    name: Name,
    listener: (detail: SubscriptionEvents<T>[Name]) => void,
    options?: { signal?: AbortSignal },
  ): () => void {
    return this.#emitter.on(name, listener, options);
  }

  /**
   * Resolves when the server has given each topic. Rejects with `SUBSCRIPTION_FAILED` or the server's code if it does
   * not give one, and with `TIMEOUT` after `requestTimeoutMs`; the subscription goes on then.
   */
  ready(options: { signal?: AbortSignal } = {}): Promise<this> {
    const { signal } = options;
    return new Promise((resolve, reject) => {
      const settle = () => {
        const { state, error } = this.#status.get();
        if (error) reject(error);
        else if (state === "active") resolve(this);
        else if (state === "ended") reject(new TidewireError("CLOSED", "the subscription has ended"));
        else if (signal?.aborted) reject(new TidewireError("ABORTED", "the call was aborted"));
        else if (isLate)
          reject(new TidewireError("TIMEOUT", "the server has not answered", { fault: "network" }));
        else return false;
        off();
        clearTimeout(timer);
        signal?.removeEventListener("abort", settle);
        return true;
      };
      let isLate = false;
      let timer: ReturnType<typeof setTimeout> | undefined;
      const off = this.#status.subscribe(settle);
      if (settle()) return;
      signal?.addEventListener("abort", settle);
      timer = setTimeout(() => {
        isLate = true;
        settle();
      }, this.#host.requestTimeoutMs);
    });
  }

  /** Ends the subscription. Loops over it end. */
  async unsubscribe(): Promise<void> {
    for (const topic of this.#left) this.#host.remove(this.#subscriber, topic);
    this.#end(undefined);
  }

  /** The messages from now on, one after another. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Message<T>> {
    const stream = new Stream<Message<T>>(this.#buffer, () => this.#streams.delete(stream));
    this.#streams.add(stream);
    const { state, error } = this.#status.get();
    if (state === "ended") stream.end(error);
    return stream;
  }

  /** The messages from now on, all that wait at once: fewer turns for a loop that is busy. */
  async *batches(): AsyncIterableIterator<Message<T>[]> {
    const stream = this[Symbol.asyncIterator]() as Stream<Message<T>>;
    try {
      for await (const first of stream) yield [first, ...stream.takeAll()];
    } finally {
      void stream.return();
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.unsubscribe();
  }

  #message(message: Message<T>): void {
    const joining = this.#joining.size ? this.#joining.get(message.topic!) : undefined;
    if (joining) {
      joining.push(message);
      return;
    }
    this.#emitter.emit("message", message);
    for (const stream of this.#streams) stream.push(message);
  }

  #active(topic: string, info: ActiveTopic): void {
    const { replay } = this.#subscriber;
    if (info.isShared && replay && info.position) this.#join(topic, replay);
    this.#pending.delete(topic);
    this.#update();
  }

  /** Another subscriber has the topic already: its newest publications come from its history, before live ones. */
  #join(topic: string, limit: number): void {
    this.#joining.set(topic, []);
    void this.#host
      .newest(topic, limit)
      .catch(() => [])
      .then((old) => {
        const live = this.#joining.get(topic) ?? [];
        this.#joining.delete(topic);
        const last = old.at(-1)?.position;
        for (const message of old) this.#message(message as Message<T>);
        for (const message of live) {
          const { position } = message;
          const isOld = last && position?.epoch === last.epoch && position.offset <= last.offset;
          if (!isOld) this.#message(message as Message<T>);
        }
      });
  }

  #failed(topic: string, error: TidewireError): void {
    this.#left.delete(topic);
    this.#pending.delete(topic);
    this.#emitter.emit("failed", { topic, error });
    if (this.#left.size === 0) this.#end(error);
    else this.#update(error);
  }

  #update(error?: TidewireError): void {
    const before = this.#status.get();
    if (before.state === "ended") return;
    const state = this.#pending.size ? "pending" : "active";
    if (state !== before.state || error) this.#status.set({ state, error: error ?? before.error });
  }

  #end(error: TidewireError | undefined): void {
    if (this.#status.get().state === "ended") return;
    this.#left.clear();
    this.#joining.clear();
    this.#offSignal();
    this.#status.set({ state: "ended", error });
    for (const stream of this.#streams) stream.end(error?.code === "CLOSED" ? undefined : error);
    this.#streams.clear();
    this.#emitter.clear();
  }
}

function wireOptions(options: SubscribeOptions): WireOptions {
  const { filter, overload, queueGroup, acknowledge, window, presence } = options;
  return {
    ...(filter ? { filter } : {}),
    ...(overload ? { overload } : {}),
    ...(queueGroup ? { queue_group: queueGroup } : {}),
    ...(acknowledge ? { acknowledge: true as const } : {}),
    ...(window ? { window } : {}),
    ...(presence ? { presence } : {}),
  };
}
