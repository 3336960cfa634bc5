/** Latest values: the last message of a topic, or of each row of a table. */

import type { Message } from "../message.js";
import type { Plan } from "./plan.js";
import type { ClientSlot } from "./slot.js";
import type { Store } from "./store.js";
import {
  namesOf,
  SubscriptionStore,
  subscriptionKey,
  type TopicOptions,
  type Topics,
  wireOptions,
} from "./topic.js";

/** Which row a message belongs to: the name of a field of its payload, or a function. */
export type RowKey<T> = (string & keyof T) | ((message: Message<T>) => string | undefined);

/** Options of a table of rows. */
export interface UseRowsOptions<T> extends TopicOptions {
  /**
   * Which row a message belongs to: the name of a field, or a function that is defined outside the component, so that
   * all components share one table. A message without a key is passed over.
   */
  key: RowKey<T>;
  /** Rows at most; past it the row that arrived first is dropped. Default 10,000. */
  rowsMax?: number;
}

/** The last message of each row, in the order in which the rows first arrived. */
export type Rows<T> = ReadonlyMap<string, Message<T>>;

class LastStore<T> extends SubscriptionStore<T, Message<T> | undefined> {
  #last: Message<T> | undefined;

  protected override reset(): void {
    this.#last = undefined;
  }

  protected override message(message: Message<T>): void {
    this.#last = message;
    this.changed();
  }

  protected override build(): Message<T> | undefined {
    return this.#last;
  }
}

class RowsStore<T> extends SubscriptionStore<T, Rows<T>> {
  readonly #key: (message: Message<T>) => string | undefined;
  readonly #rowsMax: number;
  readonly #rows = new Map<string, Message<T>>();
  #shown: Rows<T> | undefined = this.get();

  constructor(
    slot: ClientSlot,
    topics: readonly string[],
    options: TopicOptions,
    key: RowKey<T>,
    rowsMax: number,
  ) {
    super(slot, topics, options, new Map());
    this.#key = typeof key === "function" ? key : ({ payload }) => fieldOf(payload, key);
    this.#rowsMax = rowsMax;
  }

  protected override reset(): void {
    this.#rows.clear();
    this.#shown = undefined;
  }

  protected override message(message: Message<T>): void {
    const key = this.#key(message);
    if (key === undefined) return;
    if (this.#rows.size >= this.#rowsMax && !this.#rows.has(key)) {
      for (const oldest of this.#rows.keys()) {
        this.#rows.delete(oldest);
        break;
      }
    }
    this.#rows.set(key, message);
    this.#shown = undefined;
    this.changed();
  }

  protected override build(): Rows<T> {
    this.#shown ??= new Map(this.#rows);
    return this.#shown;
  }
}

function fieldOf(payload: unknown, name: string): string | undefined {
  const value =
    typeof payload === "object" && payload !== null ? (payload as Record<string, unknown>)[name] : undefined;
  return value === undefined || value === null ? undefined : String(value);
}

const functionIds = new WeakMap<object, number>();
let functionCount = 0;

/** A name for a key, so that equal keys are equal texts. */
function rowKeyName(key: unknown): string {
  if (typeof key !== "function") return `field ${String(key)}`;
  let id = functionIds.get(key);
  if (id === undefined) {
    functionCount += 1;
    id = functionCount;
    functionIds.set(key, id);
  }
  return `function ${id}`;
}

type Select = (snapshot: unknown) => unknown;

/** The options of a last message and of a table. */
export interface LatestOptions extends TopicOptions {
  key?: unknown;
  rowsMax?: number;
  select?: unknown;
}

const identity: Select = (snapshot) => snapshot;

/** The last message of a topic or, with `key`, of each row of a table. Components share the stored messages. */
export function latestPlan<T>(topics: Topics, options: LatestOptions): Plan<unknown, Store<unknown>> {
  const names = namesOf(topics);
  const { rowsMax = 10_000 } = options;
  const key = options.key as RowKey<T> | undefined;
  const subscription = subscriptionKey(names, options);
  const kind = typeof key === "function" ? "function" : key;
  return {
    keys: [subscription, kind, rowsMax],
    open: (slot) => {
      const wire = wireOptions(options);
      const last = () => new LastStore<T>(slot, names, wire, undefined);
      if (!key) return slot.shared.get(`last ${subscription}`, last);
      const rows = () => new RowsStore<T>(slot, names, wire, key, rowsMax);
      return slot.shared.get(`rows ${subscription} ${rowKeyName(key)} ${rowsMax}`, rows);
    },
  };
}

/** Selects from a snapshot, once for each snapshot. */
export function selected<S, R>(get: () => S, select: (snapshot: S) => R = identity as never): () => R {
  let last: { snapshot: S; value: R } | undefined;
  return () => {
    const snapshot = get();
    if (!last || last.snapshot !== snapshot) last = { snapshot, value: select(snapshot) };
    return last.value;
  };
}
