/** One connection of a client to the test server: reads what the client asks for, and answers it. */

import { utf8 } from "../core/bytes.js";
import { isObject, payloadOf, typeOf, uint } from "../core/envelope.js";
import { json } from "../core/json.js";
import type { Envelope, EnvelopeFields } from "../core/layers.js";
import { encode, readPayload } from "../core/payload.js";
import { isPattern } from "../core/topics.js";
import type { Position } from "../message.js";
import type { CloseInfo, OutgoingFrame, SocketHandler } from "../transport.js";
import { CallError, textOfRefusal } from "./errors.js";
import type { Effect, FaultPoint } from "./faults.js";
import type { Producers } from "./producers.js";
import type { Receiver, Topics } from "./topics.js";

/** What a client may do with a topic. */
export type Action = "subscribe" | "publish" | "presence";

/** A message or request of a client, as handlers receive it. */
export interface TestMessage<T = unknown> {
  readonly type: string;
  /** A value of JSON, or bytes; `{}` if there was none. */
  readonly payload: T;
  /** The user of the connection, if there is one. */
  readonly user: string | undefined;
  readonly connection: TestConnection;
}

/** What a client wants to publish, for the handler that decides about it. */
export interface TestPublication<T = unknown> extends TestMessage<T> {
  readonly topic: string;
  /** Puts a payload in the place of the client's: subscribers get this one. */
  replace(payload: unknown): void;
}

/** Something that a client has asked for. */
export interface TestRequest {
  readonly what: Exclude<FaultPoint, "connect" | "publication">;
  /** The topic; the type of a request or message. */
  readonly name: string;
  /** The payload of a publication, a request or a message; for `subscribe`, the presence data of the subscriber. */
  readonly payload: unknown;
  readonly user: string | undefined;
}

/** What connections need of their server. */
export interface ConnectionHost {
  readonly topics: Topics;
  readonly producers: Producers;
  allows(connection: TestConnection, action: Action, topic: string): boolean;
  fault(point: FaultPoint, name: string): Effect;
  asked(request: TestRequest): void;
  /** Handles a request of the application. */
  call(message: TestMessage): unknown;
  /** The handler that decides about publications to a topic, if there is one. */
  decider(topic: string): ((message: TestPublication) => unknown) | undefined;
  /** Handles a message. False if nobody does. */
  received(message: TestMessage): boolean | Promise<boolean>;
  failed(error: unknown): void;
  left(connection: TestConnection): void;
}

type Handler = (p: Envelope, envelope: Envelope) => void | Promise<void>;

const MESSAGE_BYTES_MAX = 1024 * 1024;
const CALL_TIMEOUT_MS = 10_000;

/** One connection of a client, as the application on the server sees it. */
export class TestConnection implements Receiver {
  readonly id: string;
  /** The user that the server's option `user` has named. */
  readonly user: string | undefined;
  /** The token of the client, if it has one. */
  readonly token: string | undefined;
  readonly #host: ConnectionHost;
  readonly #handlers: Record<string, Handler>;
  readonly #calls = new Map<string, (answer: Envelope | undefined) => void>();
  #socket: SocketHandler | undefined;
  #isOpen = false;
  #inbound = Promise.resolve();
  #outbound = Promise.resolve();
  #nextCall = 1;
  /** The producer that this connection speaks for (PROTOCOL 20). */
  #producer: string | undefined;

  /** @internal */
  constructor(
    host: ConnectionHost,
    id: string,
    user: string | undefined,
    token: string | undefined,
    socket: SocketHandler,
  ) {
    this.#host = host;
    this.id = id;
    this.user = user;
    this.token = token;
    this.#socket = socket;
    this.#handlers = this.#table();
  }

  /** @internal */
  get member(): string {
    return this.user ?? this.id;
  }

  /** The topics and patterns that the client has. */
  get topics(): string[] {
    return this.#host.topics.names(this);
  }

  /** Sends a message to this client. */
  send(payload: unknown, { type = "message" }: { type?: string } = {}): void {
    this.#write(applicationMessage(type, payload));
  }

