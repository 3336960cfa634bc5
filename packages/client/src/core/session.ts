/**
 * A client's state machine: it decides what to send on a connection and handles what it receives. Messages,
 * calls, the time and randomness go in; messages and events go out. It waits for nothing and touches no socket.
 */

import { DEVELOPMENT } from "#development";
import { faultOf } from "../codes.js";
import { TidewireError } from "../errors.js";
import type { ClientEvents, PresenceEvent } from "../events.js";
import { Message } from "../message.js";
import type { ResolvedOptions } from "../options.js";
import { isBatched, isObject, payloadOf, required, typeOf, uint, unreadable } from "./envelope.js";
import { clientHello } from "./hello.js";
import { json } from "./json.js";
import type { EncodedPayload, Envelope, EnvelopeFields, Format, KeyExchange } from "./layers.js";
import { Outbound } from "./outbound.js";
import { readPayload } from "./payload.js";
import type { Producer } from "./producer.js";
import { RateLimit } from "./rate.js";
import { type LayerSizes, layerSizesOf } from "./size.js";
import { Subscriptions, type TopicRequest } from "./subscriptions.js";

/** The moment of a call: `ms` on a clock that never goes back, and the time of day. */
export interface Now {
  ms: number;
  unixMs: number;
}

/** What a session makes happen. */
export interface SessionHost {
  /** Sends a message on the current connection. `after` runs when it has been sealed. */
  write(fields: EnvelopeFields, payload: EncodedPayload | undefined, after?: () => unknown): void;
  emit<Name extends keyof ClientEvents>(name: Name, detail: ClientEvents[Name]): void;
  /** The session was accepted, opened, or is recovered: its owner looks at its state. */
  changed(): void;
  /** The server asks for a fresh token. */
  wantToken(): void;
  /** Whether the connection has room for more. */
  readonly hasRoom: boolean;
  /** The network is poor or the user saves data: the client asks for less. */
  readonly isPoor: boolean | undefined;
  /** Opens a new connection in place of this one. */
  renew(reason: string): void;
  /** Throws if the client has ended, or is about to. */
  checkOpen(): void;
}

/** The answer to a server's call. */
export type Answer = { payload?: unknown; binary?: true } | { error: { code: string; message: string } };

/** Answers a server's call. It does not reject. */
export type CallAnswerer = (payload: unknown, timeoutMs: number | undefined) => Promise<Answer>;

/** The server's hints about the next connection, known when a connection ends. */
export interface Hints {
  reconnectAfterMs: number | undefined;
  retryAfterMs: number | undefined;
}

/** What belongs to one connection. */
interface Link {
  readonly url: string;
  readonly exchange: KeyExchange | undefined;
  connectionId: string;
  isAccepted?: boolean;
  isOpen?: boolean;
  sequence: number;
  heardMs: number;
  pingMs: number;
  /** The time between two pings, and when the next one is due. */
  intervalMs: number;
  nextPingMs: number;
  /** When the connection is given up, unless a message has arrived since the server was asked whether it is alive. */
  aliveByMs: number;
  askedMs: number;
  reconnectAfterMs?: number;
  retryAfterMs?: number | undefined;
  repeatAtMs: number;
  /** When the token ends, if the server has announced it; and when the application is asked for another. */
  tokenEndsMs: number;
  refreshMs: number;
  features: Record<string, unknown>;
  /** Pings on their way; they are answered in order. */
  readonly pings: { sentMs: number; done(latencyMs: number): void }[];
}

/** No server can make a client wait longer by a hint. */
const HINT_MS_MAX = 24 * 3_600_000;
/** After a wake, a silent server has this long to answer a ping. */
const WAKE_GRACE_MS = 5_000;
/** The shortest time in which a server has to show that it is there. */
const ALIVE_MS_MIN = 1_000;
/** How late a timer may be. */
const LATE_MS = 100;
/** Pings that may be on their way. */
const PINGS_MAX = 64;
/** What a session does with a message of the protocol. A promise if the next message has to wait. */
type SystemHandler = (this: Session, payload: Envelope, now: Now, envelope: Envelope) => unknown;

