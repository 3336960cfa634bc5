/**
 * The hub: a small server in the leading tab, which gives all tabs the one connection to the real
 * server.
 */

import { isObject, payloadOf, typeOf } from "../core/envelope.js";
import { readJson } from "../core/json.js";
import type { Envelope, EnvelopeFields } from "../core/layers.js";
import { Message } from "../message.js";
import type { CloseInfo, Frame } from "../transport.js";
import type { PipeOptions } from "./pipe.js";
import { sizeOf, type Wire } from "./port.js";
import { type Channel, uniqueName } from "./realm.js";
import { Tab } from "./tab.js";
import { Topics } from "./topics.js";
import { Upstream } from "./upstream.js";

/** A request whose answer is pending: of a tab, or of the hub itself. */
interface Pending {
  tab?: Tab;
  cid?: unknown;
  /** Several messages answer it. */
  hasMany?: boolean;
  done?: (answer: Envelope, isError: boolean) => void;
}

/** Reports of the hub to its group. */
export interface HubHost {
  /** No pipe is attached any more, and none will be. */
  over(): void;
  /** A tab was shown or hidden. */
  shown(): void;
}

/** A call of the server, and the tabs that may still answer it. */
interface Call {
  frame: Frame;
  type: unknown;
  tab: Tab | undefined;
  left: Tab[];
}

/** Requests of a client that are answered. */
const REQUESTS = new Set(
  "publish presence history call sync metrics".split(" ").map((name) => `${name}_request`),
)
  .add("config_update")
  .add("health_check");
/** Messages of a client that are not answered, or not by their `cid`. */
const SYSTEM = new Set(["auth_refresh", "publication_ack"]);
/** Entries of each of the hub's tables; the oldest makes room. */
const TABLE_MAX = 20_000;
/** Bytes that wait for the network; above this limit tabs have to wait. */
const BUFFERED_MAX = 1024 * 1024;

export class Hub {
  readonly id = uniqueName();
  /** The producer that the shared connection speaks for, or the next one will. */
  producer: string;
  readonly #upstream: Upstream;
  readonly #topics: Topics;
  readonly #tabs = new Set<Tab>();
  readonly #pending = new Map<string, Pending>();
  readonly #calls = new Map<string, Call>();
  /** Who answers calls of a type, and who sent a message with a correlation id of its own. */
  readonly #handlers = new Map<unknown, Tab>();
  readonly #senders = new Map<string, Tab>();
  /** Publications that their own tab does not want. */
  readonly #unwanted = new Map<unknown, Tab>();
  readonly #pings: Tab[] = [];
  /** Topics that the server has subscribed by itself: their publications are for all tabs. */
  readonly #given = new Set<string>();
  readonly #host: HubHost;
  #nextCid = 1;
  #ready: Envelope = {};
  #hello: Envelope | undefined;
  /** The tab that sends numbered messages, and how far they are. */
  #producerTab: Tab | undefined;
  #numbered = 0;
  #acknowledged = 0;
  /** The server's last message about its broker. */
  #broker: Frame | undefined;
  #left!: () => void;
  /** Resolves when the shared connection is closed. */
  readonly closed = new Promise<void>((resolve) => {
    this.#left = resolve;
  });
  isOver = false;

  constructor({ base, options, open }: PipeOptions, producer: string, host: HubHost) {
    this.producer = producer;
    this.#host = host;
    this.#upstream = new Upstream(base, options, open, producer, {
      opened: (ready, hello) => this.#opened(ready, hello),
      received: (message, frame) => this.#received(message, frame),
      drained: () => {
        for (const tab of this.#tabs) tab.done(tab.owed);
        for (const tab of this.#tabs) tab.owed = 0;
      },
      closed: (info) => this.#closed(info),
    });
    this.#topics = new Topics(this.#topicsHost());
  }

  /** The tabs that have pipes to this hub. */
  get tabs(): ReadonlySet<Tab> {
    return this.#tabs;
  }

