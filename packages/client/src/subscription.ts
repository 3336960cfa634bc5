/// <reference lib="esnext.disposable" preserve="true" />

/** A subscription of the application: topics, and their messages and events. */

import { DEVELOPMENT } from "#development";
import { publicationsOf } from "./core/answers.js";
import { json } from "./core/json.js";
import type { ActiveTopic, WireOptions } from "./core/subscriptions.js";
import type { Driver } from "./driver.js";
import { TidewireError } from "./errors.js";
import {
  Emitter,
  type Gap,
  type Observable,
  type PresenceEvent,
  type Unrecovered,
  Value,
  when,
} from "./events.js";
import type { Message, Position } from "./message.js";
import { type BufferOptions, Stream } from "./stream.js";

export interface SubscribeOptions {
  /**
   * Whether missed publications are asked for after an interruption. Default true. Patterns are never recovered;
   * a gap reports the missed publications of a topic with history.
   */
  recover?: boolean;
  /** Positions to recover from at the start, by topic: where an earlier client was. */
  from?: Record<string, Position>;
  /** The newest publications to get at the start, if the topic keeps history; none for a pattern. Default 0. */
  replay?: number;
  /** Which publications are wanted (PROTOCOL 19.8). Default all. */
  filter?: object;
  /** What happens to publications that this client does not read in time. Default: as the server has it. */
  overload?: "disconnect" | "conflate" | "drop_oldest";
  /** The group of which each publication goes to one member. Default none. */
  queueGroup?: string;
  /** For a member of a group: it calls `acknowledge(client, message)` for each publication. Default false. */
  acknowledge?: boolean;
  /** For a member that acknowledges: publications that may be unacknowledged. */
  window?: number;
  /** What others learn of this subscriber, at most 4 KiB of JSON. */
  presence?: object;
  /**
   * Gives the subscription token of a topic, which allows it (PROTOCOL 19.10). Called for each request: the first one,
   * after an interruption, and when the server has ended the subscription because its token has expired.
   */
  tokens?: (topic: string) => string | undefined;
  /** The buffer of the loop over this subscription. */
  buffer?: BufferOptions;
  /** Ends the subscription when it is aborted. */
  signal?: AbortSignal;
}

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
  /** The server refuses a topic, or has ended its subscription. */
  failed: { topic: string; error: TidewireError };
}

/** What most subscriptions have. */
const NOWHERE: Readonly<Record<string, Position>> = {};
const NO_BUFFER: BufferOptions = {};
const PENDING: SubscriptionStatus = { state: "pending", error: undefined };
const ACTIVE: SubscriptionStatus = { state: "active", error: undefined };

/** A subscription. Loop over it, or listen to its events; both may be done at once. */
export class Subscription<T = unknown> implements AsyncIterable<Message<T>> {
  /** Topics and patterns. */
  readonly topics: readonly string[];
  /** @internal */
  readonly recover: boolean;
  /** @internal */
  readonly from: Readonly<Record<string, Position>>;
  /** @internal */
  readonly replay: number;
  /** @internal */
  readonly tokens: ((topic: string) => string | undefined) | undefined;
  readonly #driver: Driver;
  readonly #buffer: BufferOptions;
  /** Topics that the server has not answered, and those that are left. */
  #pending: readonly string[];
  #left: readonly string[];
  #current = PENDING;
  // A client may have thousands of subscriptions: what few of them use is made when it is used.
  #status: Value<SubscriptionStatus> | undefined;
  #emitter: Emitter<SubscriptionEvents<T>> | undefined;
  #streams: Set<Stream<Message<T>>> | undefined;
  /** Topics whose newest publications are on their way; live ones wait for them. */
  #joining: Map<string, Message[]> | undefined;
  #changes: Value<undefined> | undefined;
  #offSignal: (() => void) | undefined;

  /** @internal */
  constructor(driver: Driver, topics: readonly string[], options: SubscribeOptions) {
    this.topics = this.#pending = this.#left = topics;
    this.#driver = driver;
    this.#buffer = options.buffer ?? NO_BUFFER;
    this.recover = options.recover ?? true;
    this.from = options.from ?? NOWHERE;
    this.replay = options.replay ?? 0;
    this.tokens = options.tokens;
    const { signal } = options;
    if (signal) {
      const abort = () => void this.unsubscribe();
      signal.addEventListener("abort", abort);
      this.#offSignal = () => signal.removeEventListener("abort", abort);
    }
    const { error } = driver;
    if (error || signal?.aborted) this.#end(error);
    else {
      driver.session.subscriptions.add(this, topics, wireOptions(options));
      driver.changed();
    }
  }

  /** Vue leaves it as it is, in place of a proxy, which cannot read private members. @internal */
  get __v_skip(): boolean {
    return true;
  }

  /** Its state, to be read and watched. */
  get status(): Observable<SubscriptionStatus> {
    this.#status ??= new Value(this.#current);
    return this.#status;
  }

  /** Calls `listener` for each event. The result, or the signal, ends that. */
  on<Name extends keyof SubscriptionEvents<T>>(
    name: Name,
    listener: (detail: SubscriptionEvents<T>[Name]) => void,
    options?: { signal?: AbortSignal },
  ): () => void {
    this.#emitter ??= new Emitter(this.#driver.host.report);
    return this.#emitter.on(name, listener, options);
  }

