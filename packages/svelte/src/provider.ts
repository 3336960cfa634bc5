/** The client of a Svelte application. */

import type { Client, ConnectionStatus } from "@tidewire/client";
import {
  type ClientSlot,
  connectionPlan,
  type GivenClient,
  type OwnedClient,
  slotFor,
  type Updates,
} from "@tidewire/client/stores";
import { getContext, onMount, setContext } from "svelte";
import { createSubscriber } from "svelte/reactivity";
import { type Current, current, fieldsOf, type Live, show } from "./shown.js";

/** A client that the application has made and closes, or an address: then the client is opened, and closed at the end. */
export type TidewireOptions = (GivenClient | OwnedClient) & {
  /** When changes are shown: once per animation frame (`frame`, default), or after each message or batch (`microtask`). */
  updates?: Updates;
};

const SLOT = Symbol("tidewire");

/** Gives the current component, and those below it, a client for as long as it is mounted. To be called in its script. */
export function setTidewire(options: TidewireOptions): void {
  const slot = slotFor(options, options.updates);
  setContext(SLOT, slot);
  onMount(() => slot.mount());
}

/** @internal */
export function slotOf(): ClientSlot {
  const slot = getContext<ClientSlot | undefined>(SLOT);
  if (!slot) throw new Error("there is no client: call setTidewire in a component above");
  return slot;
}

/** The client, for what the other functions do not have. `undefined` on a server, and until it is opened. */
export function useClient(): Current<Client | undefined> {
  const slot = slotOf();
  const follow = createSubscriber((update) => slot.subscribe(update));
  return current(() => {
    follow();
    return slot.client;
  });
}

/** The state of the connection, and its reason. A server renders `connecting`. */
export function useConnection(): Live<ConnectionStatus> {
  return fieldsOf(show(slotOf(), () => connectionPlan).read);
}
