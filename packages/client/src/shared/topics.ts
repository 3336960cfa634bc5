/**
 * Topics of the shared connection: each is subscribed once, for all tabs that want it (PROTOCOL
 * 7.5, 19.4).
 */

import { isObject } from "../core/envelope.js";
import type { Envelope } from "../core/layers.js";
import { compilePattern, isPattern } from "../core/topics.js";
import type { Message, Position } from "../message.js";
import type { Frame } from "../transport.js";
import type { Tab } from "./tab.js";

/** What the topics need of the hub. */
export interface TopicsHost {
  /** Whether the server has `history_request`. */
  readonly hasHistory: boolean;
  /** Makes a request and gives its answer to `done`, before anything that follows the answer. */
  ask(t: string, payload: object, done: (answer: Envelope, isError: boolean) => void): void;
  encode(value: Frame | Message | Envelope): Frame;
  /** The tab needs a connection of its own. */
  alone(tab: Tab, reason: string): void;
}

interface Kept {
  offset: number;
  bytes: number;
  value: Frame | Message | Envelope;
}

interface Entry {
  readonly name: string;
  readonly matches: ((topic: string) => boolean) | undefined;
  filter: string;
  overload: unknown;
  isActive: boolean;
  /**
   * Tabs that want the topic; the value is where one begins, `undefined` until it has its answer.
   */
  readonly tabs: Map<Tab, Position | undefined>;
  /** Tabs that joined while the server was asked. */
  waiting: ((isGiven: boolean) => void)[];
  /** The newest position. Publications up to it are sent again for those that missed them. */
  position: Position | undefined;
  /** The newest publications: all after `start`. */
  kept: Kept[];
  keptBytes: number;
  start: number;
  /** A new subscriber gets the newest publication. */
  givesLast: boolean;
}

/** A request of a tab that is being answered. */
interface Joining {
  readonly tab: Tab;
  readonly p: Envelope;
  readonly cid: unknown;
  left: number;
  readonly given: string[];
  readonly failed: string[];
  /** The reasons, in the form of the server's answer. */
  readonly failures: unknown[];
  readonly recovery: Record<string, object>;
  readonly replay: Frame[];
  error: Envelope | undefined;
  /** Requests of histories. */
  pages: number;
}

/** Publications that are kept of one topic, and bytes of one and of all. */
const KEPT_MAX = 256;
const KEPT_BYTES_MAX = 256 * 1024;
const ALL_BYTES_MAX = 8 * 1024 * 1024;
/**
 * Publications in one request of a history, and requests for what one tab missed. One answer has at
 * most 512 KiB.
 */
const PAGE_MAX = 1_000;
const PAGES_MAX = 20;
const ROUTES_MAX = 20_000;
/** Where a tab begins on a topic without history. */
const NOWHERE: Position = { epoch: "", offset: 0 };

export class Topics {
  readonly #host: TopicsHost;
  readonly #entries = new Map<string, Entry>();
  readonly #routes = new Map<string, Entry[]>();
  #keptBytes = 0;

  constructor(host: TopicsHost) {
    this.#host = host;
  }