  /**
   * Resolves when the server has given each topic. Rejects with `SUBSCRIPTION_FAILED` or the server's code if it does
   * not give one, and with `TIMEOUT` after `requestTimeoutMs`, also while there is no connection; the subscription goes
   * on then.
   */
  async ready({ signal }: { signal?: AbortSignal } = {}): Promise<this> {
    this.#changes ??= new Value(undefined);
    const changes = this.#changes;
    const look = () => {
      const { state, error } = this.#current;
      if (error) throw error;
      if (state === "ended") throw new TidewireError("CLOSED", DEVELOPMENT && "the subscription has ended");
      return state === "active";
    };
    await when(changes, look, signal, this.#driver.options.requestTimeoutMs);
    // Few wait a second time.
    this.#changes = undefined;
    return this;
  }

  /** Ends the subscription. Loops over it end. */
  async unsubscribe(): Promise<void> {
    for (const topic of this.#left) this.#driver.session.subscriptions.remove(this, topic);
    this.#driver.changed();
    this.#end(undefined);
  }

  /** The messages from now on, one after another. */
  [Symbol.asyncIterator](): AsyncIterableIterator<Message<T>> {
    const stream = new Stream<Message<T>>(this.#buffer, () => this.#streams?.delete(stream));
    this.#streams ??= new Set();
    this.#streams.add(stream);
    const { state, error } = this.#current;
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

  /** @internal */
  message(received: Message): void {
    const message = received as Message<T>;
    const joining = this.#joining?.get(message.topic!);
    if (joining) {
      joining.push(message);
      return;
    }
    this.#emitter?.emit("message", message);
    if (this.#streams) for (const stream of this.#streams) stream.push(message);
  }

  /** @internal */
  gap(gap: Gap): void {
    this.#emitter?.emit("gap", gap);
  }

  /** @internal */
  unrecovered(event: Unrecovered): void {
    this.#emitter?.emit("unrecovered", event);
  }

  /** @internal */
  presence(event: PresenceEvent): void {
    this.#emitter?.emit("presence", event);
  }

  /** @internal */
  active(topic: string, info: ActiveTopic): void {
    if (info.isShared && this.replay && info.position) this.#join(topic, this.replay);
    this.#pending = without(this.#pending, topic);
    this.#update();
  }

  /** Another subscriber has the topic already: the newest publications of its history precede live ones. */
  #join(topic: string, limit: number): void {
    this.#joining ??= new Map();
    this.#joining.set(topic, []);
    void this.#driver
      .query("history_request", { topic, limit: Math.min(limit, 1_000), order: "newest" }, {})
      .then((answer) => publicationsOf<T>(topic, answer).reverse())
      .catch((error: TidewireError): Message<T>[] => {
        if (this.#joining) {
          this.gap({ topic, reason: undefined, count: 0, range: undefined });
          this.#driver.host.emit("error", error);
        }
        return [];
      })
      .then((old) => {
        const live = this.#joining?.get(topic) ?? [];
        this.#joining?.delete(topic);
        const last = old[old.length - 1]?.position;
        for (const message of old) this.message(message);
        for (const message of live) {
          const { position } = message;
          const isOld = last && position?.epoch === last.epoch && position.offset <= last.offset;
          if (!isOld) this.message(message);
        }
      });
  }

  /** @internal */
  failed(topic: string, error: TidewireError): void {
    this.#left = without(this.#left, topic);
    this.#pending = without(this.#pending, topic);
    this.#emitter?.emit("failed", { topic, error });
    if (this.#left.length === 0) this.#end(error);
    else this.#update(error);
  }

  #update(error?: TidewireError): void {
    const before = this.#current;
    if (before.state === "ended") return;
    const state = this.#pending.length ? "pending" : "active";
    if (state === before.state && !error) return;
    const own = error ?? before.error;
    this.#set(own ? { state, error: own } : state === "active" ? ACTIVE : PENDING);
  }

  #set(status: SubscriptionStatus): void {
    this.#current = status;
    this.#status?.set(status);
    this.#changes?.set(undefined);
  }

  #end(error: TidewireError | undefined): void {
    if (this.#current.state === "ended") return;
    this.#left = [];
    this.#joining = undefined;
    this.#offSignal?.();
    this.#set({ state: "ended", error });
    for (const stream of this.#streams ?? []) stream.end(error?.code === "CLOSED" ? undefined : error);
    this.#streams = undefined;
    this.#emitter?.clear();
  }
}

function without(list: readonly string[], topic: string): readonly string[] {
  const rest = list.filter((one) => one !== topic);
  return rest.length ? rest : NONE;
}

const NONE: readonly string[] = [];
/** One object for all subscriptions without options. */
const PLAIN: WireOptions = {};

function wireOptions(options: SubscribeOptions): WireOptions {
  const { filter, overload, queueGroup, acknowledge, window, presence } = options;
  const wire = { filter, overload, queue_group: queueGroup, acknowledge, window, presence };
  const entries = Object.entries(wire).filter(([, value]) => value);
  if (!entries.length) return PLAIN;
  const own = Object.fromEntries(entries);
  // An error in the filter or the presence data is thrown to the caller.
  json.payload(own, "");
  return own;
}