  attach(channel: Channel, isLocal: boolean, isVisible: boolean): Tab {
    const tab = new Tab(channel, isLocal, isVisible, {
      received: (_, message) => this.#fromTab(tab, message),
      stuck: () => this.drop(tab, { code: 4310, reason: "the tab does not read" }),
    });
    this.#tabs.add(tab);
    tab.post({ hub: this.id, producer: this.producer || undefined });
    if (this.#hello) this.#open(tab);
    return tab;
  }

  /** Ends a tab's pipe. */
  drop(tab: Tab, info: CloseInfo, more?: Wire): void {
    if (!this.#tabs.delete(tab)) return;
    tab.end(info, more);
    if (this.isOver) return;
    this.#topics.drop(tab);
    if (this.#producerTab === tab) this.#producerTab = undefined;
    for (const [cid, call] of this.#calls) {
      if (call.tab === tab) {
        this.#answer(cid, { error: { code: "HANDLER_ERROR", message: "the tab that was called is gone" } });
      }
    }
  }

  /** Ends the shared connection with `code`, and all pipes as lost. */
  end(code: number, reason: string): void {
    if (this.isOver) return;
    this.#endTabs({ code: 1001, reason });
    this.#upstream.close(code, reason);
  }

  terminate(): void {
    this.#upstream.terminate();
  }

  #endTabs(info: CloseInfo): void {
    this.isOver = true;
    for (const tab of [...this.#tabs]) {
      // Another connection goes on as the producer: that ends one tab, not those that share its
      // connection.
      const isOther = info.code === 4409 && tab !== this.#producerTab;
      this.drop(tab, isOther ? { code: 1001, reason: info.reason } : info, { producer: this.producer });
    }
    this.#host.over();
  }

  #closed(info: CloseInfo): void {
    // The tab that owns the queue has a connection of its own.
    if (info.code === 4409) this.producer = "";
    if (!this.isOver) this.#endTabs(info);
    this.#left();
  }

  // From the server

  #opened(ready: Envelope, hello: Envelope): void {
    this.#ready = ready;
    this.#hello = hello;
    for (const tab of this.#tabs) this.#open(tab);
  }

  #open(tab: Tab): void {
    tab.isOpen = true;
    tab.send(this.#encode({ c: "WSE", t: "server_ready", p: this.#ready }));
  }

  #received(message: Message | Envelope, frame: Frame | undefined): void {
    if (message instanceof Message) return this.#publication(message, frame, frame?.length ?? 200);
    const p = payloadOf(message);
    if (typeOf(message) !== "batch" || !isObject(p) || !Array.isArray(p.messages)) {
      return this.#envelope(message, frame, frame?.length ?? 200);
    }
    const messages = p.messages.filter(isObject);
    const bytes = Math.ceil((frame?.length ?? 0) / (messages.length || 1));
    const isSame =
      frame !== undefined && messages.every((one) => one.tp !== undefined && one.cid === undefined);
    // Mostly all of a batch is for the same tabs, which get it as it is.
    const targets = isSame ? messages.map((one) => this.#targets(one, undefined, bytes)) : [];
    const [first] = targets;
    if (first && targets.every((one) => one.size === first.size && [...one].every((tab) => first.has(tab)))) {
      for (const tab of first) tab.send(frame!);
    } else if (isSame) for (const [at, one] of messages.entries()) this.#sendTo(targets[at]!, one);
    else for (const one of messages) this.#envelope(one, undefined, bytes);
  }

  #envelope(message: Envelope, frame: Frame | undefined, bytes: number): void {
    const payload = payloadOf(message);
    const p = isObject(payload) ? payload : {};
    const { cid } = message;
    const type = typeOf(message);
    if (type === "call_request") return this.#call(message, p, frame);
    if (typeof cid === "string") {
      const pending = this.#pending.get(cid);
      if (pending) return this.#answered(cid, pending, message, p);
    }
    switch (type) {
      case "ping":
        this.#pong(p);
        break;
      case "PONG":
      case "pong": {
        const tab = this.#pings.shift();
        return tab && this.#sendTo([tab], message, frame);
      }
      case "subscription":
      case "subscription_update":
        if (Array.isArray(p.success_topics)) this.#changed(p.action === "subscribe", p.success_topics);
        break;
      case "message_ack":
        if (typeof p.last === "number") this.#acknowledged = p.last;
        return this.#sendTo(this.#producers(), message, frame);
      case "auth_expiry_warning":
      case "auth_refresh_response":
        // One tab refreshes the token for all of them.
        return this.#sendTo([...this.#tabs].filter(({ isLocal }) => isLocal).slice(0, 1), message, frame);
      case "publication_gap":
        return this.#sendTo(this.#topics.gap(p, message), message, frame);
      case "presence_join":
      case "presence_leave":
      case "presence_update":
        return this.#sendTo(this.#topics.subscribers(String(p.topic)), message, frame);
      case "error":
        if (p.code === "RATE_LIMITED" && Array.isArray(p.cids)) return this.#limited(message, p, p.cids);
        if (cid != null || p.code === "PRODUCER_SUPERSEDED" || p.code === "MESSAGE_GAP") {
          return this.#sendTo(this.#sender(cid), message, frame);
        }
        break;
      case "publish_response":
        return this.#sendTo(this.#producers(), message, frame);
      default:
        if (message.tp != null) return this.#publication(message, frame, bytes);
        if (cid != null) return this.#sendTo(this.#sender(cid), message, frame);
        if ("broker_away" in p) this.#broker = p.broker_away ? this.#encode(message) : undefined;
    }
    this.#sendTo(this.#tabs, message, frame);
  }

  /** The server has subscribed the client to topics, or has ended subscriptions. */
  #changed(isGiven: boolean, topics: readonly unknown[]): void {
    if (!isGiven) this.#topics.taken(topics);
    for (const topic of topics) {
      if (isGiven) this.#given.add(String(topic));
      else this.#given.delete(String(topic));
    }
  }

