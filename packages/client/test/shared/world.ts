/**
 * Tabs without a browser: locks and channels of one origin, in one process, and tabs that may crash
 * or freeze.
 */

import { type Client, type ClientOptions, connect, type Transport } from "../../src/index.js";
import { nodeTransport } from "../../src/node.js";
import type { Channel, Realm } from "../../src/shared/realm.js";
import { type SharedOptions, sharedIn } from "../../src/shared.js";

interface Lock {
  tab: Tab;
  callback: () => unknown;
  resolve(value: unknown): void;
  reject(error: unknown): void;
  isHeld: boolean;
}

/** The tabs of one origin. */
export class World {
  readonly tabs = new Set<Tab>();
  readonly #locks = new Map<string, Lock[]>();
  readonly channels = new Map<string, Set<FakeChannel>>();

  tab(isVisible = true, realm: Partial<Realm> = {}): Tab {
    const tab = new Tab(this, isVisible, realm);
    this.tabs.add(tab);
    return tab;
  }

  /** Names of locks that somebody holds or waits for. */
  get lockNames(): string[] {
    return [...this.#locks.keys()];
  }

  /** Locks that are held or waited for. */
  get requests(): number {
    return [...this.#locks.values()].reduce((sum, { length }) => sum + length, 0);
  }

  request(tab: Tab, name: string, options: LockOptions, callback: () => unknown): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const { signal, steal } = options;
      const aborted = () => new DOMException("aborted", "AbortError");
      if (signal?.aborted) return reject(aborted());
      let queue = this.#locks.get(name);
      if (!queue) this.#locks.set(name, (queue = []));
      const lock: Lock = { tab, callback, resolve, reject, isHeld: false };
      if (steal) {
        for (const held of queue.filter(({ isHeld }) => isHeld)) {
          queue.splice(queue.indexOf(held), 1);
          // A page that stands still learns of it when it goes on.
          held.tab.later(() => held.reject(aborted()));
        }
        queue.unshift(lock);
      } else queue.push(lock);
      signal?.addEventListener("abort", () => {
        if (lock.isHeld) return;
        this.#remove(name, lock);
        reject(aborted());
      });
      this.#grant(name);
    });
  }

  #remove(name: string, lock: Lock): void {
    const queue = this.#locks.get(name);
    const at = queue?.indexOf(lock) ?? -1;
    if (at < 0) return;
    queue!.splice(at, 1);
    if (queue!.length === 0) this.#locks.delete(name);
    else this.#grant(name);
  }

  #grant(name: string): void {
    const [first] = this.#locks.get(name) ?? [];
    if (!first || first.isHeld) return;
    first.isHeld = true;
    // A frozen tab is given the lock, and does not know it.
    first.tab.later(async () => {
      try {
        first.resolve(await first.callback());
      } catch (error) {
        first.reject(error);
      }
      this.#remove(name, first);
    });
  }

  /** The tab's locks are free, and what it waited for is forgotten. */
  forget(tab: Tab): void {
    for (const [name, queue] of [...this.#locks]) {
      for (const lock of queue.filter((one) => one.tab === tab)) this.#remove(name, lock);
    }
    for (const set of this.channels.values()) {
      for (const channel of set) if (channel.tab === tab) set.delete(channel);
    }
  }
}

export class Tab {
  readonly world: World;
  readonly realm: Realm;
  readonly clients: Client[] = [];
  isFrozen = false;
  isDead = false;
  /** Real connections of this tab that are open. */
  readonly sockets = new Set<{ terminate(): void }>();
  #isVisible: boolean;
  readonly #watchers = new Set<() => void>();
  #waiting: (() => void)[] = [];

  constructor(world: World, isVisible: boolean, realm: Partial<Realm>) {
    this.world = world;
    this.#isVisible = isVisible;
    const locks = {
      request: (name: string, first: unknown, second?: unknown) => {
        const [options, callback] = second ? [first, second] : [{}, first];
        return world.request(this, name, options as LockOptions, callback as () => unknown);
      },
    };
    this.realm = {
      locks: locks as unknown as Realm["locks"],
      channel: (name) => new FakeChannel(this, name),
      isVisible: () => this.#isVisible,
      onVisibility: (listener) => {
        this.#watchers.add(listener);
        return () => this.#watchers.delete(listener);
      },
      hiddenMsMax: 60_000,
      joinMsMax: 20_000,
      silentMsMax: 20_000,
      groups: new Map(),
      ...realm,
    };
  }

  /** A client of this tab, with the shared connection. */
  connect(url: string, options: ClientOptions & SharedOptions = {}): Client {
    const { key, transport = nodeTransport(), ...rest } = options;
    const client = connect(url, {
      reconnect: { baseMs: 20, maxMs: 100 },
      ...rest,
      transport: this.#watched(transport),
      shared: sharedIn(this.realm, key === undefined ? {} : { key }),
    });
    this.clients.push(client);
    return client;
  }

  show(isVisible: boolean): void {
    this.#isVisible = isVisible;
    for (const watcher of [...this.#watchers]) watcher();
  }

  /**
   * The tab is gone at once: nothing of it runs any more, its locks are free, its connections are
   * lost.
   */
  crash(): void {
    this.isDead = true;
    this.world.tabs.delete(this);
    this.world.forget(this);
    for (const socket of this.sockets) socket.terminate();
    for (const client of this.clients) void client.close();
  }

  freeze(): void {
    this.isFrozen = true;
  }

  thaw(): void {
    this.isFrozen = false;
    for (const step of this.#waiting.splice(0)) this.later(step);
  }

  /** Runs a step as a task of this tab. */
  later(step: () => void): void {
    setImmediate(() => {
      if (this.isDead) return;
      if (this.isFrozen) this.#waiting.push(step);
      else step();
    });
  }

  #watched(transport: Transport): Transport {
    return {
      ...transport,
      canSendHeaders: transport.canSendHeaders,
      canSendAnyCode: transport.canSendAnyCode,
      prefersBatches: transport.prefersBatches,
      open: (options, handler) => {
        const socket = transport.open(options, {
          ...handler,
          onOpen: () => handler.onOpen(),
          onMessages: (frames) => {
            if (this.isFrozen) this.#waiting.push(() => handler.onMessages(frames));
            else if (!this.isDead) handler.onMessages(frames);
          },
          onDrain: () => handler.onDrain(),
          onClose: (info) => {
            this.sockets.delete(socket);
            if (!this.isDead) handler.onClose(info);
          },
        });
        this.sockets.add(socket);
        return socket;
      },
    };
  }
}

class FakeChannel implements Channel {
  readonly tab: Tab;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  readonly #set: Set<FakeChannel>;

  constructor(tab: Tab, name: string) {
    this.tab = tab;
    const { channels } = tab.world;
    const set = channels.get(name) ?? new Set();
    channels.set(name, set);
    this.#set = set;
    if (!tab.isDead) set.add(this);
  }

  postMessage(message: unknown): void {
    if (this.tab.isDead) return;
    for (const other of this.#set) {
      if (other === this) continue;
      const data: unknown = structuredClone(message);
      other.tab.later(() => other.onmessage?.({ data }));
    }
  }

  close(): void {
    this.#set.delete(this);
  }
}

/** Waits until a condition holds. */
export async function until(condition: () => boolean, what: string): Promise<void> {
  const deadline = performance.now() + 30_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
