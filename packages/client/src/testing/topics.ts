/** Topics of the test server: subscribers, presence, and kept publications (PROTOCOL 19). */

import { hex } from "../core/bytes.js";
import type { Envelope } from "../core/layers.js";
import { randomBytes } from "../core/random.js";
import { compilePattern, isPattern } from "../core/topics.js";
import type { Position } from "../message.js";
import { compileFilter } from "./filter.js";

/** What the server keeps of its topics. */
export interface TopicSettings {
  /** Publications that are kept, by topic or pattern; the first that matches counts. Default: no topic has a history. */
  history?: Readonly<Record<string, number>>;
  /** Topics and patterns with presence. Default none. */
  presence?: readonly string[];
  /** Topics and patterns that give a new subscriber their newest publication. They need a history. Default none. */
  lastValue?: readonly string[];
}

/** Who receives publications: a connection. */
export interface Receiver {
  /** Who is present: the user or, without one, the id of the connection. */
  readonly member: string;
  /** A publication of a subscribed topic, or an event of its presence. */
  deliver(topic: string, envelope: Envelope): void;
}

/** A publication as its publisher describes it, in the words of the protocol. */
export interface Draft {
  type: string;
  payload: unknown;
  binary?: boolean | undefined;
  category?: string | undefined;
  priority?: number | undefined;
  id?: string | undefined;
  ttlMs?: number | undefined;
}

export interface SubscribeRequest {
  recover: boolean;
  position: Position | undefined;
  replay: number;
  filter: object | undefined;
}

/** What a subscriber learns of a topic with history. */
export interface Recovery extends Position {
  recovered: boolean;
  count: number;
}

export interface Member {
  connections: number;
  data?: object;
}

interface Kept {
  offset: number;
  expiresMs: number;
  envelope: Envelope;
}

interface Topic {
  epoch: string;
  offset: number;
  kept: Kept[];
  ids: Map<string, Position | undefined>;
}

interface Subscription {
  matches: (topic: string) => boolean;
  accepts: ((payload: unknown) => boolean) | undefined;
}

interface Present {
  receivers: Set<Receiver>;
  data: object | undefined;
}

/** Ids of publications that are remembered of a topic. */
const IDS_MAX = 10_000;
/** Publications of one answer. */
const PAGE_MAX = 1_000;

export class Topics {
  readonly #settings: TopicSettings;
  readonly #topics = new Map<string, Topic>();
  readonly #subscriptions = new Map<Receiver, Map<string, Subscription>>();
  readonly #present = new Map<string, Map<string, Present>>();

  constructor(settings: TopicSettings) {
    this.#settings = settings;
  }

  /** Forgets the histories and ids, as a server that restarts: each topic has another epoch. */
  forget(): void {
    this.#topics.clear();
  }

