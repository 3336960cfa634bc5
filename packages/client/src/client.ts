/// <reference lib="esnext.disposable" preserve="true" />

/** The client: what an application calls. */

import { checkPublish, checkSubscribe, DEVELOPMENT } from "#development";
import { positionOf } from "./core/answers.js";
import type { EnvelopeFields } from "./core/layers.js";
import { encode, isWhole, readPayload, unsendable } from "./core/payload.js";
import type { Priority } from "./core/queue-port.js";
import { randomBytes } from "./core/random.js";
import { checkType } from "./core/types.js";
import { Driver, now } from "./driver.js";
import { TidewireError } from "./errors.js";
import {
  type ClientEvents,
  type ConnectionState,
  type ConnectionStatus,
  Emitter,
  type Observable,
  Value,
  when,
} from "./events.js";
import type { Position } from "./message.js";
import type { ResolvedOptions } from "./options.js";
import { watchPage } from "./page.js";
import type { PreparedMessage } from "./prepared.js";
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

/** A connection to a Tidewire server that restores itself. Made by `connect`. */
export class Client {
  /** What the connection is doing, to be read and watched. */
  readonly status: Observable<ConnectionStatus>;
  /** @internal */
  readonly driver: Driver;
  readonly #emitter: Emitter<ClientEvents>;
  readonly #unwatch: () => void;
  readonly #abort = (): void => void this.close();
  /** Calls that look at the state whenever it changes. */
  readonly #changes = new Value<undefined>(undefined);

  /** @internal */
  constructor(options: ResolvedOptions, transport: Transport, isFirstRound: boolean) {
    this.#emitter = new Emitter((error) => this.#report(error));
    this.driver = new Driver(options, transport, {
      emit: (name, detail) => this.#emit(name, detail),
      changed: () => {
        if (this.driver.error) this.#unwatch();
        this.#changes.set(undefined);
      },
      report: (error) => this.#report(error),
    });
    for (const [name, listener] of Object.entries(options.on ?? {})) {
      this.#emitter.on(name as "error", listener as never);
    }
    this.status = this.driver.status;
    this.#unwatch = watchPage(this.driver, options);
    const { signal } = options;
    if (signal?.aborted) void this.close();
    else {
      signal?.addEventListener("abort", this.#abort);
      void this.#start(isFirstRound);
    }
  }

  async #start(isFirstRound: boolean): Promise<void> {
    await this.driver.session.producer?.open();
    this.driver.start(isFirstRound);
  }

  /** Vue leaves it as it is, in place of a proxy, which cannot read private members. @internal */
  get __v_skip(): boolean {
    return true;
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
    return this.#until(() => this.driver.session.isAccepted, options.signal);
  }

