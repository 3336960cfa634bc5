/** The tabs that share a connection: which of them leads, and this tab's membership. */

import { Hub } from "./hub.js";
import type { Pipe } from "./pipe.js";
import type { Channel, Realm } from "./realm.js";

/** A message from one tab to the whole group. */
interface Announcement {
  /** A tab wants this pipe of its own to be attached. */
  pipe?: string;
  visible?: boolean;
  /** A hub has begun. */
  hub?: string;
  producer?: string | undefined;
}

/** A tab's membership. It lasts for as long as the tab has a pipe. */
export class Group {
  readonly name: string;
  readonly realm: Realm;
  readonly #pipes = new Set<Pipe>();
  #channel: Channel | undefined;
  #hub: Hub | undefined;
  /** Pipes of other tabs that were attached to the hub. */
  #attached = new Set<string>();
  /** The producer of the tab that owns the queue, as far as it is known; empty for none. */
  #producer = "";
  /** Ends the membership: requests for locks, and the watch over other tabs' locks. */
  #off = new AbortController();
  /** This tab waits for the lead, or has it. */
  #isCandidate = false;
  /** Gives the lead back. */
  #release: (() => void) | undefined;
  #hiddenMs = Infinity;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #unwatch: (() => void) | undefined;

  constructor(name: string, realm: Realm) {
    this.name = name;
    this.realm = realm;
  }

  add(pipe: Pipe): void {
    this.#pipes.add(pipe);
    this.learn(pipe.producer);
    if (!this.#channel) this.#join();
    this.#request(false);
    if (this.#hub) pipe.attach(this.#hub);
    else pipe.offer();
  }

  /** Removes a pipe. The last one ends the membership, and the hub, if this tab leads. */
  remove(pipe: Pipe, code: number, reason: string): void {
    if (!this.#pipes.delete(pipe) || this.#pipes.size) return;
    this.#off.abort();
    this.#hub?.end(code, reason);
    this.#unwatch?.();
    this.#channel?.close();
    this.#channel = undefined;
  }

  announce(message: Announcement): void {
    this.#channel?.postMessage(message);
  }

  learn(producer: string | undefined): void {
    this.#producer = producer ?? this.#producer;
  }

  /** Steals the lead from a tab that does not answer. */
  steal(): void {
    if (!this.#hub) this.#request(true);
  }

  #join(): void {
    this.#off = new AbortController();
    this.#isCandidate = false;
    this.#channel = this.realm.channel(this.name);
    this.#channel.onmessage = ({ data }) => this.#heard(data as Announcement);
    this.#unwatch = this.realm.onVisibility(() => this.#seen());
    this.#hiddenMs = this.realm.isVisible() ? Infinity : performance.now();
  }

  #heard({ pipe, visible, hub, producer }: Announcement): void {
    this.learn(producer);
    if (pipe !== undefined) this.#attach(pipe, visible === true);
    else if (hub !== undefined) for (const one of [...this.#pipes]) one.led(hub);
  }

  /**
   * Attaches the pipe of another tab. Drops it when that tab's lock is free, because the tab is then gone.
   */
  #attach(id: string, isVisible: boolean): void {
    const hub = this.#hub;
    if (!hub || this.#attached.has(id)) return;
    this.#attached.add(id);
    const name = `${this.name}/${id}`;
    const tab = hub.attach(this.realm.channel(name), false, isVisible);
    const gone = () => hub.drop(tab, { code: 1006, reason: "" });
    void this.realm.locks.request(name, { signal: this.#off.signal }, gone).catch(() => undefined);
    this.#considerHandOver();
  }

  // The lead

  #request(steal: boolean): void {
    const off = this.#off;
    let isLost = false;
    let hub: Hub | undefined;
    if (!steal && this.#isCandidate) return;
    this.#isCandidate ||= !steal;
    const lead = () => {
      if (isLost) return undefined;
      // Whom these pipes led to is gone, or this tab would not lead.
      for (const pipe of [...this.#pipes]) if (pipe.isOpen) pipe.lost();
      if (off.signal.aborted || this.#hub) return undefined;
      return new Promise<void>((resolve) => {
        this.#release = resolve;
        this.#lead();
        hub = this.#hub;
      });
    };
    void this.realm.locks
      .request(this.name, steal ? { steal } : { signal: off.signal }, lead)
      .catch((error: unknown) => {
        isLost = true;
        // Another tab has acquired the lead, because this one did not answer.
        if (hub) return hub.end(1000, "another tab takes the lead");
        if (off.signal.aborted || (error as Error).name === "AbortError") return;
        for (const pipe of [...this.#pipes]) pipe.refuse(String(error));
      })
      .then(() => {
        if (steal || off.signal.aborted) return;
        this.#isCandidate = false;
        this.#request(false);
      });
  }

  #lead(): void {
    const [first] = this.#pipes;
    if (!first) return this.#stepDown();
    const hub = new Hub(first.options, this.#producer, {
      over: () => {
        this.#producer = hub.producer;
        if (this.#hub === hub) this.#stepDown();
      },
      shown: () => this.#considerHandOver(),
    });
    this.#hub = hub;
    this.#attached = new Set();
    this.announce({ hub: hub.id, producer: this.#producer || undefined });
    for (const pipe of this.#pipes) pipe.attach(hub);
    this.#seen();
  }

  /** Another tab may lead. */
  #stepDown(): void {
    this.#hub = undefined;
    clearTimeout(this.#timer);
    this.#release?.();
    this.#release = undefined;
  }

  // Visible tabs lead, if there are any

  #seen(): void {
    const isVisible = this.realm.isVisible();
    this.#hiddenMs = isVisible ? Infinity : Math.min(this.#hiddenMs, performance.now());
    for (const pipe of this.#pipes) pipe.tellVisible(isVisible);
    this.#considerHandOver();
  }

  /** A tab that has been hidden for long gives the connection to one that is visible. */
  #considerHandOver(): void {
    clearTimeout(this.#timer);
    const hub = this.#hub;
    if (!hub || this.#hiddenMs === Infinity) return;
    const leftMs = this.#hiddenMs + this.realm.hiddenMsMax - performance.now();
    if (leftMs > 0) this.#timer = setTimeout(() => this.#considerHandOver(), leftMs);
    else if ([...hub.tabs].some((tab) => tab.isVisible)) hub.end(1000, "a visible tab takes the lead");
  }
}
