/**
 * Storage in IndexedDB, which survives a crash of the tab and of the browser. Several tabs may use
 * it.
 */

import type { Depth, Limits, Meta, NewRow, Row, Storage } from "./storage.js";

/** The object stores of a transaction. */
interface Stores {
  rows: IDBObjectStore;
  meta: IDBObjectStore;
}

const VERSION = 1;

export class IndexedDbStorage implements Storage {
  depth: Depth = { messages: 0, bytes: 0 };
  readonly #name: string;
  #database: Promise<IDBDatabase> | undefined;

  constructor(name: string) {
    this.#name = name;
  }

  open(producer: string): Promise<Meta> {
    return this.#transact("readwrite", ({ rows, meta }) => {
      const found: Meta = { producer, epoch: undefined };
      on(meta.get("producer"), (known) => {
        found.producer = known ?? producer;
        meta.put(found.producer, "producer");
      });
      on(meta.get("epoch"), (known) => {
        found.epoch = known;
      });
      // An empty store has no bytes, whatever was counted before.
      on(rows.count(), (count) => this.#count(meta, { messages: 0, bytes: 0 }, count === 0));
      return () => found;
    });
  }

  add(rows: readonly NewRow[], { messagesMax, bytesMax }: Limits): Promise<(number | undefined)[]> {
    return this.#transact("readwrite", (stores) => {
      const added: (number | undefined)[] = [];
      on(stores.meta.get("depth"), (depth: Depth = { messages: 0, bytes: 0 }) => {
        for (const [index, row] of rows.entries()) {
          if (depth.messages >= messagesMax || depth.bytes + row.bytes > bytesMax) continue;
          depth.messages += 1;
          depth.bytes += row.bytes;
          on(stores.rows.add(row), (key) => {
            added[index] = key as number;
          });
        }
        stores.meta.put(depth, "depth");
        this.depth = depth;
      });
      return () => rows.map((_, index) => added[index]);
    });
  }

  select(state: number, count: number): Promise<Row[]> {
    return this.#read("order", IDBKeyRange.bound([state], [state + 1], false, true), count);
  }

  expiring(fromMs: number, toMs: number, count: number): Promise<Row[]> {
    return this.#read("expires", IDBKeyRange.bound(fromMs, toMs), count);
  }

  update(changed: readonly Row[], deleted: readonly Row[], epoch?: string): Promise<void> {
    return this.#transact("readwrite", ({ rows, meta }) => {
      for (const row of changed) rows.put(row);
      const freed: Depth = { messages: 0, bytes: 0 };
      for (const { row, bytes } of deleted) {
        on(rows.getKey(row), (key) => {
          if (key === undefined) return;
          rows.delete(key);
          freed.messages += 1;
          freed.bytes += bytes;
        });
      }
      // Requests are answered in order, so that all that are freed are known by then.
      if (deleted.length > 0) this.#count(meta, freed);
      if (epoch) meta.put(epoch, "epoch");
      return () => {};
    });
  }

  missing(rows: readonly number[]): Promise<number[]> {
    return this.#transact("readonly", (stores) => {
      const found = new Set<unknown>();
      for (const row of rows) on(stores.rows.getKey(row), (key) => found.add(key));
      return () => rows.filter((row) => !found.has(row));
    });
  }

  async close(): Promise<void> {
    const database = this.#database;
    this.#database = undefined;
    (await database?.catch(() => undefined))?.close();
  }

  #read(index: string, range: IDBKeyRange, count: number): Promise<Row[]> {
    return this.#transact("readonly", ({ rows }) => {
      const request = rows.index(index).getAll(range, Number.isFinite(count) ? count : undefined);
      return () => request.result;
    });
  }

  /** Changes the depth that the tabs share. */
  #count(meta: IDBObjectStore, freed: Depth, isEmpty = false): void {
    on(meta.get("depth"), (known: Depth | undefined) => {
      const depth = known && !isEmpty ? known : { messages: 0, bytes: 0 };
      depth.messages -= freed.messages;
      depth.bytes -= freed.bytes;
      meta.put(depth, "depth");
      this.depth = depth;
    });
  }

  /**
   * Runs `work`, which places requests at once, in a transaction. Resolves with what it returns
   * when all of it is on the disk. A connection that the browser has lost (Safari does so in the
   * background) is opened again, once.
   */
  async #transact<T>(
    mode: IDBTransactionMode,
    work: (stores: Stores) => () => T,
    isRetry = false,
  ): Promise<T> {
    this.#database ??= this.#connect();
    const database = await this.#database;
    try {
      const transaction = database.transaction(["rows", "meta"], mode, { durability: "strict" });
      const result = work({ rows: transaction.objectStore("rows"), meta: transaction.objectStore("meta") });
      await new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = () => reject(transaction.error ?? new Error("the transaction was aborted"));
      });
      return result();
    } catch (error) {
      const { name } = error as Error;
      if (isRetry || (name !== "InvalidStateError" && name !== "UnknownError")) throw error;
      await this.close();
      return this.#transact(mode, work, true);
    }
  }

  #connect(): Promise<IDBDatabase> {
    const forget = () => {
      this.#database = undefined;
    };
    return new Promise<IDBDatabase>((resolve, reject) => {
      const request = indexedDB.open(this.#name, VERSION);
      request.onupgradeneeded = () => {
        const rows = request.result.createObjectStore("rows", { keyPath: "row", autoIncrement: true });
        rows.createIndex("order", ["state", "order"]);
        rows.createIndex("expires", "expiresMs");
        request.result.createObjectStore("meta");
      };
      request.onerror = () => reject(request.error);
      request.onsuccess = () => {
        const database = request.result;
        database.onclose = forget;
        // Another tab deletes the database, or has a later version of this code.
        database.onversionchange = () => {
          forget();
          database.close();
        };
        resolve(database);
      };
    }).catch((error) => {
      forget();
      throw error;
    });
  }
}

// biome-ignore lint/suspicious/noExplicitAny: a store holds anything
function on(request: IDBRequest<any>, then: (result: any) => void): void {
  request.onsuccess = () => then(request.result);
}