export class Session {
  readonly options: ResolvedOptions;
  readonly format: Format;
  readonly subscriptions: Subscriptions;
  readonly outbound: Outbound;
  /** What layers add to messages. */
  readonly layerSizes: LayerSizes;
  readonly producer: Producer | undefined;
  readonly host: SessionHost;
  /** What answers the server's calls, by type. */
  readonly answers = new Map<string, CallAnswerer>();
  #link: Link | undefined;
  /** Reports that the server has accepted the client; called once the server has shown its key. */
  #accept: (() => void) | undefined;
  readonly #systemTypes: Record<string, SystemHandler>;

  constructor(options: ResolvedOptions, host: SessionHost) {
    this.options = options;
    this.format = options.format ?? json;
    this.host = host;
    this.layerSizes = options.layerSizes ?? layerSizesOf(options);
    this.outbound = new Outbound(this);
    this.subscriptions = new Subscriptions(host, options.reorderWindowMs);
    this.producer = options.queue?.producer(this, options.queue);
    this.#systemTypes = this.#handlers();
  }

  /** A server has accepted the client. */
  get isAccepted(): boolean {
    return this.#link?.isAccepted ?? false;
  }

  /** Messages can be sent: the limits of the server are known. */
  get isOpen(): boolean {
    return this.#link?.isOpen ?? false;
  }

  get features(): Record<string, unknown> {
    return this.#link?.features ?? {};
  }

  get connectionId(): string {
    return this.#link?.connectionId ?? "";
  }

