"use client";

import type { Client, ConnectionStatus } from "@tidewire/client";
import {
  type ClientSlot,
  connectionPlan,
  type GivenClient,
  isSamePlan,
  type OwnedClient,
  type Plan,
  type Store,
  slotFor,
  type Updates,
} from "@tidewire/client/stores";
import {
  createContext,
  type ReactElement,
  type ReactNode,
  useContext,
  useEffect,
  useState,
  useSyncExternalStore,
} from "react";

const SlotContext = createContext<ClientSlot | undefined>(undefined);

interface CommonProps {
  children?: ReactNode;
  /**
   * When changes are shown: `frame` renders at most once per animation frame (default), `microtask` as soon as the
   * current message, or batch of messages, was handled. Read once.
   */
  updates?: Updates;
}

/**
 * A client that the application has made and closes, or an address: the provider opens a client when it is mounted, and closes
 * it when it is unmounted. Another address opens another client. The options are read when it is opened: to change them, give
 * the provider another `key`.
 */
export type TidewireProviderProps = CommonProps & (GivenClient | OwnedClient);

/** Gives the components below it a client. */
export function TidewireProvider(props: TidewireProviderProps): ReactElement {
  const { client, url, updates, children } = props;
  const slot = useKeyed<ClientSlot>([client ?? JSON.stringify(url)], () => slotFor(props, updates));
  useEffect(() => slot.mount(), [slot]);
  return <SlotContext.Provider value={slot}>{children}</SlotContext.Provider>;
}

/** @internal */
export function useSlot(): ClientSlot {
  const slot = useContext(SlotContext);
  if (!slot) throw new Error("there is no TidewireProvider above this component");
  return slot;
}

/**
 * A value that is made anew when a key changes, at once: no render sees the one before.
 *
 * @internal
 */
export function useKeyed<V>(keys: readonly unknown[], make: () => V): V {
  const [held, hold] = useState(() => ({ keys, value: make() }));
  if (isSamePlan(held.keys, keys)) return held.value;
  const next = { keys, value: make() };
  hold(next);
  return next.value;
}

/**
 * The client, for what the hooks do not have. `undefined` on a server and, under a provider with `url`, in the first
 * render of the page.
 */
export function useClient(): Client | undefined {
  const slot = useSlot();
  return useSyncExternalStore(
    slot.subscribe,
    () => slot.client,
    () => undefined,
  );
}

/**
 * The store of a plan, which stays the same while the plan does.
 *
 * @internal
 */
export function usePlan<Snapshot, S extends Store<Snapshot>>(plan: Plan<Snapshot, S>): S {
  const slot = useSlot();
  return useKeyed([slot, ...plan.keys], () => plan.open(slot));
}

/**
 * What a store shows now.
 *
 * @internal
 */
export function useShown<Snapshot>(store: Store<Snapshot>): Snapshot {
  return useSyncExternalStore(store.subscribe, store.get, store.getServer);
}

/** The state of the connection, and its reason. A server renders `connecting`. */
export function useConnection(): ConnectionStatus {
  return useShown(usePlan(connectionPlan));
}