  #publication(message: Message | Envelope, frame: Frame | undefined, bytes: number): void {
    this.#sendTo(this.#targets(message, frame, bytes), message, frame);
  }

  #targets(message: Message | Envelope, frame: Frame | undefined, bytes: number): Set<Tab> {
    const isScanned = message instanceof Message;
    const { e, o } = isScanned ? { e: message.position?.epoch, o: message.position?.offset } : message;
    const position = typeof e === "string" && typeof o === "number" ? { epoch: e, offset: o } : undefined;
    const name = isScanned ? message.topic! : String(message.tp);
    const tabs = this.#topics.publication(name, position, frame ?? message, bytes);
    if (this.#given.has(name)) for (const tab of this.#tabs) tabs.add(tab);
    const own = message.id === undefined ? undefined : this.#unwanted.get(message.id);
    if (own) {
      tabs.delete(own);
      this.#unwanted.delete(message.id);
    }
    return tabs;
  }

  #sendTo(tabs: Iterable<Tab>, message: Message | Envelope, frame?: Frame): void {
    for (const tab of tabs) tab.send((frame ??= this.#encode(message)));
  }

  #producers(): Tab[] {
    return this.#producerTab ? [this.#producerTab] : [];
  }

  /** Who sent the message that another one answers; all tabs, if nobody knows. */
  #sender(cid: unknown): Iterable<Tab> {
    const tab = this.#senders.get(cid as string) ?? this.#producerTab;
    return tab && !tab.isOver ? [tab] : this.#tabs;
  }

  #answered(cid: string, { tab, cid: own, hasMany, done }: Pending, message: Envelope, p: Envelope): void {
    const isError = typeOf(message) === "error";
    if (!hasMany || isError) this.#pending.delete(cid);
    if (tab) tab.send(this.#encode({ ...message, cid: own }));
    done?.(p, isError);
  }

  /** The server has refused requests for the rate: each tab learns of its own, by its own correlation ids. */
  #limited(message: Envelope, p: Envelope, cids: readonly unknown[]): void {
    const own = new Map<Tab | undefined, unknown[]>();
    for (const cid of cids as string[]) {
      const { tab = this.#senders.get(cid), cid: known = cid, done } = this.#pending.get(cid) ?? {};
      this.#pending.delete(cid);
      done?.(p, true);
      own.set(tab, [...(own.get(tab) ?? []), known]);
    }
    for (const tab of this.#tabs)
      tab.send(this.#encode({ ...message, p: { ...p, cids: own.get(tab) ?? [] } }));
  }

  #pong({ timestamp }: Envelope): void {
    const now = Date.now();
    const sent = typeof timestamp === "number" && timestamp >= 0 ? Math.floor(timestamp) : null;
    const latency = sent === null ? 0 : Math.max(0, now - sent);
    const p = { client_timestamp: now, server_timestamp: sent, latency };
    this.#upstream.send({ c: "WSE", t: "PONG" }, p, true);
  }

  // Calls of the server

  #call(message: Envelope, { type }: Envelope, frame: Frame | undefined): void {
    const known = this.#handlers.get(type);
    const rank = (tab: Tab) => (tab === known ? 2 : Number(tab.isVisible));
    const left = [...this.#tabs].filter(({ isOpen }) => isOpen).sort((a, b) => rank(b) - rank(a));
    const call: Call = { frame: frame ?? this.#encode(message), type, tab: undefined, left };
    remember(this.#calls, String(message.cid), call);
    this.#callNext(String(message.cid), call, { error: { code: "NOT_FOUND", message: "no tab answers" } });
  }

  /** Asks the next tab. If there is none, `answer` is the answer. */
  #callNext(cid: string, call: Call, answer: Envelope): void {
    do call.tab = call.left.shift();
    while (call.tab?.isOver);
    if (call.tab) call.tab.send(call.frame);
    else this.#answer(cid, answer);
  }

  #answer(cid: string, p: Envelope): void {
    this.#calls.delete(cid);
    this.#upstream.send({ c: "WSE", t: "call_response", cid }, p, true);
  }

  // From the tabs

  #fromTab(tab: Tab, { frames, visible, end }: Wire): void {
    if (end) return this.drop(tab, end);
    if (visible !== undefined) {
      tab.isVisible = visible;
      tab.post({ hub: this.id });
      this.#host.shown();
    }
    if (!frames) return;
    for (const frame of frames) this.#frame(tab, frame);
    tab.owed += sizeOf(frames);
    if (this.#upstream.bufferedBytes > BUFFERED_MAX) return;
    tab.done(tab.owed);
    tab.owed = 0;
  }

  #frame(tab: Tab, frame: Frame): void {
    const read = typeof frame === "string" ? readJson(frame) : this.#upstream.format.read(frame.subarray(2));
    const { p, seq, v, ...rest } = read;
    const fields = rest as unknown as EnvelopeFields;
    const { t, cid, n } = fields;
    const payload = isObject(p) ? p : {};
    if (t === "client_hello") return this.#greet(tab, payload);
    if (t === "PONG") return;
    if (t === "subscription_update" && Array.isArray(payload.topics) && payload.topics.length) {
      return payload.renew ? this.#forward(tab, fields, payload) : this.#topics.request(tab, payload, cid);
    }
    if (t === "call_response") return this.#callAnswered(tab, String(cid), payload);
    if (t === "ping") this.#pings.push(tab);
    if (n !== undefined) this.#numbered = Math.max(this.#numbered, n);
    else if (REQUESTS.has(t)) return this.#forward(tab, fields, payload);
    else if (typeof cid === "string") remember(this.#senders, cid, tab);
    const isSystem = t === "ping" || SYSTEM.has(t);
    if (!this.#upstream.send(fields, p, isSystem)) this.#tooLarge(tab, cid);
  }

  /** A message of a tab has become too large for the server by what the shared connection adds. */
  #tooLarge(tab: Tab, cid: unknown): void {
    const p = {
      code: "MESSAGE_TOO_LARGE",
      message: "too large for the server",
      recoverable: true,
    };
    tab.send(this.#encode({ c: "WSE", t: "error", ...(cid === undefined ? {} : { cid }), p }));
  }

  /** Passes on a request under a correlation id of the hub. */
  #forward(tab: Tab, fields: EnvelopeFields, p: Envelope): void {
    let payload = p;
    if (fields.t === "sync_request" && !p.topics) payload = { ...p, topics: this.#topics.namesOf(tab) };
    // The server would leave out all tabs.
    if (p.exclude_self && p.id !== undefined) {
      remember(this.#unwanted, p.id, tab);
      const { exclude_self: _, ...rest } = p;
      payload = rest;
    }
    const cid = this.#cid({ tab, cid: fields.cid, hasMany: fields.t === "sync_request" });
    if (this.#upstream.send({ ...fields, cid }, payload, true)) return;
    this.#pending.delete(cid);
    this.#tooLarge(tab, fields.cid);
  }

  #cid(pending: Pending): string {
    const cid = `${this.id}.${this.#nextCid++}`;
    remember(this.#pending, cid, pending);
    return cid;
  }

  #callAnswered(tab: Tab, cid: string, p: Envelope): void {
    const call = this.#calls.get(cid);
    if (call?.tab !== tab) return;
    if (isObject(p.error) && p.error.code === "NOT_FOUND") return this.#callNext(cid, call, p);
    remember(this.#handlers, call.type, tab);
    this.#answer(cid, p);
  }

  /** Answers a tab's hello with the data that the server has sent. */
  #greet(tab: Tab, { producer }: Envelope): void {
    const {
      producer: known,
      encryption_public_key,
      identity_public_key,
      identity_signature,
      ...p
    } = this.#hello!;
    const id = isObject(producer) ? producer.id : undefined;
    if (typeof id === "string") {
      const isBusy = this.#numbered > this.#acknowledged || (this.#producerTab && this.#producerTab !== tab);
      if (id !== this.producer || (known && isBusy)) {
        if (this.#producerTab && id !== this.producer) {
          return this.#alone(tab, "another tab has another queue");
        }
        // Only the start of a connection shows how far a producer is.
        this.producer = id;
        return this.end(1000, "another tab has the queue");
      }
      this.#producerTab = tab;
      if (isObject(known)) p.producer = { ...known, last: Math.max(Number(known.last), this.#acknowledged) };
    }
    tab.send(this.#encode({ c: "WSE", t: "server_hello", p }));
    if (this.#broker) tab.send(this.#broker);
    if (!this.#given.size) return;
    const given = { action: "subscribe", success_topics: [...this.#given], failed_topics: [], recovery: {} };
    tab.send(this.#encode({ c: "WSE", t: "subscription_update", p: given }));
  }

  #alone(tab: Tab, reason: string): void {
    this.drop(tab, { code: 1001, reason }, { alone: reason });
  }

  #topicsHost() {
    const hub = this;
    return {
      get hasHistory() {
        const features = hub.#hello?.features;
        return isObject(features) && features.history === true;
      },
      ask: (t: string, payload: object, done: NonNullable<Pending["done"]>) => {
        this.#upstream.send({ c: "WSE", t, cid: this.#cid({ done }) }, payload, true);
      },
      encode: (value: Frame | Message | Envelope) => this.#encode(value),
      alone: (tab: Tab, reason: string) => this.#alone(tab, reason),
    };
  }

  #encode(value: Frame | Message | Envelope): Frame {
    if (typeof value === "string" || value instanceof Uint8Array) return value;
    const upstream = this.#upstream;
    const { format } = upstream;
    if (!(value instanceof Message)) {
      const { p, ...fields } = value;
      return format.envelope(fields as unknown as EnvelopeFields, upstream.encode(p));
    }
    const { type: t, topic: tp, position, id, priority: pri, payload } = value.decoded();
    const fields = { c: "U", t, tp, e: position?.epoch, o: position?.offset, id, pri };
    return format.envelope(fields as EnvelopeFields, upstream.encode(payload));
  }
}

/** Adds to a table of limited size. */
function remember<K, V>(table: Map<K, V>, key: K, value: V): void {
  if (table.size >= TABLE_MAX) table.delete(table.keys().next().value as K);
  table.set(key, value);
}