  /** Resolves when there is room to send: the connection is open and little waits. Rejects when the client has ended. */
  ready(options: { signal?: AbortSignal } = {}): Promise<this> {
    const { session } = this.driver;
    return this.#until(
      () => session.isOpen && session.outbound.bytes === 0 && this.driver.hasRoom,
      options.signal,
    );
  }

  async #until(isTrue: () => boolean, signal?: AbortSignal, timeoutMs?: number): Promise<this> {
    const look = () => {
      if (this.driver.error) throw this.driver.error;
      return isTrue();
    };
    await when(this.#changes, look, signal, timeoutMs);
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
    const names = [...new Set(typeof topics === "string" ? [topics] : topics)];
    if (!names.length || names.some((name) => typeof name !== "string" || !name)) {
      throw new TidewireError(
        "INVALID_ARGUMENT",
        DEVELOPMENT && "subscribe needs at least one topic",
        "application",
      );
    }
    checkSubscribe(this, names, options);
    return new Subscription<T>(this.driver, names, options);
  }

  /**
   * Sends a message to the server's application, at most once. A message of `prepare` leaves as it was encoded.
   * The payload is a value of JSON, bytes, or missing. The message waits while there is no connection. `false`
   * means that the next message should wait for `ready()`. Throws `BUSY` when too much waits, `INVALID_ARGUMENT`
   * for a type of the protocol and for values that would not arrive unchanged, and `MESSAGE_TOO_LARGE`. The event
   * `error` reports a message that has waited and that the server would not accept.
   */
  send(type: string | PreparedMessage, payload?: unknown, options: SendOptions = {}): boolean {
    this.driver.checkOpen();
    const { session } = this.driver;
    if (typeof type === "object") return session.outbound.send(type, type.payload, now());
    checkType(type);
    const fields: EnvelopeFields = { t: type };
    const encoded = encode(session.format, payload, fields);
    const { correlationId } = options;
    if (correlationId !== undefined) {
      if (!isWhole(correlationId)) throw unsendable("correlationId", correlationId);
      fields.cid = correlationId;
    }
    return session.outbound.send(fields, encoded, now());
  }

  /** As `send`, but `false` in place of waiting: the message is sent now or not at all. */
  trySend(type: string, payload?: unknown): boolean {
    const { session } = this.driver;
    if (!session.isOpen || session.outbound.bytes > 0 || !this.driver.hasRoom) return false;
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
      ...this.driver.inner(payload),
    };
    const isBinary = request.binary;
    const answer = await this.driver.query("publish_request", request, { signal, isBinary });
    const position = positionOf(answer);
    if (position && excludeSelf) this.driver.session.subscriptions.publishedSelf(topic, position, now().ms);
    return { topic, isDuplicate: answer.duplicate === true, position };
  }

  /**
   * Calls the server's application and resolves with its answer. Rejects with `CONNECTION_LOST` if it may have been
   * carried out and the answer is lost.
   */
  async request<T = unknown>(type: string, payload?: unknown, options: CallOptions = {}): Promise<T> {
    const { timeoutMs = this.driver.options.requestTimeoutMs, signal } = options;
    const request = { type, ...this.driver.inner(payload), timeout_ms: timeoutMs };
    const isBinary = request.binary;
    const answer = await this.driver.ask("call_request", request, { timeoutMs, signal, isBinary });
    return readPayload(answer.payload, answer.binary) as T;
  }

  /**
   * The time to the server and back, in milliseconds. Waits for a connection. Rejects with `TIMEOUT` when there was no
   * answer in time, and with `CONNECTION_LOST` when the connection was lost first.
   */
  async ping(options: CallOptions = {}): Promise<number> {
    const { session, options: all } = this.driver;
    const { signal, timeoutMs = all.requestTimeoutMs } = options;
    let isAsked: boolean | undefined;
    let latencyMs: number | undefined;
    const look = () => {
      if (!isAsked && session.isOpen) {
        isAsked = true;
        session.ping(now(), (ms) => {
          latencyMs = ms;
          this.#changes.set(undefined);
        });
      }
      if (Number.isNaN(latencyMs)) throw new TidewireError("CONNECTION_LOST");
      return latencyMs! >= 0;
    };
    await this.#until(look, signal, timeoutMs).catch((error: TidewireError) => {
      if (error.code === "TIMEOUT") session.doubt(now());
      this.driver.changed();
      throw error;
    });
    return latencyMs!;
  }

  /** Bytes that wait to be sent. */
  get waitingBytes(): number {
    return this.driver.session.outbound.bytes;
  }

  /** Opens a new connection now, in place of this one or of waiting. */
  reconnect(): void {
    this.driver.renew("reconnect() was called");
  }

  /**
   * Waits up to 5 s for pending work: messages that wait to be sent, answers to calls, and acknowledgements of
   * the queue. Waits up to 1 s if the server has not sent its hello. Then closes the connection with `code`
   * (1000, or 3000 to 4999) and rejects every call that the server has not answered. Nothing of the client is
   * left when it resolves.
   */
  async close(code = 1000, reason = ""): Promise<void> {
    if (code !== 1000 && !(code >= 3000 && code <= 4999)) {
      throw new TidewireError(
        "INVALID_ARGUMENT",
        DEVELOPMENT && `a close code is 1000 or 3000 to 4999, not ${code}`,
      );
    }
    await this.driver.close(code, reason);
    this.driver.options.signal?.removeEventListener("abort", this.#abort);
    await this.driver.options.queue?.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #emit<Name extends keyof ClientEvents>(name: Name, detail: ClientEvents[Name]): void {
    const { log } = this.driver.options;
    if (name === "error") log?.("warn", String(detail));
    this.#emitter.emit(name, detail);
  }

  /** An error of the application's own code: other listeners and the connection go on. */
  #report(error: unknown): void {
    this.driver.options.log?.("error", "a listener failed", error);
    queueMicrotask(() => {
      throw error;
    });
  }

  /** @internal An option has no effect here. */
  degraded(what: string, reason: string): void {
    this.#emit("degraded", { what, reason });
  }
}

/** A UUID of version 7: the time, then randomness. `crypto.randomUUID` is missing on plain http. */
function uuid(): string {
  let digits = Date.now().toString(16).padStart(12, "0");
  for (const byte of randomBytes(9)) digits += (byte + 256).toString(16).slice(1);
  return digits.replace(/^(.{8})(.{4})(.{3})(.{3})(.{12})/, "$1-$2-7$3-8$4-$5");
}
