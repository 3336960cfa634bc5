/// <reference lib="esnext.disposable" preserve="true" />

/** The client: what an application calls. */

import { checkPublish, checkSubscribe, DEVELOPMENT } from "#development";
import { positionOf, publicationsOf } from "./core/answers.js";
import type { Envelope } from "./core/layers.js";
import type { RequestOptions } from "./core/outbound.js";
import { PreparedMessage } from "./core/prepared.js";
import type { Quality } from "./core/quality.js";
import type { Priority, QueueEntry, QueueReport } from "./core/queue-port.js";
import type { Answer } from "./core/session.js";
import { Driver, now } from "./driver.js";
import { TidewireError, when } from "./errors.js";
import {
  type ClientEvents,
  type ConnectionState,
  type ConnectionStatus,
  Emitter,
  type Observable,
} from "./events.js";
import type { Message, Position } from "./message.js";
import { invalid, type ResolvedOptions } from "./options.js";
import { watchPage } from "./page.js";
import { type SubscribeOptions, Subscription } from "./subscription.js";
import type { Transport } from "./transport.js";

export interface SendOptions {
  /** The correlation id, for the application's own use. */
  correlationId?: string;
}

export interface PublishOptions {
  /** The type of the publication. Default `message`. */
  type?: string;
  /** 1, 3, 5, 8 or 10. Default 5. */
  priority?: Priority;
  /** The idempotency key. Default: a new UUID, so that a repeated publication counts once. */
  id?: string;
  /** The conflation key: a newer publication with the same key replaces one that waits. */
  key?: string;
  /** How long the publication is of use, in milliseconds. */
  ttlMs?: number;
  /** Whether the subscriptions of this client are left out. Default false. */
  excludeSelf?: boolean;
  /** Whether it is the state of something, in place of a change. Default false. */
  isSnapshot?: boolean;
  signal?: AbortSignal;
}

export interface Published {
  topic: string;
  /** A publication with this id was accepted before, so that this one was not. */
  isDuplicate: boolean;
  /** Its position, on a topic with history. */
  position: Position | undefined;
}

export interface CallOptions {
  /** How long to wait for the answer, in milliseconds. Default `requestTimeoutMs`. */
  timeoutMs?: number;
  signal?: AbortSignal;
}

export interface HistoryOptions extends CallOptions {
  /** Publications after this position or, with `newest`, before it. Default: all that are kept. */
  since?: Position;
  /** How many at most, 1 to 1000. The server may return fewer. Default 100. */
  limit?: number;
  /** From the oldest on, or from the newest backwards. Default `oldest`. */
  order?: "oldest" | "newest";
}

export interface HistoryPage<T = unknown> {
  /** The publications, in the order that was asked for. */
  publications: Message<T>[];
  /** The current position of the topic. */
  position: Position;
  /** The offset of the oldest publication that is kept. */
  oldest: number;
  /** There are more in this direction: ask again with the position of the last one as `since`. */
  hasMore: boolean;
  /** Nothing is missing between `since` and these publications. */
  isComplete: boolean;
}

export interface PresenceInfo {
  users: number;
  connections: number;
  /** Not all members are named. */
  truncated: boolean;
  members: Record<string, { connections: number; data?: unknown }>;
}

/** A handler of the server's calls. It returns the answer, or throws. */
export type CallHandler = (
  payload: never,
  context: { type: string; signal: AbortSignal },
) => unknown | Promise<unknown>;

/** A connection to a Tidewire server that restores itself. Made by `connect`. */
export class Client {
  /** What the connection is doing, to be read and watched. */
  readonly status: Observable<ConnectionStatus>;
  readonly #driver: Driver;
  readonly #emitter: Emitter<ClientEvents>;
  readonly #handlers = new Map<string, CallHandler>();
  readonly #unwatch: () => void;
  readonly #abort = (): void => void this.close();
  /** Calls that look at the state whenever it changes. */
  readonly #watchers = new Set<() => void>();

