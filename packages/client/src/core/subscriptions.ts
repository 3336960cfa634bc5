/**
 * Subscriptions: what the application wants, what the connection has, and the requests that turn one into the other.
 * Equal subscriptions of several parts of an application share one on the wire.
 */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import type { ClientEvents, Gap, PresenceEvent } from "../events.js";
import type { Message, Position } from "../message.js";
import { positionOf } from "./answers.js";
import { isObject, unreadable } from "./envelope.js";
import type { Envelope } from "./layers.js";
import { isWhole } from "./payload.js";
import { defaultSequencerLimits, detached, type Sequenced, Sequencer } from "./sequencer.js";
import { type Draft, isGaplessTopic, reasonOf, type Topic, type TopicRequest, tokenOf } from "./topic.js";
import { type ActiveTopic, compilePattern, isPattern, type Subscriber, type WireOptions } from "./topics.js";

export type { TopicRequest } from "./topic.js";
export type { ActiveTopic, Subscriber, WireOptions } from "./topics.js";

/** Where events go that concern more than one subscription. */
interface Host {
  emit<Name extends keyof ClientEvents>(name: Name, detail: ClientEvents[Name]): void;
  /** The network is poor: who does not recover is content with the newest publication of each key. */
  readonly isPoor: boolean | undefined;
}

/** What subscriptions of the server have as options: the requests that renew them do (PROTOCOL 7.5 (9)). */
const SERVERS: WireOptions = { renew: true };
const SERVERS_KEY = JSON.stringify(SERVERS);
/** Whether the client asked for the subscription. */
const isOwn = ({ wire }: Topic) => wire !== SERVERS;
/** How long the server's application may need to subscribe the client again (PROTOCOL 7.5 (11)). */
const LOST_MS = 5_000;
/** Topics in one request (PROTOCOL 12). */
const TOPICS_MAX = 1_000;
/** Subscription tokens in one request. */
const TOKENS_MAX = 100;
/** More bytes than a request needs beside its options and topics, and a topic beside its name and token. */
const REQUEST_BYTES = 200;
const TOPIC_BYTES = 80;
/** Topics whose subscribers are remembered. */
const ROUTES_MAX = 20_000;
/** Topics whose positions are remembered. */
const POSITIONS_MAX = 100_000;

export class Subscriptions {
  readonly #host: Host;
  readonly #topics = new Map<string, Topic>();
  /** Topics that the connection does not have as the application wants them. */
  readonly #dirty = new Set<Topic>();
  readonly #routes = new Map<string, readonly Topic[]>();
  /** Publications that are in order and that no listener has received. */
  readonly #sequenced: Sequenced<Message | undefined>[] = [];
  readonly #sequencer: Sequencer<Message | undefined>;
  readonly #patterns = new Set<Topic>();
  /** The subscriber for the server's subscriptions. It emits messages that the client has not asked for. */
  readonly #server: Subscriber;
  /** No subscription of the server is lost before this. */
  #soonestLostMs = Infinity;

