"use client";

import type { Client, ClientOptions, ConnectionStatus, Target } from "@tidewire/client";
import {
  createContext,
  type ReactElement,
  type ReactNode,
  useContext,
  useEffect,
  useState,
  useSyncExternalStore,
} from "react";
import type { Updates } from "./frames.js";
import { type ClientSlot, GivenSlot, OwnedSlot } from "./slot.js";
import { Store } from "./store.js";

const SlotContext = createContext<ClientSlot | undefined>(undefined);

interface CommonProps {
  children?: ReactNode;
  /**
   * When changes are shown: `frame` renders at most once per animation frame (default), `microtask` as soon as the
   * current message, or batch of messages, was handled. Read once.
   */
  updates?: Updates;
}

/** A client that the application has made and closes. */
interface GivenClientProps extends CommonProps {
  client: Client;
  url?: undefined;
  options?: undefined;
}

/** A client that the provider opens when it is mounted, and closes when it is unmounted. */
interface OwnedClientProps extends CommonProps {
  /** Where to connect. Another address opens another client. */
  url: Target;
  /** The options of the client. They are read when it is opened: to change them, give the provider another `key`. */
  options?: ClientOptions;
  client?: undefined;
}

export type TidewireProviderProps = GivenClientProps | OwnedClientProps;

/** Gives the components below it a client. */
export function TidewireProvider(props: TidewireProviderProps): ReactElement {
  const { client, url, options, updates = "frame", children } = props;
  const made = useKeyed<ClientSlot>([client ?? JSON.stringify(url)], () =>
    client ? new GivenSlot(client, updates) : new OwnedSlot(url, options ?? {}, updates),
  );
  useEffect(() => (made instanceof OwnedSlot ? made.mount() : undefined), [made]);
  return <SlotContext.Provider value={made}>{children}</SlotContext.Provider>;
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
  if (held.keys.every((key, index) => Object.is(key, keys[index]))) return held.value;
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

const CONNECTING: ConnectionStatus = {
  state: "connecting",
  reason: undefined,
  code: undefined,
  retryInMs: undefined,
};

class ConnectionStore extends Store<ConnectionStatus> {
  #status = CONNECTING;

  constructor(slot: ClientSlot) {
    super(slot, CONNECTING, slot.client?.status.get());
  }

  protected override start(client: Client): () => void {
    const read = () => {
      this.#status = client.status.get();
      this.changed();
    };
    read();
    return client.status.subscribe(read);
  }

  protected override build(): ConnectionStatus {
    return this.#status;
  }
}

/** The state of the connection, and its reason. A server renders `connecting`. */
export function useConnection(): ConnectionStatus {
  const slot = useSlot();
  const store = useKeyed([slot], () => slot.shared.get("connection", () => new ConnectionStore(slot)));
  return useSyncExternalStore(store.subscribe, store.get, store.getServer);
}
