/** Slots: where a binding finds the client of its provider, which may not be open yet. */

import type { Client } from "../client.js";
import { connect } from "../connect.js";
import type { ClientOptions, Target } from "../options.js";
import type { Updates } from "./frames.js";

/** How long a client stays open whose provider is not mounted. */
const UNMOUNTED_MS = 1_000;

/** Stores that components share, by what they show. Those that nobody holds are left to the garbage collector. */
export class SharedStores {
  readonly #stores = new Map<string, WeakRef<object>>();
  #sweepAt = 64;

  /** The store of a key, which is made if there is none. */
  get<S extends object>(key: string, make: () => S): S {
    const found = this.#stores.get(key)?.deref() as S | undefined;
    if (found) return found;
    if (this.#stores.size >= this.#sweepAt) this.#sweep();
    const made = make();
    this.#stores.set(key, new WeakRef(made));
    return made;
  }

  #sweep(): void {
    for (const [key, ref] of this.#stores) if (!ref.deref()) this.#stores.delete(key);
    this.#sweepAt = 64 + 2 * this.#stores.size;
  }
}

/** The place of a client. It stays the same for as long as the provider's client does. */
export interface ClientSlot {
  readonly client: Client | undefined;
  readonly updates: Updates;
  readonly shared: SharedStores;
  /** Ends of stores to which nobody listens any more, and which wait for a listener to be back. */
  readonly lingering: Set<() => void>;
  /** Opens the client, if it is the slot's to open. To be called in effects and handlers, never while rendering. */
  open(): void;
  /** Calls `listener` when there is another client, or none. */
  subscribe(listener: () => void): () => void;
  /** The provider is there. The result is to be called when it is gone. */
  mount(): () => void;
}

/** A client that the application has made and closes. */
export interface GivenClient {
  client: Client;
  url?: undefined;
  options?: undefined;
}

/** A client that the provider opens when it is mounted, and closes when it is unmounted. */
export interface OwnedClient {
  /** Where to connect. */
  url: Target;
  /** The options of the client, read when it is opened. */
  options?: ClientOptions;
  client?: undefined;
}

/** The slot of what a provider was given. */
export function slotFor(
  { client, url, options }: GivenClient | OwnedClient,
  updates: Updates = "frame",
): ClientSlot {
  return client ? new GivenSlot(client, updates) : new OwnedSlot(url, options ?? {}, updates);
}

/** The slot of a client that the application owns. */
export class GivenSlot implements ClientSlot {
  readonly client: Client;
  readonly updates: Updates;
  readonly shared = new SharedStores();
  readonly lingering = new Set<() => void>();

  constructor(client: Client, updates: Updates) {
    this.client = client;
    this.updates = updates;
  }

  open(): void {}

  readonly subscribe = (): (() => void) => {
    return () => {};
  };

  mount(): () => void {
    return () => {};
  }
}

/** The slot of a client that the provider opens and closes. */
export class OwnedSlot implements ClientSlot {
  readonly updates: Updates;
  readonly shared = new SharedStores();
  readonly lingering = new Set<() => void>();
  readonly #target: Target;
  readonly #options: ClientOptions;
  readonly #listeners = new Set<() => void>();
  #client: Client | undefined;
  #isMounted = false;
  #linger: ReturnType<typeof setTimeout> | undefined;

  constructor(target: Target, options: ClientOptions, updates: Updates) {
    this.#target = target;
    this.#options = options;
    this.updates = updates;
  }

  get client(): Client | undefined {
    return this.#client;
  }

  open(): void {
    if (this.#client) return;
    this.#client = connect(this.#target, this.#options);
    // Effects of components run before that of their provider; after its end nobody else closes the client.
    if (!this.#isMounted) this.#closeIn(UNMOUNTED_MS);
    this.#tell();
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    const own = () => listener();
    this.#listeners.add(own);
    return () => this.#listeners.delete(own);
  };

  /** The result closes the client one macrotask later, unless the provider is there again. */
  mount(): () => void {
    this.#isMounted = true;
    clearTimeout(this.#linger);
    this.open();
    return () => {
      this.#isMounted = false;
      this.#closeIn(0);
    };
  }

  #closeIn(delayMs: number): void {
    clearTimeout(this.#linger);
    this.#linger = setTimeout(() => {
      const client = this.#client;
      this.#client = undefined;
      this.#tell();
      void client?.close();
    }, delayMs);
  }

  #tell(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