  /** Handles a tab's `subscription_update`. */
  request(tab: Tab, p: Envelope, cid: unknown): void {
    const topics = p.topics as string[];
    if (p.action === "unsubscribe") {
      this.#leave(tab, topics);
      const answer = { action: p.action, success_topics: topics, failed_topics: [], recovery: {} };
      return tab.send(this.#host.encode({ c: "WSE", t: "subscription_update", cid, p: answer }));
    }
    if (p.queue_group) return this.#host.alone(tab, "a member of a queue group has a connection of its own");
    const filter = JSON.stringify(p.filter ?? null);
    const joining: Joining = {
      tab,
      p,
      cid,
      left: topics.length,
      given: [],
      failed: [],
      failures: [],
      recovery: {},
      replay: [],
      error: undefined,
      pages: 0,
    };
    const isOwn = (entry: Entry | undefined) => entry?.tabs.size === 1 && entry.tabs.has(tab);
    const entries = topics.map((name) => this.#entries.get(name));
    const other = entries.find((entry) => entry && entry.filter !== filter && !isOwn(entry));
    if (other) {
      return this.#host.alone(tab, `another tab has subscribed ${other.name} with another filter`);
    }
    const fresh: Entry[] = [];
    const known: Entry[] = [];
    for (const name of topics) {
      const entry = this.#entries.get(name);
      const isChanged = entry?.filter !== filter || entry.overload !== p.overload;
      if (!entry) fresh.push(this.#add(name, filter, p.overload));
      else if (isChanged && entry.isActive && isOwn(entry)) {
        [entry.filter, entry.overload, entry.isActive] = [filter, p.overload, false];
        fresh.push(entry);
      } else known.push(entry);
    }
    for (const entry of [...fresh, ...known]) {
      if (!entry.tabs.has(tab)) entry.tabs.set(tab, undefined);
    }
    if (fresh.length) this.#subscribe(joining, fresh);
    // What others learn of the user can change by another request; nothing else does.
    if (p.presence && known.length) {
      const names = known.map(({ name }) => name);
      this.#host.ask(
        "subscription_update",
        { action: "subscribe", topics: names, presence: p.presence },
        () => {},
      );
    }
    for (const entry of known) {
      if (entry.isActive) this.#join(joining, entry);
      else
        entry.waiting.push((isGiven) => (isGiven ? this.#join(joining, entry) : this.#fail(joining, entry)));
    }
  }

  #add(name: string, filter: string, overload: unknown): Entry {
    const entry: Entry = {
      name,
      matches: isPattern(name) ? compilePattern(name) : undefined,
      filter,
      overload,
      isActive: false,
      tabs: new Map(),
      waiting: [],
      position: undefined,
      kept: [],
      keptBytes: 0,
      start: 0,
      givesLast: false,
    };
    this.#entries.set(name, entry);
    this.#routes.clear();
    return entry;
  }

  /** Asks the server for topics that no other tab has. */
  #subscribe(joining: Joining, fresh: Entry[]): void {
    const { p } = joining;
    const asked = isObject(p.recovery) ? p.recovery : {};
    const topics = fresh.map(({ name }) => name);
    const recovery = Object.fromEntries(
      topics.filter((name) => asked[name]).map((name) => [name, asked[name]]),
    );
    const payload = { ...p, topics, ...(p.recovery ? { recovery } : {}) };
    this.#host.ask("subscription_update", payload, (answer, isError) => {
      const given = new Set(!isError && Array.isArray(answer.success_topics) ? answer.success_topics : []);
      const found = isObject(answer.recovery) ? answer.recovery : {};
      if (isError) joining.error = answer;
      else if (Array.isArray(answer.failures)) joining.failures.push(...answer.failures);
      for (const entry of fresh) {
        const isGiven = given.has(entry.name);
        const isWanted = this.#entries.get(entry.name) === entry;
        if (isWanted && isGiven) this.#given(joining, entry, found[entry.name]);
        else {
          if (isWanted) this.#forget(entry);
          this.#fail(joining, entry);
        }
        for (const next of entry.waiting.splice(0)) next(isGiven && isWanted);
      }
    });
  }

