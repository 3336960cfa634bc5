/** The client of a Vue application. */

import type { Client, ConnectionStatus } from "@tidewire/client";
import {
  type ClientSlot,
  connectionPlan,
  type GivenClient,
  type OwnedClient,
  slotFor,
  type Updates,
} from "@tidewire/client/stores";
import {
  type InjectionKey,
  inject,
  onMounted,
  onScopeDispose,
  onUnmounted,
  type Plugin,
  provide,
  type ShallowRef,
  shallowRef,
} from "vue";
import { type Fields, fieldsOf, useShown, whenMounted } from "./shown.js";

/** A client that the application has made and closes, or an address: then the client is opened, and closed at the end. */
export type TidewireOptions = (GivenClient | OwnedClient) & {
  /** When changes are shown: once per animation frame (`frame`, default), or after each message or batch (`microtask`). */
  updates?: Updates;
};

const SLOT: InjectionKey<ClientSlot> = Symbol("tidewire");

/** A plugin that gives all components of an application one client: `app.use(createTidewire({ url }))`. */
export function createTidewire(options: TidewireOptions): Plugin {
  return {
    install(app) {
      const slot = slotFor(options, options.updates);
      app.provide(SLOT, slot);
      // A server opens no connection.
      if (typeof document !== "undefined") app.onUnmount(slot.mount());
    },
  };
}

/** Gives the components below the current one a client, for as long as it is mounted. To be called in its `setup`. */
export function provideTidewire(options: TidewireOptions): void {
  const slot = slotFor(options, options.updates);
  let release = () => {};
  provide(SLOT, slot);
  onMounted(() => {
    release = slot.mount();
  });
  onUnmounted(() => release());
}

/** @internal */
export function useSlot(): ClientSlot {
  const slot = inject(SLOT, undefined);
  if (!slot)
    throw new Error("there is no client: call createTidewire or, in a component above, provideTidewire");
  return slot;
}

/** The client, for what the composables do not have. `undefined` on a server, and until the component is mounted. */
export function useClient(): Readonly<ShallowRef<Client | undefined>> {
  const slot = useSlot();
  const client = shallowRef<Client>();
  whenMounted(() => {
    const look = () => {
      client.value = slot.client;
    };
    onScopeDispose(slot.subscribe(look));
    look();
  });
  return client;
}

/** The state of the connection, and its reason. A server renders `connecting`. */
export function useConnection(): Fields<ConnectionStatus> {
  return fieldsOf(useShown(useSlot(), () => connectionPlan).shown);
}