  /** How many publications a topic keeps; `undefined` if it has no history. */
  keeps(topic: string): number | undefined {
    for (const [pattern, count] of Object.entries(this.#settings.history ?? {})) {
      if (compilePattern(pattern)(topic)) return count;
    }
    return undefined;
  }

  hasPresence(topic: string): boolean {
    return !isPattern(topic) && isAmong(this.#settings.presence, topic);
  }

  subscribers(topic: string): number {
    let count = 0;
    for (const own of this.#subscriptions.values()) {
      for (const { matches } of own.values()) {
        if (!matches(topic)) continue;
        count++;
        break;
      }
    }
    return count;
  }

  publish(
    name: string,
    draft: Draft,
    excluded: readonly Receiver[] = [],
  ): { isDuplicate: boolean; position: Position | undefined } {
    const topic = this.#topic(name);
    const { id } = draft;
    if (id !== undefined && topic.ids.has(id)) return { isDuplicate: true, position: topic.ids.get(id) };
    const keeps = this.keeps(name);
    const position = keeps !== undefined ? { epoch: topic.epoch, offset: ++topic.offset } : undefined;
    if (id !== undefined) remember(topic.ids, id, position);
    const { type, payload, binary, category = "U", priority = 5 } = draft;
    const envelope: Envelope = {
      c: category,
      t: type,
      tp: name,
      ...(position && { e: position.epoch, o: position.offset }),
      ...(id !== undefined && { id }),
      ...(priority !== 5 && !position && { pri: priority }),
      ...(binary && { b: true }),
      p: payload,
    };
    if (position && keeps !== undefined) {
      const expiresMs = draft.ttlMs === undefined ? Infinity : Date.now() + draft.ttlMs;
      topic.kept.push({ offset: position.offset, expiresMs, envelope });
      if (topic.kept.length > keeps) topic.kept.splice(0, topic.kept.length - keeps);
    }
    for (const [receiver, own] of this.#subscriptions) {
      if (!excluded.includes(receiver) && isWanted(own, name, envelope)) receiver.deliver(name, envelope);
    }
    return { isDuplicate: false, position };
  }

  /** The newest publication of a topic that gives its last value. */
  lastValue(name: string): Envelope | undefined {
    const isGiven = isAmong(this.#settings.lastValue, name);
    return isGiven ? this.#live(this.#topic(name)).at(-1)?.envelope : undefined;
  }

  has(receiver: Receiver, name: string): boolean {
    return this.#subscriptions.get(receiver)?.has(name) ?? false;
  }

  names(receiver: Receiver): string[] {
    return [...(this.#subscriptions.get(receiver)?.keys() ?? [])];
  }

  /**
   * Subscribes, and returns the position of the topic and the publications that are sent again. A receiver that
   * has the topic already changes its filter. Throws an `Error` about a wrong filter. {@link join} makes the
   * receiver present.
   */
  subscribe(
    receiver: Receiver,
    name: string,
    request: SubscribeRequest,
  ): { recovery?: Recovery; replayed: Envelope[] } {
    const { filter } = request;
    let own = this.#subscriptions.get(receiver);
    if (!own) this.#subscriptions.set(receiver, (own = new Map()));
    const before = own.get(name);
    if (!before || filter) {
      const accepts = filter && compileFilter(filter);
      own.set(name, { matches: compilePattern(name), accepts });
    }
    return before ? { replayed: [] } : this.recover(receiver, name, request);
  }

  /** Returns the position of a topic for a new subscriber, and the publications that are sent again. */
  recover(
    receiver: Receiver,
    name: string,
    request: SubscribeRequest,
  ): { recovery?: Recovery; replayed: Envelope[] } {
    if (isPattern(name) || this.keeps(name) === undefined) return { replayed: [] };
    const topic = this.#topic(name);
    const { epoch, offset } = topic;
    const from = request.recover ? request.position : undefined;
    const first = topic.kept[0]?.offset ?? offset + 1;
    const isKnown = from?.epoch === epoch && from.offset <= offset && from.offset >= first - 1;
    let start = offset;
    if (isKnown) start = from.offset;
    else if (request.replay) start = Math.max(first - 1, offset - request.replay);
    else if (isAmong(this.#settings.lastValue, name)) start = Math.max(first - 1, offset - 1);
    const recovery = { epoch, offset, recovered: isKnown, count: offset - start };
    const accepts = this.#subscriptions.get(receiver)?.get(name)?.accepts;
    const replayed = this.#after(topic, name, start).filter(({ t, p, b }) =>
      t === "publication_gap" || !accepts ? true : accepts(b ? undefined : p),
    );
    return { recovery, replayed };
  }

  /** Makes a subscriber present on a topic with presence, or changes its data, and notifies the others. */
  join(receiver: Receiver, name: string, data: object | undefined): void {
    if (!this.hasPresence(name)) return;
    let present = this.#present.get(name);
    if (!present) this.#present.set(name, (present = new Map()));
    const member = present.get(receiver.member);
    if (!member) {
      present.set(receiver.member, { receivers: new Set([receiver]), data });
      return this.#tell(name, "join", receiver.member, data);
    }
    member.receivers.add(receiver);
    if (!data || JSON.stringify(data) === JSON.stringify(member.data)) return;
    member.data = data;
    this.#tell(name, "update", receiver.member, data);
  }

  unsubscribe(receiver: Receiver, name: string): void {
    if (!this.#subscriptions.get(receiver)?.delete(name)) return;
    const present = this.#present.get(name);
    const member = present?.get(receiver.member);
    if (!member?.receivers.delete(receiver) || member.receivers.size) return;
    present!.delete(receiver.member);
    this.#tell(name, "leave", receiver.member, undefined);
  }

  leave(receiver: Receiver): void {
    const names = this.names(receiver);
    const own = this.#subscriptions.get(receiver);
    this.#subscriptions.delete(receiver);
    for (const name of names) {
      // Those that are left learn of it, and not the one that leaves.
      this.#subscriptions.set(receiver, own!);
      this.unsubscribe(receiver, name);
      this.#subscriptions.delete(receiver);
    }
  }

  members(name: string): Record<string, Member> {
    const all = [...(this.#present.get(name) ?? [])];
    return Object.fromEntries(
      all.map(([user, { receivers, data }]) => [
        user,
        { connections: receivers.size, ...(data && { data }) },
      ]),
    );
  }

  /** A page of a topic's history (PROTOCOL 7.21). */
  page(name: string, since: Position | undefined, limit: number, isNewestFirst: boolean) {
    const topic = this.#topic(name);
    const { epoch, offset } = topic;
    const oldest = topic.kept[0]?.offset ?? offset + 1;
    const common = { topic: name, epoch, offset, oldest };
    if (since && (since.epoch !== epoch || since.offset > offset)) {
      return { ...common, publications: [] as Envelope[], more: false, complete: false };
    }
    const live = this.#live(topic);
    const wanted = isNewestFirst
      ? live.filter((one) => !since || one.offset < since.offset).reverse()
      : live.filter((one) => !since || one.offset > since.offset);
    const publications = wanted.slice(0, Math.min(limit, PAGE_MAX)).map(({ envelope }) => envelope);
    const complete = !since || since.offset >= oldest - (isNewestFirst ? 0 : 1);
    return { ...common, publications, more: wanted.length > publications.length, complete };
  }

  #topic(name: string): Topic {
    let topic = this.#topics.get(name);
    if (!topic) {
      this.#topics.set(name, (topic = { epoch: hex(randomBytes(4)), offset: 0, kept: [], ids: new Map() }));
    }
    return topic;
  }

  #live(topic: Topic): Kept[] {
    return topic.kept.filter(({ expiresMs }) => expiresMs > Date.now());
  }

  /** What follows an offset: publications, and gaps where their time has ended. */
  #after(topic: Topic, name: string, start: number): Envelope[] {
    const found: Envelope[] = [];
    let next = start + 1;
    const gapTo = (offset: number) => {
      if (next >= offset) return;
      const range = { epoch: topic.epoch, from: next, to: offset - 1 };
      const p = { topic: name, reason: "expired", count: offset - next, ...range };
      found.push({ c: "WSE", t: "publication_gap", p });
    };
    for (const { offset, envelope } of this.#live(topic)) {
      if (offset <= start) continue;
      gapTo(offset);
      found.push(envelope);
      next = offset + 1;
    }
    gapTo(topic.offset + 1);
    return found;
  }

  #tell(name: string, change: string, user: string, data: object | undefined): void {
    const p = { topic: name, user_id: user, ...(data && { data }) };
    for (const [receiver, own] of this.#subscriptions) {
      if ([...own.values()].some(({ matches }) => matches(name))) {
        receiver.deliver(name, { c: "WSE", t: `presence_${change}`, p });
      }
    }
  }
}

function isAmong(patterns: readonly string[] | undefined, topic: string): boolean {
  return (patterns ?? []).some((pattern) => compilePattern(pattern)(topic));
}

function isWanted(own: Map<string, Subscription>, topic: string, { p, b }: Envelope): boolean {
  for (const { matches, accepts } of own.values()) {
    if (matches(topic) && (!accepts || accepts(b ? undefined : p))) return true;
  }
  return false;
}

function remember(ids: Topic["ids"], id: string, position: Position | undefined): void {
  ids.set(id, position);
  if (ids.size <= IDS_MAX) return;
  for (const oldest of ids.keys()) {
    ids.delete(oldest);
    break;
  }
}
