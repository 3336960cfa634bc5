/** Storage in memory, for as long as the page or the process lives. */

import {
  type Depth,
  type Limits,
  type Meta,
  type NewRow,
  NUMBERED,
  type Row,
  type Storage,
  WAITING,
} from "./storage.js";

export class MemoryStorage implements Storage {
  readonly #rows = new Map<number, Row>();
  /** The rows of each state, those that wait by order as well; see {@link #sorted}. */
  readonly #lists = new Map<string, Map<number, Row>>();
  readonly #unsorted = new Set<Map<number, Row>>();
  readonly #meta: Meta = { producer: "", epoch: undefined };
  #bytes = 0;
  #nextRow = 1;
  /** No row expires before this. */
  #expiresMs = Number.POSITIVE_INFINITY;

  get depth(): Depth {
    return { messages: this.#rows.size, bytes: this.#bytes };
  }

  async open(producer: string): Promise<Meta> {
    this.#meta.producer ||= producer;
    return this.#meta;
  }

  async add(rows: readonly NewRow[], { messagesMax, bytesMax }: Limits): Promise<(number | undefined)[]> {
    return rows.map((one) => {
      if (this.#rows.size >= messagesMax || this.#bytes + one.bytes > bytesMax) return undefined;
      const row = this.#nextRow++;
      this.#put({ ...one, row });
      return row;
    });
  }

  async select(state: number, count: number): Promise<Row[]> {
    const found: Row[] = [];
    for (const order of state === WAITING ? [0, 2, 5, 7, 9] : [0]) {
      for (const row of this.#sorted(this.#list({ state, order })).values()) {
        if (found.length >= count) return found;
        found.push(row);
      }
    }
    return found;
  }

  async expiring(fromMs: number, toMs: number, count: number): Promise<Row[]> {
    if (toMs < this.#expiresMs) return [];
    const found: Row[] = [];
    this.#expiresMs = Number.POSITIVE_INFINITY;
    for (const row of this.#rows.values()) {
      const { expiresMs } = row;
      if (expiresMs === undefined) continue;
      this.#expiresMs = Math.min(this.#expiresMs, expiresMs);
      if (expiresMs >= fromMs && expiresMs <= toMs && found.length < count) found.push(row);
    }
    return found;
  }

  async update(changed: readonly Row[], deleted: readonly Row[], epoch?: string): Promise<void> {
    for (const { row } of deleted) this.#remove(row);
    for (const row of changed) {
      this.#remove(row.row);
      this.#put(row);
    }
    this.#meta.epoch = epoch ?? this.#meta.epoch;
  }

  async missing(rows: readonly number[]): Promise<number[]> {
    return rows.filter((row) => !this.#rows.has(row));
  }

  async close(): Promise<void> {}

  #list({ state, order }: Pick<Row, "state" | "order">): Map<number, Row> {
    const name = `${state} ${state === WAITING ? order : 0}`;
    let list = this.#lists.get(name);
    if (!list) {
      list = new Map();
      this.#lists.set(name, list);
    }
    return list;
  }

  /** A list with its rows in order. */
  #sorted(list: Map<number, Row>): Map<number, Row> {
    if (this.#unsorted.delete(list)) {
      const rows = [...list.values()].sort((a, b) => a.order - b.order || a.row - b.row);
      list.clear();
      for (const row of rows) list.set(row.row, row);
    }
    return list;
  }

  #put(row: Row): void {
    const list = this.#list(row);
    list.set(row.row, row);
    // New rows and new numbers go behind all others.
    if (row.row !== this.#nextRow - 1 && row.state !== NUMBERED) this.#unsorted.add(list);
    this.#rows.set(row.row, row);
    this.#bytes += row.bytes;
    this.#expiresMs = Math.min(this.#expiresMs, row.expiresMs ?? this.#expiresMs);
  }

  #remove(row: number): void {
    const old = this.#rows.get(row);
    if (!old) return;
    this.#list(old).delete(row);
    this.#rows.delete(row);
    this.#bytes -= old.bytes;
  }
}