  constructor(host: Host, reorderWindowMs: number) {
    this.#host = host;
    const nothing = () => undefined;
    this.#server = {
      recover: true,
      from: {},
      replay: 0,
      active: nothing,
      failed: nothing,
      message: (message) => host.emit("message", message),
      gap: nothing,
      unrecovered: nothing,
      presence: nothing,
    };
    this.#sequencer = new Sequencer(this.#sequenced, {
      ...defaultSequencerLimits,
      topicsMax: POSITIONS_MAX,
      windowMs: reorderWindowMs,
    });
  }

  get size(): number {
    return this.#topics.size;
  }

  /** Whether requests are due. */
  get isDirty(): boolean {
    return this.#dirty.size > 0;
  }

  /** Whether topics wait for the server's answer. */
  get isPending(): boolean {
    for (const { state, lostMs } of this.#topics.values()) if (state !== "active" && !lostMs) return true;
    return false;
  }

  /** Adds a subscriber. Throws `INVALID_ARGUMENT` if a topic is subscribed with other options. */
  add(subscriber: Subscriber, names: readonly string[], wire: WireOptions): void {
    const key = JSON.stringify({ ...wire, presence: undefined });
    for (const name of names) {
      const topic = this.#topics.get(name);
      if (topic && topic.key !== key && topic.subscribers.size && topic.wire !== SERVERS) {
        throw new TidewireError(
          "INVALID_ARGUMENT",
          DEVELOPMENT &&
            `${name} is subscribed with other options; a connection has one subscription of a topic`,
          "application",
        );
      }
    }
    for (const name of names) this.#addTo(name, subscriber, wire, key);
  }

  #addTo(name: string, subscriber: Subscriber, wire: WireOptions, key: string): void {
    let topic = this.#topics.get(name);
    if (topic?.wire === SERVERS) {
      // It is the client's own from here on, and goes on from its position.
      topic.subscribers.clear();
      Object.assign(topic, { wire, key, state: "idle", lostMs: 0, wasActive: false });
    } else if (!topic || topic.key !== key) {
      const state = topic?.state ?? "idle";
      if (topic) this.#forget(topic);
      topic = this.#make(name, wire, key, state);
    }
    topic.subscribers.add(subscriber);
    if (topic.state === "asked" && !topic.isReplaced) topic.late.add(subscriber);
    this.#setPresence(topic, wire.presence);
    if (topic.state === "active" && !topic.isReplaced) {
      const position = this.#sequencer.position(name);
      subscriber.active(name, { position, recovered: false, count: 0, isShared: true });
      if (topic.last) subscriber.message(topic.last);
    } else this.#dirty.add(topic);
  }

  #make(name: string, wire: WireOptions, key: string, state: Topic["state"]): Topic {
    const topic: Topic = {
      name,
      wire,
      key,
      matches: isPattern(name) ? compilePattern(name) : undefined,
      subscribers: new Set(),
      state,
      wasActive: false,
      isCatchingUp: false,
      isChanged: false,
      isReplaced: state !== "idle",
      late: new Set(),
      last: undefined,
      givesLast: false,
      lostMs: 0,
      told: undefined,
    };
    this.#topics.set(name, topic);
    if (topic.matches) this.#patterns.add(topic);
    this.#routes.clear();
    return topic;
  }

  /** Others see the data of the newest subscriber; another request sends it to them (PROTOCOL 7.5 (7), 19.6). */
  #setPresence(topic: Topic, presence: object | undefined): void {
    if (!presence || JSON.stringify(presence) === JSON.stringify(topic.wire.presence)) return;
    topic.wire = { ...topic.wire, presence };
    topic.isChanged = topic.state !== "idle";
    this.#dirty.add(topic);
  }

  /** Removes a subscriber from a topic. The last one ends the subscription on the wire. */
  remove(subscriber: Subscriber, name: string): void {
    const topic = this.#topics.get(name);
    if (!topic?.subscribers.delete(subscriber) || topic.subscribers.size) return;
    if (topic.state === "idle") this.#forget(topic);
    else this.#dirty.add(topic);
  }

  /**
   * The requests that are due, each of at most `bytesMax`, if that is not 0; they count as sent. With `canRenew` the
   * server renews subscriptions that it made.
   */
  collect(canRenew: boolean, bytesMax: number, nowMs: number): TopicRequest[] {
    const requests = new Map<string, TopicRequest>();
    const all: TopicRequest[] = [];
    const { isPoor } = this.#host;
    for (const topic of this.#dirty) {
      if (topic.state === "asked") continue;
      this.#dirty.delete(topic);
      if (!isWhole(topic.name)) {
        const words = DEVELOPMENT && "the name has half a character";
        this.#refuse(topic, [], new TidewireError("INVALID_SUBSCRIPTION", words, "application"), undefined);
        continue;
      }
      if (topic.wire === SERVERS && !canRenew) {
        topic.isCatchingUp = false;
        if (topic.state === "idle" && !topic.lostMs) this.#awaitServer(topic, nowMs);
        continue;
      }
      const isWanted = topic.subscribers.size > 0 && !topic.isReplaced;
      const isAgain = isWanted && (topic.isCatchingUp || topic.isChanged);
      if (isWanted === (topic.state === "active") && !isAgain) continue;
      topic.isChanged = false;
      const draft: Draft = isWanted ? this.#subscribe(topic, isPoor) : { action: "unsubscribe" };
      const token = isWanted ? tokenOf(topic) : undefined;
      // Requests with tokens are shorter.
      const key = JSON.stringify([draft, token !== undefined]);
      let request = requests.get(key);
      // The topic stands in the request up to three times, and no unit of it has more than three bytes.
      const bytes = topic.name.length * 9 + TOPIC_BYTES + (token?.length ?? 0);
      const isFull =
        request &&
        (request.topics.length === (token === undefined ? TOPICS_MAX : TOKENS_MAX) ||
          (bytesMax && request.bytes + bytes > bytesMax));
      if (!request || isFull) {
        const topics: string[] = [];
        request = {
          action: draft.action,
          topics,
          payload: { ...draft, topics },
          bytes: key.length * 3 + REQUEST_BYTES,
        };
        requests.set(key, request);
        all.push(request);
      }
      request.topics.push(topic.name);
      request.bytes += bytes;
      const position = isWanted && draft.recover ? this.#startPosition(topic) : undefined;
      if (position) {
        request.payload.recovery ??= {};
        (request.payload.recovery as Record<string, Position>)[topic.name] = position;
      }
      if (token !== undefined) {
        request.payload.tokens ??= {};
        (request.payload.tokens as Record<string, string>)[topic.name] = token;
      }
      topic.state = "asked";
    }
    return all;
  }

  #subscribe(topic: Topic, isPoor: boolean | undefined): Draft {
    let [recover, replay] = [false, 0];
    for (const subscriber of topic.subscribers) {
      recover ||= subscriber.recover;
      replay = Math.max(replay, subscriber.replay);
    }
    // A pattern has no position, and a group's publications are others' as well.
    const hasHistory = !topic.matches && !topic.wire.queue_group;
    return {
      action: "subscribe",
      ...(isPoor && !recover && !topic.wire.queue_group ? { overload: "conflate" } : {}),
      ...topic.wire,
      ...(recover && hasHistory && this.#startPosition(topic) ? { recover: true as const } : {}),
      ...(replay && hasHistory && !topic.wasActive ? { replay } : {}),
    };
  }

  #startPosition(topic: Topic): Position | undefined {
    const known = this.#sequencer.position(topic.name);
    if (known) return known;
    for (const { from } of topic.subscribers) if (from[topic.name]) return from[topic.name];
    return undefined;
  }

  /** A request has ended: by an answer, by a refusal as a whole, or without either; then the topics are asked for again. */
  answered(request: TopicRequest, error: TidewireError | undefined, answer: Envelope, nowMs: number): void {
    const isAgain = error && /^(TIMEOUT|CONNECTION_LOST|RATE_LIMITED|BUSY)$/.test(error.code);
    const recovery = isObject(answer.recovery) ? answer.recovery : {};
    const list = (name: string): unknown[] => (Array.isArray(answer[name]) ? answer[name] : []);
    const failed = list("failed_topics");
    const done = new Set(list("success_topics").filter((name) => !failed.includes(name)));
    const isWanted = request.action === "subscribe";
    const lost: string[] = [];
    const isRenewal = request.payload.renew === true;
    for (const name of request.topics) {
      const topic = this.#topics.get(name);
      if (topic?.state !== "asked" || isRenewal !== (topic.wire === SERVERS)) continue;
      const reason = error ?? reasonOf(list("failures"), name);
      if (isAgain) {
        topic.state = isWanted ? "idle" : "active";
        this.#dirty.add(topic);
      } else if (!isWanted) this.#unsubscribed(topic);
      else if (!error && done.has(name)) this.#subscribed(topic, recovery[name], nowMs);
      else if (isRenewal && reason?.code === "TOPIC_FORBIDDEN") this.#awaitServer(topic, nowMs);
      else this.#refuse(topic, lost, reason, error);
    }
    this.#lost(lost);
  }

  /** The server has subscribed this client by itself (PROTOCOL 7.5 (8)). */
  given(names: readonly unknown[], recovery: unknown, nowMs: number): void {
    for (const name of names) {
      if (typeof name !== "string") continue;
      const position =
        isObject(recovery) && isObject(recovery[name]) ? positionOf(recovery[name]) : undefined;
      const topic = this.#topics.get(name);
      if (topic?.wire === SERVERS) this.#serverHas(topic, position ?? "nowhere");
      if (topic?.subscribers.size) continue;
      if (topic) this.#forget(topic);
      const made = this.#make(name, SERVERS, SERVERS_KEY, "active");
      made.isReplaced = false;
      made.wasActive = true;
      made.subscribers.add(this.#server);
      if (position && !this.#sequencer.position(name)) this.#sequencer.advance(name, position, nowMs);
    }
  }

  /** The server has a subscription again that it made. */
  #serverHas(topic: Topic, position: Position | "nowhere"): void {
    if (topic.state === "active") return;
    topic.told = position;
    if (topic.lostMs) this.#goOn(topic);
  }

  /** The server's application may subscribe the client again; if it does not do so in time, the topic is lost. */
  #awaitServer(topic: Topic, nowMs: number): void {
    topic.state = "idle";
    topic.lostMs = nowMs + LOST_MS;
    this.#soonestLostMs = Math.min(this.#soonestLostMs, topic.lostMs);
    if (topic.told) this.#goOn(topic);
  }

  /** The connection has the subscription. If publications of it were missed, they are to be recovered. */
  #goOn(topic: Topic): void {
    const known = this.#sequencer.position(topic.name);
    const { told } = topic;
    topic.state = "active";
    topic.lostMs = 0;
    topic.told = undefined;
    if (told === "nowhere" || (known?.epoch === told?.epoch && known?.offset === told?.offset)) return;
    topic.isCatchingUp = true;
    this.#dirty.add(topic);
  }

  #lost(topics: string[]): void {
    if (topics.length) this.#host.emit("subscriptionLost", { topics });
  }

  /** The server has ended subscriptions of its own accord. Those with an expired token are requested with another. */
  taken(names: readonly unknown[], failures: readonly unknown[]): void {
    const lost: string[] = [];
    for (const name of names) {
      const topic = this.#topics.get(name as string);
      if (!topic || topic.state === "idle") continue;
      const isExpired = reasonOf(failures, topic.name)?.code === "TOKEN_EXPIRED";
      if (isExpired && topic.state === "active" && [...topic.subscribers].some(({ tokens }) => tokens)) {
        topic.state = "idle";
        this.#dirty.add(topic);
      } else this.#refuse(topic, lost, undefined, undefined);
    }
    this.#lost(lost);
  }

  /** Ends a topic for its subscribers, with `error` as it is or as the cause. Those that were active are added to `lost`. */
  #refuse(
    topic: Topic,
    lost: string[],
    cause: TidewireError | undefined,
    error: TidewireError | undefined,
  ): void {
    const { wasActive, name } = topic;
    const words = `the server does not give ${name}${cause ? `: ${cause.code}: ${cause.message}` : ""}`;
    const options = { fault: "application", cause } as const;
    const own = new TidewireError(
      error?.code ?? "SUBSCRIPTION_FAILED",
      error ? error.message : words,
      options,
    );
    this.#forget(topic);
    for (const subscriber of topic.subscribers) subscriber.failed(name, own, wasActive);
    if (wasActive && topic.subscribers.size) lost.push(name);
  }

  #unsubscribed(topic: Topic): void {
    topic.state = "idle";
    topic.wasActive = topic.isReplaced = false;
    if (topic.subscribers.size) this.#dirty.add(topic);
    else this.#forget(topic);
  }

  #subscribed(topic: Topic, recovery: unknown, nowMs: number): void {
    topic.state = "active";
    if (!topic.subscribers.size || topic.isReplaced) this.#dirty.add(topic);
    if (topic.isReplaced) return;
    topic.wasActive = true;
    topic.isCatchingUp = false;
    topic.told = undefined;
    const info: ActiveTopic = { position: undefined, recovered: false, count: 0, isShared: false };
    if (isObject(recovery)) {
      const { recovered, count } = recovery;
      info.position = positionOf(recovery);
      if (info.position) {
        info.recovered = recovered === true;
        info.count = typeof count === "number" ? count : 0;
        this.#positioned(topic, info, nowMs);
      }
    }
    for (const subscriber of topic.subscribers) {
      subscriber.active(topic.name, topic.late.has(subscriber) ? { ...info, isShared: true } : info);
    }
    topic.late.clear();
  }

  /** Applies the server's position of a topic, which may not be the one that the client had last. */
  #positioned(topic: Topic, info: ActiveTopic, nowMs: number): void {
    const now = info.position!;
    const known = this.#sequencer.position(topic.name);
    if (!info.recovered) {
      const last = this.#startPosition(topic);
      this.#forgetPosition(topic.name);
      topic.givesLast = info.count === 1 && !last && ![...topic.subscribers].some(({ replay }) => replay);
      if (last && (last.epoch !== now.epoch || last.offset !== now.offset)) {
        const event = { topic: topic.name, last, now };
        let isWanted = false;
        for (const subscriber of topic.subscribers) {
          if (subscriber.recover) {
            subscriber.unrecovered(event);
            isWanted = true;
          }
        }
        if (isWanted) this.#host.emit("unrecovered", event);
      }
    }
    if (!known || !info.recovered) {
      // The publications that are sent again have not arrived yet.
      const start = { epoch: now.epoch, offset: Math.max(0, now.offset - info.count) };
      this.#sequencer.advance(topic.name, start, nowMs);
      this.#passOn();
    }
  }

  /** A message of the server's application, or a publication. */
  deliver(message: Message, hasCid: boolean, nowMs: number): void {
    const { topic, position } = message;
    if (topic === undefined) return this.#host.emit("message", message);
    if (!position || message.delivery !== undefined || hasCid) return this.#dispatch(topic, message);
    if (this.#sequencer.pass(topic, position.epoch, position.offset)) return this.#dispatch(topic, message);
    const known = this.#sequencer.position(topic);
    if (!known || !this.#isGapless(topic)) {
      if (known?.epoch === position.epoch && position.offset <= known.offset) return;
      this.#dispatch(topic, message);
      this.#sequencer.advance(topic, position, nowMs);
      return this.#passOn();
    }
    const outcome = this.#sequencer.handle(topic, position, message, nowMs);
    this.#passOn();
    const own = this.#topics.get(topic);
    if (outcome === "held" && own?.state === "active" && !own.isCatchingUp) {
      own.isCatchingUp = true;
      this.#dirty.add(own);
    }
  }

  /** A publication of this client that its own subscription leaves out. */
  publishedSelf(topic: string, position: Position, nowMs: number): void {
    if (!this.#topics.has(topic)) return;
    this.#sequencer.handle(topic, position, undefined, nowMs);
    this.#passOn();
  }

  gap(gap: Gap, nowMs: number): void {
    if (gap.range) {
      const { epoch, from, to } = gap.range;
      this.#sequencer.skip(gap.topic, epoch, from, to, nowMs);
      this.#passOn();
    }
    this.#tellGap(gap);
  }

  presence(event: PresenceEvent): void {
    for (const topic of this.#route(event.topic)) {
      for (const subscriber of topic.subscribers) subscriber.presence(event);
    }
  }

  get nextTimeout(): number {
    return Math.min(this.#sequencer.nextTimeout() ?? Infinity, this.#soonestLostMs);
  }

  timeout(nowMs: number): void {
    this.#sequencer.handleTimeout(nowMs);
    this.#passOn();
    if (nowMs < this.#soonestLostMs) return;
    this.#soonestLostMs = Infinity;
    const lost: string[] = [];
    for (const topic of [...this.#topics.values()]) {
      if (topic.lostMs > nowMs) this.#soonestLostMs = Math.min(this.#soonestLostMs, topic.lostMs);
      else if (topic.lostMs) this.#refuse(topic, lost, undefined, undefined);
    }
    this.#lost(lost);
  }

  /** The connection is gone: everything is to be subscribed again. */
  disconnected(): void {
    for (const topic of this.#topics.values()) {
      topic.state = "idle";
      topic.isCatchingUp = topic.isChanged = topic.isReplaced = false;
      topic.lostMs = 0;
      topic.told = undefined;
      topic.late.clear();
      if (topic.subscribers.size) this.#dirty.add(topic);
      else this.#forget(topic);
    }
  }

  /** There is no further connection. */
  end(error: TidewireError): void {
    for (const topic of [...this.#topics.values()]) {
      this.#forget(topic);
      for (const subscriber of topic.subscribers) subscriber.failed(topic.name, error, topic.wasActive);
    }
  }

  /** Passes on what the sequencer has let through. */
  #passOn(): void {
    for (const { message, gap } of this.#sequenced.splice(0)) {
      if (message) this.#dispatch(message.topic!, message);
      else if (gap) {
        const { topic, epoch, from, to } = gap;
        this.#tellGap({ topic, reason: undefined, count: to - from + 1, range: { epoch, from, to } });
      }
    }
  }

  #tellGap(gap: Gap): void {
    const topics = this.#topics.has(gap.topic) ? [this.#topics.get(gap.topic)!] : this.#route(gap.topic);
    for (const topic of topics) for (const subscriber of topic.subscribers) subscriber.gap(gap);
    this.#host.emit("gap", gap);
  }

  #dispatch(name: string, message: Message): void {
    try {
      message.decoded();
    } catch (cause) {
      return this.#host.emit("error", unreadable(DEVELOPMENT && "its payload is not JSON", cause));
    }
    const topics = this.#route(name);
    if (!topics.length) return this.#host.emit("message", message);
    for (const topic of topics) {
      // A message that a subscription of the client receives does not count as one that the client has not asked
      // for. One for several subscriptions of the server is one message.
      if (topic.isReplaced) continue;
      if (topic.wire === SERVERS && topic !== (topics.find(isOwn) ?? topics[0])) continue;
      if (topic.givesLast) topic.last = message;
      for (const subscriber of topic.subscribers) subscriber.message(message);
    }
  }

  /** The subscribed names and patterns that match a topic. */
  #route(name: string): readonly Topic[] {
    let route = this.#routes.get(name);
    if (route) return route;
    const own = this.#topics.get(name);
    const found = own ? [own] : [];
    for (const topic of this.#patterns) if (topic.matches!(name)) found.push(topic);
    route = found;
    if (this.#routes.size >= ROUTES_MAX) this.#routes.clear();
    this.#routes.set(detached(name), route);
    return route;
  }

  /** Whether the offsets of a topic follow one another, so that one that is missing is a gap. */
  #isGapless(name: string): boolean {
    const topic = this.#topics.get(name);
    if (topic) return isGaplessTopic(topic);
    for (const pattern of this.#patterns) if (!isGaplessTopic(pattern)) return false;
    return true;
  }

  #forget(topic: Topic): void {
    if (this.#topics.get(topic.name) === topic) this.#topics.delete(topic.name);
    this.#dirty.delete(topic);
    this.#routes.clear();
    this.#patterns.delete(topic);
    this.#forgetPosition(topic.name);
  }

  #forgetPosition(name: string): void {
    this.#sequencer.forget(name);
    this.#passOn();
  }
}