  /** The connection is upgraded. The first message of the server is `server_ready`. */
  connected(url: string, exchange: KeyExchange | undefined, now: Now): void {
    this.#link = {
      url,
      exchange,
      connectionId: "",
      sequence: 0,
      heardMs: now.ms,
      pingMs: now.ms,
      intervalMs: Infinity,
      nextPingMs: Infinity,
      aliveByMs: Infinity,
      askedMs: 0,
      repeatAtMs: Infinity,
      tokenEndsMs: 0,
      refreshMs: Infinity,
      features: {},
      pings: [],
    };
  }

  /** The connection is gone. Returns its hints about the next one. */
  disconnected(): Hints {
    const link = this.#link;
    this.#link = undefined;
    this.options.quality?.disconnected();
    this.outbound.disconnected();
    this.subscriptions.disconnected();
    this.producer?.disconnected();
    for (const { done } of link?.pings ?? []) done(NaN);
    return { reconnectAfterMs: link?.reconnectAfterMs, retryAfterMs: link?.retryAfterMs };
  }

  /** There is no further connection. */
  end(error: TidewireError): void {
    this.outbound.end(error);
    this.subscriptions.end(error);
  }

  // Sending

  /** Sends everything that is due, as far as the connection and the rate limit allow. */
  flush(now: Now): void {
    if (!this.isOpen) return;
    if (this.subscriptions.isDirty) {
      const canRenew = this.features.server_subscriptions === true;
      const { bytesMax } = this.outbound;
      for (const request of this.subscriptions.collect(canRenew, bytesMax, now.ms))
        this.#askTopics(request, now);
    }
    if (this.outbound.flush(now)) this.producer?.flush(now);
  }

  /** Whether messages can be sent, and the connection has room. */
  get mayWrite(): boolean {
    return this.isOpen && this.host.hasRoom;
  }

  /** The fields of a message of the protocol, with its number on the current connection. */
  numbered(fields: EnvelopeFields): EnvelopeFields {
    return { ...fields, v: 1, seq: ++this.#link!.sequence } as EnvelopeFields;
  }

  /** Sends a message of the protocol on the current connection. */
  system(fields: EnvelopeFields, payload: EncodedPayload | undefined, after?: () => unknown): void {
    if (this.#link) this.host.write(this.numbered(fields), payload, after);
  }

  /** Sends a system message that is no request. */
  notify(t: string, payload: object, after?: () => unknown): void {
    this.system({ c: "WSE", t }, this.format.payload(payload), after);
  }

  #askTopics(request: TopicRequest, now: Now): void {
    const settle = (error: TidewireError | undefined, answer: Envelope) => {
      if (error?.code !== "CLOSED") this.subscriptions.answered(request, error, answer, now.ms);
      this.host.changed();
    };
    try {
      const t = "subscription_update";
      const payload = this.format.payload(request.payload, "");
      const deadlineMs = now.ms + this.options.requestTimeoutMs;
      this.outbound.ask({ t, payload, isBound: true, deadlineMs, settle }, now);
    } catch (error) {
      // Too much waits: the topics are asked for when there is room.
      settle(error as TidewireError, {});
    }
  }

  /** Sends a ping; `done` gets the time to its answer in milliseconds, `NaN` if the connection is lost first. */
  ping(now: Now, done: (latencyMs: number) => void = () => {}): void {
    const link = this.#link;
    if (!link?.isOpen) return done(NaN);
    this.#planPing(link, now);
    link.pings.push({ sentMs: now.ms, done });
    if (link.pings.length > PINGS_MAX) link.pings.shift()!.done(NaN);
    this.options.quality?.pingSent(now.ms);
    this.notify("ping", { timestamp: Math.floor(now.unixMs) });
  }

  /** Sets the time of the next ping: twice as long on a network that is poor now. */
  #planPing(link: Link, now: Now): void {
    link.pingMs = now.ms;
    link.nextPingMs = now.ms + link.intervalMs * (this.host.isPoor ? 2 : 1);
  }

  /** The fresh token that the application gave; without one it is asked again while there is time. */
  refreshToken(token: string | undefined, now: Now): void {
    const link = this.#link;
    if (!link?.tokenEndsMs) return;
    const leftMs = link.tokenEndsMs - now.ms;
    if (leftMs <= 0) link.tokenEndsMs = 0;
    else link.refreshMs = now.ms + Math.max(leftMs / 2, 1_000);
    if (token) this.notify("auth_refresh", { token });
  }

  // Time

  /** When {@link timeout} wants to be called. */
  nextTimeout(now: Now): number {
    const next = Math.min(this.outbound.nextTimeout(now), this.subscriptions.nextTimeout);
    const link = this.#link;
    if (!link) return next;
    return Math.min(
      next,
      link.heardMs + this.#idleMs,
      link.aliveByMs,
      link.nextPingMs,
      link.repeatAtMs,
      link.refreshMs,
      this.producer?.nextTimeout(now) ?? Infinity,
    );
  }

  get #idleMs(): number {
    return this.options.idleTimeoutMs || Infinity;
  }

  /** Does what the time calls for. Throws if the server has been silent for too long. */
  timeout(now: Now): void {
    this.outbound.timeout(now);
    this.subscriptions.timeout(now.ms);
    const link = this.#link;
    if (!link) return;
    if (now.ms >= link.aliveByMs) {
      // A late timer may have fired before messages that have arrived were read.
      const isLate = now.ms > link.aliveByMs + LATE_MS;
      if (link.heardMs >= link.askedMs) link.aliveByMs = Infinity;
      else if (isLate) link.aliveByMs = now.ms + ALIVE_MS_MIN;
    }
    if (now.ms >= Math.min(link.heardMs + this.#idleMs, link.aliveByMs)) {
      throw new TidewireError("CONNECTION_LOST", "the server has been silent for too long", "network");
    }
    if (now.ms >= link.nextPingMs) this.ping(now);
    if (now.ms >= link.repeatAtMs) {
      link.repeatAtMs = Infinity;
      this.outbound.repeat(true);
    }
    if (now.ms >= link.refreshMs) {
      link.refreshMs = Infinity;
      this.host.wantToken();
    }
    this.flush(now);
  }

  /**
   * The client may have slept, or the network has changed: a silent server gets a ping and some seconds to
   * answer, regardless of the time that the clock has counted before.
   */
  wake(now: Now): void {
    const link = this.#link;
    const { idleTimeoutMs } = this.options;
    if (!link || !idleTimeoutMs) return;
    link.heardMs = now.ms - idleTimeoutMs + Math.min(WAKE_GRACE_MS, idleTimeoutMs);
    const isAsked = link.pings.length > 0 && now.ms - link.pingMs <= 1_000;
    if (link.isOpen && !isAsked) this.ping(now);
  }

  /** A call was not answered in time: asks whether the server is there, which has as long again to show it, at most 5 s. */
  doubt(now: Now): void {
    const link = this.#link;
    if (!link?.isOpen || link.aliveByMs < Infinity) return;
    link.askedMs = now.ms;
    const { requestTimeoutMs } = this.options;
    link.aliveByMs = now.ms + Math.min(Math.max(requestTimeoutMs, ALIVE_MS_MIN), WAKE_GRACE_MS);
    this.ping(now);
  }

  // Receiving

  /** Handles a publication whose payload was left undecoded. */
  receiveMessage(message: Message, now: Now): undefined {
    this.#link!.heardMs = now.ms;
    this.subscriptions.deliver(message, false, now.ms);
  }

  /** Handles a message. Returns a promise if the next one has to wait for it. Throws to end the connection. */
  receive(envelope: Envelope, now: Now): Promise<void> | undefined {
    this.#link!.heardMs = now.ms;
    const type = typeOf(envelope);
    if (typeof type !== "string" || !type) throw unreadable(DEVELOPMENT && "it has no type");
    const handler = Object.hasOwn(this.#systemTypes, type) ? this.#systemTypes[type] : undefined;
    if (!handler) {
      const { cid } = envelope;
      // The first snapshot answers the request for it.
      if (this.outbound.typeOf(cid) === "sync_request") this.outbound.settle(cid, undefined);
      const message = Message.read(envelope, this.#link!.connectionId);
      this.subscriptions.deliver(message, typeof cid === "string", now.ms);
      return undefined;
    }
    const payload = payloadOf(envelope) ?? {};
    if (!isObject(payload)) throw unreadable(DEVELOPMENT && `the payload of ${type} is not an object`);
    return handler.call(this, payload, now, envelope) as Promise<void> | undefined;
  }

  /** What follows each message of the protocol. */
  #handlers(): Record<string, SystemHandler> {
    const presence = (p: Envelope, _: Now, envelope: Envelope) => {
      const change = String(typeOf(envelope)).slice(9) as PresenceEvent["change"];
      const event = { change, topic: String(p.topic), user: String(p.user_id), data: p.data };
      this.subscriptions.presence(event);
      this.host.emit("presence", event);
    };
    return {
      server_ready: this.#ready,
      server_hello: this.#hello,
      ping: this.#answerPing,
      PING: this.#answerPing,
      PONG: this.#pong,
      pong: this.#pong,
      batch: (p, now) => {
        const { messages } = p;
        if (!Array.isArray(messages) || !messages.every(isBatched))
          throw unreadable(DEVELOPMENT && "a batch without messages, or with one that must come alone");
        for (const message of messages) {
          try {
            this.receive(message, now);
          } catch (error) {
            this.host.emit("error", error as TidewireError);
          }
        }
      },
      subscription_update: this.#subscriptionUpdate,
      subscription: this.#subscriptionUpdate,
      publish_response: this.#answered,
      presence_response: this.#answered,
      history_response: this.#answered,
      call_response: (p, now, envelope) => {
        const { error } = p;
        if (error == null) this.#answered(p, now, envelope);
        else if (isObject(error) && typeof error.code === "string") {
          this.#answered(p, now, envelope, serverError(error.code, error.message));
        }
      },
      call_request: (p, _, { cid }) => void this.#call(p, readPayload(p.payload, p.binary), cid),
      error: this.#error,
      publication_gap: this.#gap,
      presence_join: presence,
      presence_leave: presence,
      presence_update: presence,
      message_ack: (p, now) => this.producer?.acknowledged(p.last, now),
      rate_limit_warning: (p, now) => {
        const remaining = uint(p.remaining);
        if (this.options.rateLimit) {
          this.outbound.giveBack();
          this.outbound.rate.warned(remaining, now.ms);
        }
        const retryAfterMs = uint(p.retry_after) * 1_000;
        this.host.emit("rateLimitWarning", { limit: uint(p.limit), remaining, retryAfterMs });
      },
      health_check_response: ({ broker_away: isAway }, _, { cid }) => {
        if (cid == null && typeof isAway === "boolean") this.host.emit("brokerUpdate", { isAway });
      },
      reconnect: (p) => {
        this.#link!.reconnectAfterMs = required(p, "after_ms");
      },
      auth_expiry_warning: (p, now) => {
        const endsInMs = required(p, "ends_in_ms");
        if (typeof this.options.token !== "function") return;
        this.#link!.tokenEndsMs = now.ms + endsInMs;
        this.host.wantToken();
      },
      auth_refresh_response: (p, now) => {
        const link = this.#link!;
        // A token that ends as soon as the one before is no help: the application is asked again.
        const isLonger = p.ends_in_ms == null || now.ms + uint(p.ends_in_ms) >= link.tokenEndsMs + 1_000;
        if (!isLonger) return;
        link.tokenEndsMs = 0;
        link.refreshMs = Infinity;
      },
      // The pipeline has the keys.
      key_update: () => {
        if (this.#link!.exchange?.version !== 2)
          throw unreadable(DEVELOPMENT && "a key_update without encryption version 2");
      },
    };
  }

  /** Ends the request that a message answers. An answer of another kind counts for nothing. */
  #answered(payload: Envelope, _now: Now, envelope: Envelope, error?: TidewireError): void {
    const { cid } = envelope;
    const asked = this.outbound.typeOf(cid)?.replace("_request", "_response");
    const type = typeOf(envelope);
    if (asked === type || (asked === "subscription_update" && type === "subscription")) {
      this.outbound.settle(cid, error, payload);
    }
  }

  #ready(p: Envelope): void {
    const link = this.#link!;
    if (link.connectionId) return;
    const details = isObject(p.details) ? p.details : {};
    link.connectionId = String(details.connection_id ?? "?");
    const { exchange, url, connectionId } = link;
    const prefersBatches = this.options.transport?.prefersBatches ?? true;
    this.notify("client_hello", clientHello(this.options, prefersBatches, exchange, this.producer?.hello()));
    const { user_id: id, version } = details;
    const user = typeof id === "string" ? id : undefined;
    const accept = () => {
      link.isAccepted = true;
      this.host.emit("connected", { connectionId, serverVersion: String(version ?? ""), user, url });
      this.host.changed();
    };
    if (exchange) this.#accept = accept;
    else accept();
  }

  #hello(p: Envelope, now: Now): Promise<void> | undefined {
    const link = this.#link!;
    if (link.isOpen || !link.connectionId) return undefined;
    if (!link.exchange) return void this.#open(p, now);
    return link.exchange.accept(p, link.connectionId).then(() => {
      if (this.#link !== link) return;
      link.exchange!.isSealed = true;
      this.#accept?.();
      this.#open(p, now);
    });
  }

  #open(p: Envelope, now: Now): void {
    const link = this.#link!;
    link.isOpen = true;
    link.features = isObject(p.features) ? p.features : {};
    const limits = isObject(p.limits) ? p.limits : {};
    this.outbound.bytesMax = uint(limits.max_message_size);
    const capacity = uint(limits.rate_limit_capacity);
    const refill = uint(limits.rate_limit_refill);
    this.outbound.giveBack();
    // The last tenth of the rate is left to the protocol's own messages.
    const share = this.host.isPoor ? 0.45 : 0.9;
    const { rateLimit, pingIntervalMs } = this.options;
    const rate = rateLimit ? share : 0;
    this.outbound.rate = new RateLimit(Math.ceil(capacity * rate), Math.ceil(refill * rate), now.ms);
    const interval = pingIntervalMs || uint(p.ping_interval) || Infinity;
    link.intervalMs = Math.max(interval, pingIntervalMs ? 100 : 1_000);
    this.#planPing(link, now);
    this.producer?.opened(p.producer, now);
    this.outbound.repeat();
    this.flush(now);
    this.host.changed();
  }

  #subscriptionUpdate(p: Envelope, now: Now, envelope: Envelope): void {
    if (envelope.cid != null) this.#answered(p, now, envelope);
    else if (!Array.isArray(p.success_topics)) return;
    else if (p.action === "subscribe") this.subscriptions.given(p.success_topics, p.recovery, now.ms);
    else if (p.action === "unsubscribe") {
      this.subscriptions.taken(p.success_topics, Array.isArray(p.failures) ? p.failures : []);
    }
  }

  #answerPing(p: Envelope, now: Now): void {
    const { timestamp } = p;
    const sent = typeof timestamp === "number" && timestamp >= 0 ? Math.floor(timestamp) : null;
    const unixMs = Math.floor(now.unixMs);
    const latency = Math.max(0, unixMs - (sent ?? unixMs));
    this.notify("PONG", { client_timestamp: unixMs, server_timestamp: sent, latency });
  }

  #pong(_: Envelope, now: Now): void {
    this.options.quality?.pongReceived(now.ms);
    const ping = this.#link!.pings.shift();
    ping?.done(Math.max(now.ms - ping.sentMs, 0));
  }

  async #call(p: Envelope, payload: unknown, cid: unknown): Promise<void> {
    const link = this.#link;
    const { type, timeout_ms } = p;
    if (typeof cid !== "string" || typeof type !== "string") return;
    const timeoutMs = typeof timeout_ms === "number" ? timeout_ms : undefined;
    const answer = (await this.answers.get(type)?.(payload, timeoutMs)) ?? {
      error: { code: "NOT_FOUND", message: `this client does not answer ${type}` },
    };
    if (this.#link !== link) return;
    const fields = this.numbered({ c: "WSE", t: "call_response", cid });
    this.host.write(fields, this.#encodeAnswer(fields, answer));
  }

  /** Encodes the answer to a call. A result that cannot be sent is an error of the handler. */
  #encodeAnswer(fields: EnvelopeFields, answer: Answer): EncodedPayload {
    try {
      const payload = this.format.payload(answer, "");
      const refusal = this.outbound.refusal(fields, payload, "binary" in answer);
      if (refusal) throw refusal;
      return payload;
    } catch (error) {
      const { message } = error as Error;
      return this.format.payload({ error: { code: "HANDLER_ERROR", message } });
    }
  }

  #error(p: Envelope, now: Now, envelope: Envelope): void {
    const link = this.#link!;
    const retryAfterMs =
      typeof p.retry_after === "number" ? Math.min(Math.ceil(p.retry_after) * 1_000, HINT_MS_MAX) : undefined;
    const error = serverError(String(p.code ?? ""), p.message, retryAfterMs);
    if (p.recoverable === false) link.retryAfterMs = retryAfterMs;
    if (error.code === "RATE_LIMITED") {
      this.outbound.giveBack();
      this.outbound.rate.refused(retryAfterMs ?? 0, now.ms);
      link.repeatAtMs = this.outbound.rate.nextAt(now.ms);
      for (const cid of Array.isArray(p.cids) ? p.cids : []) this.outbound.limited(cid, error);
      this.producer?.rewind();
    } else if (error.code === "MESSAGE_GAP") {
      this.producer?.rewind(true);
      return;
    }
    if (this.producer?.refused(envelope.cid, error, now)) return;
    if (this.outbound.settle(envelope.cid, error)) return;
    this.host.emit("error", error);
  }

  #gap(p: Envelope, now: Now): void {
    const { epoch, from, to } = p;
    const hasRange = typeof epoch === "string" && typeof from === "number" && typeof to === "number";
    if (!hasRange && (epoch ?? from ?? to) != null)
      throw unreadable(DEVELOPMENT && "a gap with half a range");
    const reason = /^(conflated|expired|broker)$/.exec(String(p.reason))?.[0] ?? "dropped";
    const range = hasRange ? { epoch, from, to } : undefined;
    this.subscriptions.gap({ topic: String(p.topic), reason, count: uint(p.count), range }, now.ms);
  }
}

/** An error of the server, or of its application. */
function serverError(code: string, message: unknown, retryAfterMs?: number): TidewireError {
  return new TidewireError(code, String(message ?? ""), { fault: faultOf(code), retryAfterMs });
}