  /** @internal */
  constructor(options: ResolvedOptions, transport: Transport, isFirstRound: boolean) {
    this.#emitter = new Emitter((error) => this.#report(error));
    this.#driver = new Driver(options, transport, {
      emit: (name, detail) => this.#emit(name, detail),
      call: (type, payload, timeoutMs, reply) => void this.#answer(type, payload, timeoutMs, reply),
      changed: () => {
        for (const watcher of [...this.#watchers]) watcher();
      },
      report: (error) => this.#report(error),
    });
    for (const [name, listener] of Object.entries(options.on ?? {})) {
      this.#emitter.on(name as "error", listener as never);
    }
    this.status = this.#driver.status;
    this.#unwatch = watchPage(this.#driver, options);
    const { signal } = options;
    if (signal?.aborted) void this.close();
    else {
      signal?.addEventListener("abort", this.#abort);
      void this.#start(isFirstRound);
    }
  }

  async #start(isFirstRound: boolean): Promise<void> {
    const { queue } = this.#driver.options;
    if (queue) {
      await queue
        .open({ wake: () => this.#wakeQueue(), report: (report) => this.#queueReport(report) })
        .catch((error: TidewireError) => this.#emit("queueFailed", error));
    }
    this.#driver.start(isFirstRound);
  }

  /** The state of the connection. */
  get state(): ConnectionState {
    return this.status.get().state;
  }

  /** Calls `listener` for each event of a kind. The result, or the signal, ends that. */
  on<Name extends keyof ClientEvents>(
    name: Name,
    listener: (detail: ClientEvents[Name]) => void,
    options?: { signal?: AbortSignal },
  ): () => void {
    return this.#emitter.on(name, listener, options);
  }

  /** Resolves when a server has accepted the client. Rejects when the client has ended. */
  connected(options: { signal?: AbortSignal } = {}): Promise<this> {
    return this.#until(() => this.#driver.session.isAccepted, options.signal);
  }

  /** Resolves when there is room to send: the connection is open and little waits. Rejects when the client has ended. */
  ready(options: { signal?: AbortSignal } = {}): Promise<this> {
    const { session } = this.#driver;
    return this.#until(
      () => session.isOpen && session.outbound.bytes === 0 && this.#driver.hasRoom,
      options.signal,
    );
  }

  async #until(isTrue: () => boolean, signal: AbortSignal | undefined): Promise<this> {
    const look = () => {
      if (this.#driver.error) throw this.#driver.error;
      return isTrue();
    };
    await when(this.#watchers, look, signal);
    return this;
  }

  /**
   * Subscribes to topics and patterns, from now on and across reconnections. Equal subscriptions share one on the wire.
   * Throws `INVALID_ARGUMENT` for a topic that this client has subscribed with other options.
   */
  subscribe<T = unknown>(
    topics: string | readonly string[],
    options: SubscribeOptions = {},
  ): Subscription<T> {
    checkSubscribe(options);
    const names = [...new Set(typeof topics === "string" ? [topics] : topics)];
    if (!names.length || names.some((name) => typeof name !== "string" || !name)) {
      throw new TidewireError(
        "INVALID_ARGUMENT",
        DEVELOPMENT && "subscribe needs at least one topic",
        "application",
      );
    }
    return new Subscription<T>(this.#driver, names, options);
  }

  /**
   * Sends a message to the server's application, at most once; what `prepare` has encoded goes out as it is. It waits while there is no connection. `false` says that
   * the next one should wait for `ready()`. Throws `BUSY` when too much waits.
   */
  send(type: string | PreparedMessage, payload?: unknown, options: SendOptions = {}): boolean {
    this.#driver.checkOpen();
    const { session } = this.#driver;
    if (type instanceof PreparedMessage) return session.outbound.send(type, type.payload, now());
    const encoded = payload === undefined ? undefined : session.format.payload(payload);
    const { correlationId } = options;
    return session.outbound.send(
      correlationId === undefined ? { t: type } : { t: type, cid: correlationId },
      encoded,
      now(),
    );
  }

  /** Encodes a message once, for `send` to send it many times. */
  prepare(type: string, payload?: unknown): PreparedMessage {
    return new PreparedMessage(this.#driver.session.format, type, payload);
  }

  /** As `send`, but `false` in place of waiting: the message is sent now or not at all. */
  trySend(type: string, payload?: unknown): boolean {
    const { session } = this.#driver;
    if (!session.isOpen || session.outbound.bytes > 0 || !this.#driver.hasRoom) return false;
    this.send(type, payload);
    return true;
  }

  /**
   * Publishes to a topic. Resolves when the server has accepted it. After a lost connection it is published again with the
   * same id, so that it counts once.
   */
  async publish(topic: string, payload: unknown, options: PublishOptions = {}): Promise<Published> {
    checkPublish(options);
    const { type = "message", id = uuid(), ttlMs, excludeSelf, isSnapshot, signal, ...rest } = options;
    const request = {
      topic,
      type,
      id,
      ...rest,
      ttl_ms: ttlMs,
      exclude_self: excludeSelf,
      category: isSnapshot ? "S" : undefined,
      payload: payload === undefined ? {} : payload,
    };
    const answer = await this.#repeatable("publish_request", request, { signal });
    const position = positionOf(answer);
    if (position && excludeSelf) this.#driver.session.subscriptions.publishedSelf(topic, position, now().ms);
    return { topic, isDuplicate: answer.duplicate === true, position };
  }

  /**
   * Calls the server's application and resolves with its answer. Rejects with `CONNECTION_LOST` if it may have been
   * carried out and the answer is lost.
   */
  async request<T = unknown>(type: string, payload: unknown = null, options: CallOptions = {}): Promise<T> {
    const timeoutMs = options.timeoutMs ?? this.#driver.options.requestTimeoutMs;
    const answer = await this.#driver.ask("call_request", { type, payload, timeout_ms: timeoutMs }, options);
    return (answer.payload ?? null) as T;
  }

  /** Answers the server's calls of a type. The result ends that. */
  handle(type: string, handler: CallHandler): () => void {
    this.#handlers.set(type, handler);
    return () => {
      if (this.#handlers.get(type) === handler) this.#handlers.delete(type);
    };
  }

  /** Sends a numbered message, once and in order across reconnections. Resolves when the server has taken it. */
  async sendAcknowledged(
    type: string,
    payload?: unknown,
    options: { priority?: Priority } = {},
  ): Promise<void> {
    const added = await this.#enqueue({ type, ...options }, payload);
    await added.acknowledged;
  }

  /** Publishes once and in order across reconnections. Resolves when the server has taken it. */
  async publishAcknowledged(
    topic: string,
    payload: unknown,
    options: { type?: string; key?: string; priority?: Priority } = {},
  ): Promise<void> {
    const added = await this.#enqueue({ topic, type: "message", ...options }, payload);
    await added.acknowledged;
  }

  /** Puts a message into the queue. Resolves when it is stored; it leaves when there is a connection. */
  async sendLater(type: string, payload?: unknown, options: { priority?: Priority } = {}): Promise<void> {
    await this.#enqueue({ type, ...options }, payload);
  }

  #enqueue(entry: Omit<QueueEntry, "payload" | "priority"> & { priority?: Priority }, payload: unknown) {
    this.#driver.checkOpen();
    const { queue } = this.#driver.options;
    if (!queue) throw invalid(DEVELOPMENT && "the client has no queue; set the option queue");
    return queue.add({
      priority: 5,
      ...entry,
      payload: JSON.stringify(payload === undefined ? {} : payload),
    });
  }

  /** Acknowledges a publication of a queue group. */
  acknowledge(message: Message): void {
    const { delivery } = message;
    if (delivery) this.#driver.session.acknowledge(delivery.number, delivery.connectionId);
  }

  /** Who is on topics with presence. Topics of which this user may not know are missing. */
  async presence(
    topics: string | readonly string[],
    options: CallOptions & { countsOnly?: boolean; limit?: number } = {},
  ): Promise<Record<string, PresenceInfo>> {
    const { countsOnly, limit } = options;
    const list = typeof topics === "string" ? [topics] : topics;
    const request = { topics: list, counts_only: countsOnly, limit };
    const answer = await this.#repeatable("presence_request", request, options);
    return (answer.topics ?? {}) as Record<string, PresenceInfo>;
  }

  /** Publications of a topic's history. */
  async history<T = unknown>(topic: string, options: HistoryOptions = {}): Promise<HistoryPage<T>> {
    const { since, limit, order } = options;
    const { session } = this.#driver;
    if (session.isOpen && session.features.history !== true) {
      throw new TidewireError("NOT_SUPPORTED", DEVELOPMENT && "this server gives no history", "server");
    }
    const answer = await this.#repeatable("history_request", { topic, since, limit, order }, options);
    const { epoch, offset, oldest } = answer;
    return {
      publications: publicationsOf<T>(topic, answer),
      position: { epoch: String(epoch), offset: Number(offset) },
      oldest: Number(oldest),
      hasMore: answer.more === true,
      isComplete: answer.complete === true,
    };
  }

  /** Asks for snapshots of subscribed topics; they come to their subscriptions. */
  async sync(topics?: readonly string[], options: CallOptions = {}): Promise<void> {
    await this.#repeatable("sync_request", { topics, include_snapshots: true }, options);
  }

  /** A request that does no harm twice. */
  #repeatable(t: string, payload: object, options: RequestOptions): Promise<Envelope> {
    return this.#driver.ask(t, payload, { ...options, isRepeatable: true });
  }

  /** The time to the server and back, in milliseconds. */
  async ping(options: { signal?: AbortSignal } = {}): Promise<number> {
    await this.#until(() => this.#driver.session.isOpen, options.signal);
    return new Promise((resolve, reject) => {
      this.#driver.session.ping(now(), (latencyMs) => {
        if (Number.isNaN(latencyMs)) reject(new TidewireError("CONNECTION_LOST"));
        else resolve(latencyMs);
      });
    });
  }

  /** How good the connection is, from its pings. */
  quality(): Quality {
    return this.#driver.session.quality.quality(now().ms);
  }

  /** A picture of the client for people who look for an error. */
  debug(): Record<string, unknown> {
    const { session, url, options } = this.#driver;
    return {
      ...this.status.get(),
      url,
      connectionId: session.connectionId,
      features: session.features,
      quality: this.quality(),
      endpoints: options.endpoints?.health(),
      subscriptions: session.subscriptions.size,
      requests: session.outbound.requests,
      outboxBytes: session.outbound.bytes,
      queueDepth: options.queue?.depth,
    };
  }

  /** Messages in the queue. */
  get queueDepth(): number {
    return this.#driver.options.queue?.depth ?? 0;
  }

  /** Bytes that wait to be sent. */
  get waitingBytes(): number {
    return this.#driver.session.outbound.bytes;
  }

  /** Opens a new connection now, in place of this one or of waiting. */
  reconnect(): void {
    this.#driver.reconnect("the application asked for a new connection");
    this.#driver.wake();
  }

  /**
   * Sends what waits, for up to 5 s, closes the connection with `code` (1000, or 3000 to 4999) and ends every call that
   * still waits. Nothing of the client is left when it resolves.
   */
  async close(code = 1000, reason = ""): Promise<void> {
    if (code !== 1000 && !(code >= 3000 && code <= 4999)) {
      throw new TidewireError(
        "INVALID_ARGUMENT",
        DEVELOPMENT && `a close code is 1000 or 3000 to 4999, not ${code}`,
      );
    }
    await this.#driver.close(code, reason);
    this.#unwatch();
    this.#driver.options.signal?.removeEventListener("abort", this.#abort);
    await this.#driver.options.queue?.close();
    this.#handlers.clear();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  async #answer(
    type: string,
    payload: unknown,
    timeoutMs: number | undefined,
    reply: (answer: Answer) => void,
  ): Promise<void> {
    const handler = this.#handlers.get(type);
    if (!handler) {
      return reply({ error: { code: "NOT_FOUND", message: `this client does not answer ${type}` } });
    }
    const signal = timeoutMs === undefined ? new AbortController().signal : AbortSignal.timeout(timeoutMs);
    try {
      reply({ payload: await handler(payload as never, { type, signal }) });
    } catch (error) {
      const code = error instanceof TidewireError ? error.code : "HANDLER_ERROR";
      reply({ error: { code, message: error instanceof Error ? error.message : String(error) } });
    }
  }

  #emit<Name extends keyof ClientEvents>(name: Name, detail: ClientEvents[Name]): void {
    const { log } = this.#driver.options;
    if (name === "error") log?.("warn", String(detail));
    this.#emitter.emit(name, detail);
    if (name === "disconnected" && (detail as ClientEvents["disconnected"]).retryInMs === undefined) {
      queueMicrotask(() => this.#driver.error && this.#unwatch());
    }
  }

  /** An error of the application's own code: other listeners and the connection go on. */
  #report(error: unknown): void {
    this.#driver.options.log?.("error", "a listener failed", error);
    queueMicrotask(() => {
      throw error;
    });
  }

  #wakeQueue(): void {
    const { producer } = this.#driver.session;
    if (producer?.isStale) {
      this.#driver.reconnect("this client owns the queue now");
      this.#driver.wake();
    } else producer?.wake(now());
  }

  /** @internal An option has no effect here. */
  degraded(what: string, reason: string): void {
    this.#emit("degraded", { what, reason });
  }

  #queueReport(report: QueueReport): void {
    const { type } = report;
    if (type === "uncertain") this.#emit(type, report);
    else if (type === "expired") this.#emit(type, { messages: report.messages });
    else if (type === "queue_failed") this.#emit("queueFailed", report.error);
    else if (type === "queue_in_memory") this.degraded("queue", report.reason);
    else {
      const words = `${report.messages} queued messages are larger than the server accepts`;
      this.#emit("error", new TidewireError("MESSAGE_TOO_LARGE", words, "application"));
    }
  }
}

/** A UUID of version 7: the time, then randomness. `crypto.randomUUID` is missing on plain http. */
function uuid(): string {
  const time = Date.now().toString(16).padStart(12, "0");
  let random = "";
  for (const byte of crypto.getRandomValues(new Uint8Array(9))) random += (byte + 256).toString(16).slice(1);
  return `${time}7${random.slice(0, 3)}8${random.slice(3)}`.replace(
    /^(.{8})(.{4})(.{4})(.{4})/,
    "$1-$2-$3-$4-",
  );
}
