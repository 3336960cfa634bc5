/** Plans: what a component wants to show. A binding makes one in each render, and keeps the store of an equal one. */

import type { ClientSlot } from "./slot.js";
import type { Store } from "./store.js";

export interface Plan<Snapshot, S extends Store<Snapshot> = Store<Snapshot>> {
  /** Plans with equal keys have the same store. */
  readonly keys: readonly unknown[];
  /** Makes the store, or finds one that components share. */
  open(slot: ClientSlot): S;
  /** Gives the store what may be new each time: functions of the application. To be called after a render, not in it. */
  update?(store: S): void;
}

/** Whether two plans of one kind want the same store, by their keys. */
export function isSamePlan(one: readonly unknown[], other: readonly unknown[]): boolean {
  return one.length === other.length && one.every((key, index) => Object.is(key, other[index]));
}
