/** The snapshot of a store for composables. Other arguments of a composable select another store. */

import { type ClientSlot, isSamePlan, type Plan, type Store } from "@tidewire/client/stores";
import { type ComputedRef, computed, getCurrentInstance, onMounted, shallowRef, watch } from "vue";

/** A ref for each field of a snapshot. */
export type Fields<Snapshot> = { readonly [Name in keyof Snapshot]: ComputedRef<Snapshot[Name]> };

export interface Shown<Snapshot, S extends Store<Snapshot>> {
  readonly store: ComputedRef<S>;
  readonly shown: ComputedRef<Snapshot>;
}

/**
 * The store of the plan that `make` gives now, and what it shows. The store works while the component is mounted or, outside
 * of components, until the end of the effect scope. Until then it shows what a server renders.
 */
export function useShown<Snapshot, S extends Store<Snapshot>>(
  slot: ClientSlot,
  make: () => Plan<Snapshot, S>,
): Shown<Snapshot, S> {
  const plan = computed(make);
  const held = computed<{ keys: readonly unknown[]; store: S }>((before) => {
    const { keys } = plan.value;
    return before && isSamePlan(before.keys, keys) ? before : { keys, store: plan.value.open(slot) };
  });
  const store = computed(() => held.value.store);
  const isMounted = shallowRef(false);
  const changes = shallowRef(0);
  const shown = computed(() => {
    const { get, getServer } = store.value;
    return isMounted.value && changes.value >= 0 ? get() : getServer();
  });
  whenMounted(() => {
    isMounted.value = true;
    watch(plan, ({ update }) => update?.(store.value), { immediate: true, flush: "sync" });
    const change = () => {
      changes.value += 1;
    };
    watch(store, (now, _, onEnd) => onEnd(now.subscribe(change)), { immediate: true });
  });
  return { store, shown };
}

/** Runs `start` when the component is in the page or, outside of components, at once. A server does not run it. */
export function whenMounted(start: () => void): void {
  if (getCurrentInstance()) onMounted(start);
  else start();
}

/** A ref for each field of the shown value. */
export function fieldsOf<Snapshot extends object>(shown: ComputedRef<Snapshot>): Fields<Snapshot> {
  const names = Object.keys(shown.value) as (keyof Snapshot)[];
  return Object.fromEntries(
    names.map((name) => [name, computed(() => shown.value[name])]),
  ) as unknown as Fields<Snapshot>;
}
