/** The snapshot of a store for a component. Other arguments of the component select another store. */

import { type ClientSlot, isSamePlan, type Plan, type Store } from "@tidewire/client/stores";
import { onMount } from "svelte";
import { createSubscriber } from "svelte/reactivity";
import { type Readable, toStore } from "svelte/store";

/** A value, or a function that gives it: what the function reads of the component's state is followed. */
export type MaybeGetter<T> = T | (() => T);

/** @internal */
export function given<T>(value: MaybeGetter<T>): T {
  return typeof value === "function" ? (value as () => T)() : value;
}

/** The fields of the shown value, each the newest when it is read; and the same as a Svelte store, for `$name`. */
export type Live<Snapshot extends object> = Readonly<Snapshot> & Readable<Snapshot>;

/** A value that is the newest when `current` is read; and the same as a Svelte store, for `$name`. */
export interface Current<T> extends Readable<T> {
  readonly current: T;
}

export interface Shown<Snapshot, S extends Store<Snapshot>> {
  /** The store of the plan of now. What the plan reads of the component's state is followed. */
  store(): S;
  /** What it shows. In an effect or a template it is followed. */
  read(): Snapshot;
}

/** The store of the plan that `make` gives now, and what it shows. It works while the component is mounted. */
export function show<Snapshot, S extends Store<Snapshot>>(
  slot: ClientSlot,
  make: () => Plan<Snapshot, S>,
): Shown<Snapshot, S> {
  let held: { keys: readonly unknown[]; store: S } | undefined;
  const store = (): S => {
    const plan = make();
    if (!held || !isSamePlan(held.keys, plan.keys)) held = { keys: plan.keys, store: plan.open(slot) };
    plan.update?.(held.store);
    return held.store;
  };
  /** Effects that have read the shown value: they run again after each change. */
  const readers = new Set<() => void>();
  const follow = createSubscriber((update) => {
    readers.add(update);
    return () => readers.delete(update);
  });
  // It works although nothing of it may be read, for `onMessage`.
  whileMounted(store, (now) =>
    now.subscribe(() => {
      for (const update of [...readers]) update();
    }),
  );
  return {
    store,
    read() {
      follow();
      return store().get();
    },
  };
}

/**
 * Begins something with a value while the component is mounted. Begins it anew when a change of the component's
 * state makes it another value.
 */
export function whileMounted<T>(value: () => T, begin: (value: T) => () => void): void {
  onMount(() => {
    let last: { value: T; end: () => void } | undefined;
    const off = toStore(value).subscribe((next) => {
      if (last && Object.is(last.value, next)) return;
      last?.end();
      last = { value: next, end: begin(next) };
    });
    return () => {
      off();
      last?.end();
    };
  });
}

/** The shown value, field by field. */
export function fieldsOf<Snapshot extends object>(read: () => Snapshot): Live<Snapshot> {
  const live = { subscribe: toStore(read).subscribe };
  for (const name of Object.keys(read()) as (keyof Snapshot)[]) {
    Object.defineProperty(live, name, { enumerable: true, get: () => read()[name] });
  }
  return live as unknown as Live<Snapshot>;
}

/** The shown value as a whole. */
export function current<T>(read: () => T): Current<T> {
  return {
    subscribe: toStore(read).subscribe,
    get current() {
      return read();
    },
  };
}
