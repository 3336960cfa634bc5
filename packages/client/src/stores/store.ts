/**
 * Stores: what a component shows, outside of every framework. A store works while somebody listens to it. Its snapshot changes at turns
 * only, so that a burst of messages is one render, and a render that is interrupted still sees one state.
 */

import type { Client } from "../client.js";
import { schedule, unschedule } from "./frames.js";
import type { ClientSlot } from "./slot.js";

export abstract class Store<Snapshot> {
  protected readonly slot: ClientSlot;
  readonly #initial: Snapshot;
  readonly #listeners = new Set<() => void>();
  #snapshot: Snapshot;
  /** The client that the store works with, and how that ends. */
  #client: Client | undefined;
  #stop: (() => void) | undefined;
  /** Ends the watch of the slot, while the store is at work. */
  #unwatch: (() => void) | undefined;
  #linger: ReturnType<typeof setTimeout> | undefined;

  /** `initial` is shown until the store has begun, on a server too; `current` is what a page may show at once. */
  constructor(slot: ClientSlot, initial: Snapshot, current = initial) {
    this.slot = slot;
    this.#initial = initial;
    this.#snapshot = current;
  }

  /** Starts the work with a client, from nothing. The result ends it and leaves no listener, timer or request. */
  protected abstract start(client: Client): () => void;

  /** The value to be shown now. */
  protected abstract build(): Snapshot;

  /** Something has changed: the snapshot is built at the next turn. */
  protected changed(): void {
    schedule(this.slot.updates, this.#flush);
  }

  readonly get = (): Snapshot => this.#snapshot;

  /** The value that a server renders, and the first render in the page. */
  readonly getServer = (): Snapshot => this.#initial;

  readonly subscribe = (listener: () => void): (() => void) => {
    const own = () => listener();
    this.#listeners.add(own);
    this.slot.lingering.delete(this.#end);
    clearTimeout(this.#linger);
    this.#begin();
    return () => {
      this.#listeners.delete(own);
      if (this.#listeners.size) return;
      // StrictMode, fast refresh and a component that moves remove the listener and add it again at once.
      clearTimeout(this.#linger);
      this.#linger = setTimeout(this.#end);
      this.slot.lingering.add(this.#end);
    };
  };

  #begin(): void {
    if (this.#unwatch) return;
    this.#unwatch = this.slot.subscribe(() => this.#follow());
    this.slot.open();
    this.#follow();
  }

  /** Moves to the client of the slot, which may be another after the page was hidden. */
  #follow(): void {
    const { client } = this.slot;
    if (client === this.#client) return;
    this.#stop?.();
    this.#client = client;
    this.#stop = client && this.start(client);
  }

  readonly #end = (): void => {
    this.slot.lingering.delete(this.#end);
    clearTimeout(this.#linger);
    this.#unwatch?.();
    this.#stop?.();
    this.#unwatch = this.#stop = this.#client = undefined;
    unschedule(this.slot.updates, this.#flush);
    this.#snapshot = this.#initial;
  };

  /** Ends the stores that linger, which may hold what this one needs. Whether there were any. */
  protected endLingering(): boolean {
    const { lingering } = this.slot;
    const hadAny = lingering.size > 0;
    for (const end of [...lingering]) end();
    return hadAny;
  }

  readonly #flush = (): void => {
    const next = this.build();
    if (isSame(next, this.#snapshot)) return;
    this.#snapshot = next;
    for (const listener of [...this.#listeners]) listener();
  };
}

/** Whether two snapshots show the same: equal values or, of plain objects, equal fields. */
function isSame(left: unknown, right: unknown): boolean {
  if (Object.is(left, right)) return true;
  if (!isPlain(left) || !isPlain(right)) return false;
  const names = Object.keys(left);
  return (
    names.length === Object.keys(right).length && names.every((name) => Object.is(left[name], right[name]))
  );
}

function isPlain(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}