  /** The server gives a topic: what it sends again is for the tab that asked. */
  #given(joining: Joining, entry: Entry, found: unknown): void {
    const { tab, p } = joining;
    entry.isActive = true;
    let begin = entry.tabs.get(tab) ?? NOWHERE;
    if (isObject(found) && typeof found.epoch === "string" && typeof found.offset === "number") {
      const count = typeof found.count === "number" ? found.count : 0;
      const position = { epoch: found.epoch, offset: found.offset };
      entry.position = position;
      const missed = wanted(p, entry.name);
      entry.start = found.recovered && missed ? missed.offset : Math.max(position.offset - count, 0);
      entry.givesLast = count === 1 && !found.recovered && !p.replay;
      begin = { epoch: position.epoch, offset: entry.start };
      joining.recovery[entry.name] = found;
    }
    this.#begin(joining, entry, begin);
    this.#done(joining);
  }

  /** From here on the tab gets the topic's publications, once its request is answered. */
  #begin(joining: Joining, entry: Entry, begin: Position): void {
    const { tab } = joining;
    if (joining.given.length === 0) tab.hold();
    joining.given.push(entry.name);
    if (entry.tabs.has(tab)) entry.tabs.set(tab, begin);
  }

  #fail(joining: Joining, { name, tabs }: Entry): void {
    tabs.delete(joining.tab);
    joining.failed.push(name);
    this.#done(joining);
  }

  /** A tab joins a topic that another one has. */
  #join(joining: Joining, entry: Entry): void {
    const { tab, p } = joining;
    const { position, name } = entry;
    if (tab.isOver) return;
    const isNew = entry.tabs.get(tab) === undefined;
    if (!isNew || !position) {
      this.#begin(joining, entry, entry.tabs.get(tab) ?? NOWHERE);
      return this.#done(joining);
    }
    const missed = wanted(p, name);
    const replay = typeof p.replay === "number" && this.#host.hasHistory ? p.replay : 0;
    const isSame = missed?.epoch === position.epoch;
    const needsHistory = isSame ? missed.offset < entry.start : replay > 0 && position.offset > 0;
    if (needsHistory && (entry.filter !== "null" || !this.#host.hasHistory)) {
      return this.#host.alone(tab, `only the server knows what this tab missed of ${name}`);
    }
    if (isSame && !needsHistory) {
      this.#begin(joining, entry, missed);
      for (const { offset, value } of entry.kept) {
        if (offset > missed.offset) joining.replay.push(this.#host.encode(value));
      }
      const offset = Math.max(position.offset, missed.offset);
      joining.recovery[name] = { ...position, offset, recovered: true, count: offset - missed.offset };
      return this.#done(joining);
    }
    this.#begin(joining, entry, position);
    if (needsHistory) return this.#fetch(joining, entry, position, isSame ? missed : undefined, replay);
    const last = entry.givesLast ? entry.kept.at(-1) : undefined;
    if (last) joining.replay.push(this.#host.encode(last.value));
    joining.recovery[name] = { ...position, recovered: false, count: last ? 1 : 0 };
    this.#done(joining);
  }

  /** Reads what a tab missed, or the newest publications, from the server's history. */
  #fetch(joining: Joining, entry: Entry, now: Position, missed: Position | undefined, replay: number): void {
    const { name } = entry;
    const found: Envelope[] = [];
    const finish = (isWhole: boolean) => {
      if (!isWhole && missed && replay && !joining.error)
        return this.#fetch(joining, entry, now, undefined, replay);
      let from = missed?.offset ?? now.offset;
      if (isWhole && !missed) {
        found.reverse();
        from = found.length ? (found[0]!.o as number) - 1 : now.offset;
      }
      const count = isWhole ? now.offset - from : 0;
      joining.recovery[name] = { ...now, recovered: isWhole && missed !== undefined, count };
      if (isWhole) joining.replay.push(...this.#withGaps(name, now, from, found));
      else if (!missed) joining.replay.push(this.#gap({ topic: name, reason: "dropped", count: 0 }));
      this.#done(joining);
    };
    const page = (since: Position | undefined) => {
      const limit = missed ? PAGE_MAX : Math.min(replay - found.length, PAGE_MAX);
      const request = {
        topic: name,
        ...(since && { since }),
        limit,
        order: missed ? "oldest" : "newest",
      };
      if (++joining.pages > PAGES_MAX)
        return this.#host.alone(joining.tab, `this tab missed too much of ${name}`);
      this.#host.ask("history_request", request, (answer, isError) => {
        if (isError && answer.code === "RATE_LIMITED") joining.error = answer;
        if (isError || answer.epoch !== now.epoch || answer.complete === false) return finish(false);
        const list = Array.isArray(answer.publications) ? answer.publications.filter(isObject) : [];
        for (const one of list) if ((one.o as number) <= now.offset) found.push({ tp: name, ...one });
        const last = list.at(-1);
        const isEnough = missed ? (last?.o as number) >= now.offset : found.length >= replay;
        if (!answer.more || !last || isEnough) return finish(true);
        page({ epoch: now.epoch, offset: last.o as number });
      });
    };
    page(missed);
  }

  #gap(p: object): Frame {
    return this.#host.encode({ c: "WSE", t: "publication_gap", p });
  }

  /** Publications as frames; a gap reports those that the history has lost to their age. */
  #withGaps(topic: string, { epoch, offset }: Position, from: number, found: Envelope[]): Frame[] {
    const frames: Frame[] = [];
    const gap = (first: number, next: number) => {
      if (first >= next) return;
      const range = { epoch, from: first, to: next - 1 };
      frames.push(this.#gap({ topic, reason: "expired", count: next - first, ...range }));
    };
    let next = from + 1;
    for (const one of found) {
      gap(next, one.o as number);
      frames.push(this.#host.encode(one));
      next = (one.o as number) + 1;
    }
    gap(next, offset + 1);
    return frames;
  }

  /** One topic less of a request; the last one answers it. */
  #done(joining: Joining): void {
    if (--joining.left > 0) return;
    const { tab, cid, given, failed, failures, recovery, replay, error, p } = joining;
    if (error) {
      this.#leave(tab, given);
      tab.send(this.#host.encode({ c: "WSE", t: "error", cid, p: error }));
    } else {
      const reasons = failures.length ? { failures } : {};
      const answer = { action: p.action, success_topics: given, failed_topics: failed, ...reasons, recovery };
      tab.answer([this.#host.encode({ c: "WSE", t: "subscription_update", cid, p: answer }), ...replay]);
    }
    if (given.length) tab.release();
  }

  /** Handles a publication. Returns the tabs that get it. */
  publication(name: string, position: Position | undefined, value: Kept["value"], bytes: number): Set<Tab> {
    const own = this.#entries.get(name);
    let isOld = false;
    if (own?.position && position) {
      const isSame = own.position.epoch === position.epoch;
      isOld = isSame && position.offset <= own.position.offset;
      if (!isSame) this.#clear(own, position.offset - 1);
      if (!isOld) own.position = position;
      this.#keep(own, position.offset, value, bytes);
    }
    const tabs = new Set<Tab>();
    for (const entry of this.#route(name)) {
      if (isOld && entry !== own) continue;
      for (const [tab, begin] of entry.tabs) {
        if (begin && !(begin.epoch === position?.epoch && position.offset <= begin.offset)) tabs.add(tab);
      }
    }
    return tabs;
  }

  /** Handles a gap. Returns the tabs that get it. */
  gap(p: Envelope, value: Envelope): Set<Tab> {
    const own = this.#entries.get(String(p.topic));
    if (own?.position && typeof p.to === "number") this.#keep(own, p.to, value, 200);
    return this.subscribers(String(p.topic));
  }

  /** The tabs that have a topic, or a pattern that matches it. */
  subscribers(name: string): Set<Tab> {
    const tabs = new Set<Tab>();
    for (const entry of this.#route(name)) {
      for (const [tab, begin] of entry.tabs) if (begin) tabs.add(tab);
    }
    return tabs;
  }

  /** The names that a tab has. */
  namesOf(tab: Tab): string[] {
    return [...this.#entries.values()].filter(({ tabs }) => tabs.has(tab)).map(({ name }) => name);
  }

  /** The server has ended the subscriptions of these topics. */
  taken(names: readonly unknown[]): void {
    for (const name of names) {
      const entry = this.#entries.get(name as string);
      if (entry?.isActive) this.#forget(entry);
    }
  }

  /** The tab is gone. */
  drop(tab: Tab): void {
    this.#leave(tab, this.namesOf(tab));
  }

  /** Ends subscriptions of a tab; those that no other tab has end at the server. */
  #leave(tab: Tab, names: readonly string[]): void {
    const topics: string[] = [];
    for (const name of names) {
      const entry = this.#entries.get(name);
      if (!entry?.tabs.delete(tab) || entry.tabs.size) continue;
      this.#forget(entry);
      topics.push(name);
    }
    while (topics.length) {
      const some = topics.splice(0, PAGE_MAX);
      this.#host.ask("subscription_update", { action: "unsubscribe", topics: some }, () => {});
    }
  }

  #forget(entry: Entry): void {
    this.#clear(entry, 0);
    this.#entries.delete(entry.name);
    this.#routes.clear();
  }

  #route(name: string): Entry[] {
    let route = this.#routes.get(name);
    if (route) return route;
    route = [];
    for (const entry of this.#entries.values()) {
      if (entry.name === name || entry.matches?.(name)) route.push(entry);
    }
    if (this.#routes.size >= ROUTES_MAX) this.#routes.clear();
    this.#routes.set(name, route);
    return route;
  }

  #keep(entry: Entry, offset: number, value: Kept["value"], bytes: number): void {
    entry.kept.push({ offset, bytes, value });
    entry.keptBytes += bytes;
    this.#keptBytes += bytes;
    if (this.#keptBytes > ALL_BYTES_MAX) return this.#clear(entry, offset);
    while (entry.kept.length > KEPT_MAX || entry.keptBytes > KEPT_BYTES_MAX) {
      const gone = entry.kept.shift()!;
      entry.start = gone.offset;
      entry.keptBytes -= gone.bytes;
      this.#keptBytes -= gone.bytes;
    }
  }

  #clear(entry: Entry, start: number): void {
    this.#keptBytes -= entry.keptBytes;
    entry.keptBytes = 0;
    entry.kept = [];
    entry.start = start;
  }
}

/** The position from which a tab wants what it missed. */
function wanted(p: Envelope, name: string): Position | undefined {
  const position = p.recover === true && isObject(p.recovery) ? p.recovery[name] : undefined;
  return isObject(position) ? (position as unknown as Position) : undefined;
}