  /** Asks the client, and resolves with its answer. Rejects with a {@link CallError}. */
  async request<T = unknown>(
    payload: unknown,
    { type, timeoutMs = CALL_TIMEOUT_MS }: { type: string; timeoutMs?: number },
  ): Promise<T> {
    const cid = `s${this.#nextCall++}`;
    const answer = await new Promise<Envelope | undefined>((resolve) => {
      const timer = setTimeout(() => resolve({ error: { code: "TIMEOUT" } }), timeoutMs);
      this.#calls.set(cid, (found) => {
        clearTimeout(timer);
        resolve(found);
      });
      if (!this.#socket) return this.#calls.get(cid)!(undefined);
      this.#write({
        c: "WSE",
        t: "call_request",
        cid,
        p: { type, timeout_ms: timeoutMs, ...inner(payload) },
      });
    });
    this.#calls.delete(cid);
    if (!answer) throw new CallError("the connection is gone", { code: "CONNECTION_LOST" });
    const { error } = answer;
    if (isObject(error))
      throw new CallError(String(error.message ?? error.code), { code: String(error.code) });
    return readPayload(answer.payload, answer.binary) as T;
  }

  /** Subscribes this client to a topic, whatever the access is. */
  subscribe(topic: string): void {
    const { recovery, replayed } = this.#host.topics.subscribe(this, topic, NOTHING_MISSED);
    const p = { action: "subscribe", success_topics: [topic], failed_topics: [] };
    this.#write({
      c: "WSE",
      t: "subscription_update",
      p: { ...p, recovery: recovery ? { [topic]: recovery } : {} },
    });
    for (const envelope of replayed) this.#write(envelope);
    this.#host.topics.join(this, topic, undefined);
  }

  /** Ends a subscription of this client, whoever has made it. */
  unsubscribe(topic: string): void {
    if (!this.#host.topics.has(this, topic)) return;
    this.#host.topics.unsubscribe(this, topic);
    const p = { action: "unsubscribe", success_topics: [topic], failed_topics: [], recovery: {} };
    this.#write({ c: "WSE", t: "subscription_update", p });
  }

  /** Closes the connection. With 1006 it is lost at once, without a close frame. */
  close(code = 1000, reason = ""): void {
    if (code === 1006) return this.end({ code, reason });
    this.#leave();
    this.#then(() => this.end({ code, reason }));
  }

  /** Ends the connection for a while. The client gets the time to reconnect, if there is one. @internal */
  interrupt(code: number, reason: string, comeBackMs: number | false): void {
    const hint = { c: "WSE", t: "reconnect", p: { after_ms: comeBackMs } };
    if (this.#isOpen && comeBackMs !== false) this.#socket?.onMessages([JSON.stringify(hint)]);
    this.end({ code, reason });
  }

  /** @internal */
  open(): void {
    this.#then(() => {
      this.#isOpen = true;
      this.#socket?.onOpen();
    });
    const details = {
      version: "tidewire-testing",
      protocol_version: 1,
      features: FEATURES,
      connection_id: this.id,
      server_time: new Date().toISOString(),
      user_id: this.user ?? null,
    };
    this.#write({ c: "WSE", t: "server_ready", p: { message: "welcome", details } });
  }

  /** The connection is over. @internal */
  end(info: CloseInfo): void {
    const socket = this.#socket;
    this.#leave();
    this.#socket = undefined;
    socket?.onClose(info);
  }

  /** Handles a message of the client, behind those that arrived before. @internal */
  receive(frame: OutgoingFrame): void {
    const data = typeof frame === "string" || frame instanceof Uint8Array ? frame : frame.data;
    const read = () => (this.#socket ? this.#read(data) : undefined);
    this.#inbound = this.#inbound.then(read).catch((error: unknown) => {
      this.#host.failed(error);
      this.close(1003, error instanceof Error ? error.message : String(error));
    });
  }

  /** The client closes: what it has sent before is handled first. @internal */
  clientCloses(code: number, reason: string): void {
    this.#inbound = this.#inbound.then(() => this.close(code, reason));
  }

  /** @internal */
  deliver(topic: string, envelope: Envelope): void {
    if (envelope.tp === undefined) return this.#write(envelope);
    const { drops, delayMs } = this.#host.fault("publication", topic);
    if (delayMs !== undefined) this.#outbound = this.#outbound.then(() => sleep(delayMs));
    if (!drops) return this.#write(envelope);
    const { e, o } = envelope;
    const range = e === undefined ? {} : { epoch: e, from: o, to: o };
    this.#write({ c: "WSE", t: "publication_gap", p: { topic, reason: "dropped", count: 1, ...range } });
  }

  #leave(): void {
    for (const answered of [...this.#calls.values()]) answered(undefined);
    this.#host.left(this);
  }

  /** Does something when all that was written before has left. */
  #then(step: () => void): void {
    this.#outbound = this.#outbound.then(step).catch(this.#host.failed);
  }

  #write(envelope: Envelope): void {
    const text = JSON.stringify(envelope);
    this.#then(() => this.#socket?.onMessages([text]));
  }

  #answer(t: string, cid: unknown, p: object): void {
    if (cid !== undefined) this.#write({ c: "WSE", t, cid, p });
  }

  #refuse(cid: unknown, code: string, message: string, retryAfterMs?: number): void {
    const retry_after = retryAfterMs === undefined ? null : Math.ceil(retryAfterMs / 1_000);
    const p = { code, message, recoverable: true, retry_after };
    this.#write({ c: "WSE", t: "error", ...(cid !== undefined && { cid }), p });
  }

  #read(data: string | Uint8Array): void | Promise<void> {
    // Messages of the protocol may have a prefix of three letters in front of their JSON.
    const envelope =
      typeof data === "string" ? (JSON.parse(data.slice(data.indexOf("{"))) as Envelope) : undefined;
    if (!envelope) throw new Error("the test server reads JSON alone: leave out the format and the layers");
    const type = String(typeOf(envelope));
    const handler = Object.hasOwn(this.#handlers, type) ? this.#handlers[type] : undefined;
    const payload = payloadOf(envelope);
    if (handler) return handler(isObject(payload) ? payload : {}, envelope);
    return this.#message(type, envelope);
  }

  #table(): Record<string, Handler> {
    return {
      client_hello: (p) => this.#hello(p),
      ping: ({ timestamp = null }) => {
        const p = { client_timestamp: timestamp, server_timestamp: Date.now(), latency: 0 };
        this.#write({ c: "WSE", t: "PONG", p });
      },
      PONG: () => {},
      publication_ack: () => {},
      subscription_update: (p, { cid }) => this.#subscriptionUpdate(p, cid),
      publish_request: (p, envelope) => this.#publish(p, envelope),
      call_request: (p, { cid }) => void this.#call(p, cid).catch(this.#host.failed),
      call_response: (p, { cid }) => this.#calls.get(String(cid))?.(p),
      presence_request: (p, { cid }) => this.#presence(p, cid),
      history_request: (p, { cid }) => this.#history(p, cid),
      sync_request: (p, { cid }) => this.#sync(p, cid),
      auth_refresh: () => this.#refuse(undefined, "INVALID_ACTION", "the test server checks no tokens"),
    };
  }

  #hello({ producer, features }: Envelope): void {
    if (isObject(features) && features.encryption === true) {
      throw new Error("the test server has no encryption: leave it out of the client's options");
    }
    if (isObject(producer)) {
      this.#producer = `${this.user ?? ""} ${String(producer.id)}`;
      this.#host.producers.claim(this.#producer, this);
    }
    const state = this.#producer === undefined ? undefined : this.#host.producers.state(this.#producer);
    const hello = {
      server_version: "tidewire-testing",
      protocol_version: 1,
      features: FEATURES,
      limits: { max_message_size: MESSAGE_BYTES_MAX, rate_limit_capacity: 0, rate_limit_refill: 0 },
      ping_interval: 0,
      connection_id: this.id,
      server_time: new Date().toISOString(),
      ...(isObject(producer) && state && { producer: { id: producer.id, ...state } }),
    };
    this.#write({ c: "WSE", t: "server_hello", p: hello });
  }

  /** Reports to the test what the client asks for. Resolves with the effects of the faults when it is time to act. */
  async #asked(what: TestRequest["what"], names: readonly string[], payload?: unknown): Promise<Effect[]> {
    for (const name of names) this.#host.asked({ what, name, payload, user: this.user });
    const effects = names.map((name) => this.#host.fault(what, name));
    const delayMs = Math.max(0, ...effects.map((effect) => effect.delayMs ?? 0));
    if (delayMs > 0) await sleep(delayMs);
    return effects;
  }

  /** The same for requests that are done or refused as a whole. */
  async #askedOnce(what: TestRequest["what"], names: readonly string[], payload?: unknown): Promise<Effect> {
    return Object.assign({}, ...(await this.#asked(what, names, payload))) as Effect;
  }

  /** Whether the request goes on; what refuses it has its answer, and what drops it has none. */
  #goesOn({ drops, refusal }: Effect, cid: unknown): boolean {
    if (refusal) this.#refuse(cid, String(refusal.code), refusal.message, refusal.retryAfterMs);
    return !refusal && drops !== "request" && this.#socket !== undefined;
  }

  async #subscriptionUpdate(p: Envelope, cid: unknown): Promise<void> {
    const topics = (Array.isArray(p.topics) ? p.topics : []).map(String);
    const isWanted = p.action === "subscribe";
    const what = isWanted ? "subscribe" : "unsubscribe";
    const effects = await this.#asked(what, topics, p.presence);
    if (!this.#socket || effects.some(({ drops }) => drops === "request")) return;
    const answer = { action: p.action, success_topics: [] as string[], failed_topics: [] as string[] };
    const failures: object[] = [];
    const recovery: Record<string, object> = {};
    const after: Envelope[] = [];
    for (const [index, name] of topics.entries()) {
      const refusal = effects[index]!.refusal ?? (isWanted ? this.#whyNot(name, p) : undefined);
      if (refusal) {
        failures.push({ topic: name, code: refusal.code, message: refusal.message });
        answer.failed_topics.push(name);
        continue;
      }
      answer.success_topics.push(name);
      if (!isWanted) this.#host.topics.unsubscribe(this, name);
      else {
        try {
          const found = this.#subscribe(name, p);
          if (found.recovery) recovery[name] = found.recovery;
          after.push(...found.replayed);
        } catch (error) {
          return this.#refuse(cid, "INVALID_SUBSCRIPTION", (error as Error).message);
        }
      }
    }
    const reasons = failures.length ? { failures } : {};
    if (effects.every(({ drops }) => !drops)) {
      this.#answer("subscription_update", cid, { ...answer, ...reasons, recovery });
    }
    for (const envelope of after) this.#write(envelope);
    if (!isWanted || p.renew === true) return;
    const data = isObject(p.presence) ? p.presence : undefined;
    for (const name of answer.success_topics) this.#host.topics.join(this, name, data);
  }

  #subscribe(name: string, p: Envelope) {
    const { topics } = this.#host;
    const position = isObject(p.recovery) ? (p.recovery[name] as Position | undefined) : undefined;
    const isRenewal = p.renew === true;
    const request = {
      recover: p.recover === true,
      position,
      replay: isRenewal ? 0 : uint(p.replay),
      filter: isObject(p.filter) && !isRenewal ? p.filter : undefined,
    };
    if (isRenewal && topics.has(this, name)) return topics.recover(this, name, request);
    return topics.subscribe(this, name, request);
  }

  #whyNot(name: string, p: Envelope): { code: string; message: string } | undefined {
    if (!isName(name, true))
      return { code: "INVALID_SUBSCRIPTION", message: `${name} is no name of a topic` };
    if (p.queue_group !== undefined)
      return { code: "INVALID_SUBSCRIPTION", message: "the test server has no queue groups" };
    if (p.renew === true && this.#host.topics.has(this, name)) return undefined;
    if (this.#host.allows(this, "subscribe", name)) return undefined;
    return { code: "TOPIC_FORBIDDEN", message: `${name} may not be subscribed` };
  }

  async #publish(p: Envelope, { cid, n }: Envelope): Promise<void> {
    const topic = String(p.topic);
    const payload = readPayload(p.payload, p.binary);
    const effect = await this.#askedOnce("publish", [topic], payload);
    if (!this.#isAccepted(effect, n, cid)) return;
    if (!isName(topic, false)) return this.#refuse(cid, "INVALID_MESSAGE", `${topic} is no name of a topic`);
    if (!this.#host.allows(this, "publish", topic))
      return this.#refuse(cid, "TOPIC_FORBIDDEN", `${topic} may not be published to`);
    const { type, category, priority, id, ttl_ms } = p;
    const content = await this.#decided(topic, p, payload);
    // Of a client that has left meanwhile nothing is published.
    if (!this.#socket) return;
    if ("code" in content) return this.#refuse(cid, content.code, content.message);
    const draft = {
      type: String(type),
      ...content,
      category: category as string | undefined,
      priority: priority as number | undefined,
      id: id as string | undefined,
      ttlMs: ttl_ms as number | undefined,
    };
    const done = this.#host.topics.publish(topic, draft, p.exclude_self === true ? [this] : []);
    if (effect.drops) return;
    this.#answer("publish_response", cid, { topic, duplicate: done.isDuplicate, ...done.position });
  }

  /** The content of a publication once the application has decided about it, or its refusal. */
  async #decided(topic: string, p: Envelope, payload: unknown): Promise<Content | Refusal> {
    let content: Content = { payload: p.payload === undefined ? {} : p.payload, binary: p.binary === true };
    const replace = (replacement: unknown) => {
      content = { binary: false, ...inner(replacement) };
    };
    const message = { type: String(p.type), topic, payload, user: this.user, connection: this, replace };
    try {
      await this.#host.decider(topic)?.(message);
      return content;
    } catch (error) {
      const isFinal = error instanceof CallError && !TEMPORARY.test(error.code);
      if (!isFinal) this.#host.failed(error);
      return textOfRefusal(isFinal ? error : undefined);
    }
  }

  /** As {@link #goesOn}, for messages that a producer may have numbered: one refused for good has its number, too. */
  #isAccepted(effect: Effect, n: unknown, cid: unknown): boolean {
    const { drops, refusal } = effect;
    const isLost = drops === "request" || (refusal !== undefined && TEMPORARY.test(String(refusal.code)));
    if (!isLost && !this.#numbered(n, cid)) return false;
    return this.#goesOn(effect, cid);
  }

  /** Whether a message has no number, or the next one of its producer. */
  #numbered(n: unknown, cid: unknown): boolean {
    if (typeof n !== "number" || this.#producer === undefined) return true;
    const { last } = this.#host.producers.state(this.#producer);
    if (!this.#host.producers.isOf(this.#producer, this)) {
      this.#refuse(cid, "PRODUCER_SUPERSEDED", "another connection sends for this producer");
      return false;
    }
    if (n === last + 1) this.#host.producers.accept(this.#producer);
    else if (n > last) this.#refuse(cid, "MESSAGE_GAP", `${last + 1} is missing`);
    this.#write({ c: "WSE", t: "message_ack", p: { last: Math.max(last, Math.min(n, last + 1)) } });
    return n === last + 1;
  }

  async #call(p: Envelope, cid: unknown): Promise<void> {
    const type = String(p.type);
    const payload = readPayload(p.payload, p.binary);
    const effect = await this.#askedOnce("request", [type], payload);
    const { refusal, drops } = effect;
    if (refusal) {
      const error = { code: String(refusal.code), message: refusal.message };
      return this.#answer("call_response", cid, { error });
    }
    if (drops === "request" || !this.#socket) return;
    let answer: object;
    try {
      answer = inner(await this.#host.call({ type, payload, user: this.user, connection: this }));
    } catch (error) {
      if (!(error instanceof CallError)) this.#host.failed(error);
      answer = { error: textOfRefusal(error) };
    }
    if (!drops) this.#answer("call_response", cid, answer);
  }

  async #presence(p: Envelope, cid: unknown): Promise<void> {
    const names = [...new Set((Array.isArray(p.topics) ? p.topics : []).map(String))];
    const effect = await this.#askedOnce("presence", names);
    if (!this.#goesOn(effect, cid)) return;
    const topics: Record<string, object> = {};
    const failed: string[] = [];
    for (const name of names) {
      if (!isName(name, false) || !this.#host.allows(this, "presence", name)) {
        failed.push(name);
        continue;
      }
      const all = Object.entries(this.#host.topics.members(name));
      const limit = typeof p.limit === "number" ? p.limit : 1_000;
      const connections = all.reduce((sum, [, member]) => sum + member.connections, 0);
      topics[name] = {
        users: all.length,
        connections,
        truncated: p.counts_only !== true && all.length > limit,
        ...(p.counts_only !== true && { members: Object.fromEntries(all.slice(0, limit)) }),
      };
    }
    if (!effect.drops) this.#answer("presence_response", cid, { topics, failed_topics: failed });
  }

  async #history(p: Envelope, cid: unknown): Promise<void> {
    const topic = String(p.topic);
    const effect = await this.#askedOnce("history", [topic]);
    if (!this.#goesOn(effect, cid)) return;
    if (!this.#host.allows(this, "subscribe", topic))
      return this.#refuse(cid, "TOPIC_FORBIDDEN", `${topic} may not be subscribed`);
    if (this.#host.topics.keeps(topic) === undefined)
      return this.#refuse(cid, "NOT_FOUND", `${topic} keeps no history`);
    const since = isObject(p.since) ? (p.since as unknown as Position) : undefined;
    const page = this.#host.topics.page(topic, since, uint(p.limit) || 100, p.order === "newest");
    if (!effect.drops) this.#answer("history_response", cid, page);
  }

  async #sync(p: Envelope, cid: unknown): Promise<void> {
    const names = Array.isArray(p.topics) ? p.topics.map(String) : this.topics;
    const effect = await this.#askedOnce("sync", names);
    if (!this.#goesOn(effect, cid)) return;
    const found = names.map((name) => this.#host.topics.lastValue(name)).filter((one) => one !== undefined);
    if (!found.length) return this.#refuse(cid, "INVALID_ACTION", "no topic has a snapshot");
    if (!effect.drops) for (const envelope of found) this.#write({ ...envelope, c: "S", cid });
  }

  async #message(type: string, envelope: Envelope): Promise<void> {
    const { cid, n, b } = envelope;
    const payload = readPayload(payloadOf(envelope), b);
    const effect = await this.#askedOnce("message", [type], payload);
    if (!this.#isAccepted(effect, n, cid)) return;
    try {
      await this.#host.received({ type, payload, user: this.user, connection: this });
    } catch (error) {
      if (!(error instanceof CallError)) this.#host.failed(error);
      const { code, message } = textOfRefusal(error);
      this.#refuse(cid, code, message);
    }
  }
}

type Content = { payload: unknown; binary: boolean };
type Refusal = { code: string; message: string };

const FEATURES = {
  compression: false,
  encryption: false,
  batching: false,
  recovery: true,
  topics: true,
  presence: true,
  calls: true,
  publish: true,
  history: true,
  server_subscriptions: true,
  binary: true,
};

/** Refusals after which a message has its turn again (PROTOCOL 20 (10)). */
const TEMPORARY = /^(RATE_LIMITED|QUEUE_FULL|B(ROKER|ACKEND)_UNAVAILABLE)$/;
const NOTHING_MISSED = { recover: false, position: undefined, replay: 0, filter: undefined };

/** A message of the server's application. */
export function applicationMessage(type: string, payload: unknown): Envelope {
  const fields: EnvelopeFields = { t: type };
  const encoded = encode(json, payload, fields);
  const text = encoded === undefined ? "{}" : String(encoded);
  return { c: "U", ...fields, p: JSON.parse(text) as unknown };
}

/** A payload as it stands in a message of the protocol. */
export function inner(payload: unknown): { payload: unknown; binary?: true } {
  const { p, b } = applicationMessage("payload", payload);
  return b === true ? { payload: p, binary: true } : { payload: p };
}

/** Whether a text names a topic or, if that is allowed, a pattern (PROTOCOL 19.1). */
export function isName(name: string, mayBePattern: boolean): boolean {
  const segments = name.split(".");
  const isWildcard = (segment: string, index: number) =>
    segment === "*" || (segment === ">" && index === segments.length - 1);
  if (isPattern(name) && !mayBePattern) return false;
  if (segments.length > 32 || utf8(name).length > 255) return false;
  return segments.every(
    (one, index) => isWildcard(one, index) || /^[^\s\p{Cc}\u202a-\u202e\u2066-\u2069*>]+$/u.test(one),
  );
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
