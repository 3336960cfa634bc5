"use client";

/** Calls of the server's application in React. */

import {
  type CallOptions,
  type Client,
  type Published,
  type PublishOptions,
  TidewireError,
} from "@tidewire/client";
import { useCallback, useSyncExternalStore } from "react";
import { useKeyed, useSlot } from "./provider.js";
import type { ClientSlot } from "./slot.js";
import { Store } from "./store.js";

export interface UseRequestOptions extends Pick<CallOptions, "timeoutMs"> {
  /** Whether the request is made. Default true. */
  enabled?: boolean;
}

export interface RequestState<T> {
  /** `idle` if it is not to be made, `loading` before the first answer, then `success` or `error`. */
  readonly status: "idle" | "loading" | "success" | "error";
  /** The answer. It stays while the same request is made again. */
  readonly data: T | undefined;
  readonly error: TidewireError | undefined;
  /** A request is under way. */
  readonly isFetching: boolean;
  /** Makes the request again, in place of one that is under way. */
  readonly refetch: () => void;
}

class RequestStore<T> extends Store<RequestState<T>> {
  readonly #type: string | undefined;
  readonly #payload: unknown;
  readonly #timeoutMs: number | undefined;
  readonly #first: RequestState<T>;
  #state: RequestState<T>;
  #client: Client | undefined;
  #request: AbortController | undefined;

  constructor(slot: ClientSlot, type: string | undefined, payload: unknown, timeoutMs: number | undefined) {
    const common = { data: undefined, error: undefined, refetch: () => this.#fetch() };
    const state = { ...common, status: type ? "loading" : "idle", isFetching: type !== undefined } as const;
    super(slot, state);
    this.#type = type;
    this.#payload = payload;
    this.#timeoutMs = timeoutMs;
    this.#first = this.#state = state;
  }

  protected override start(client: Client): () => void {
    this.#client = client;
    this.#set(this.#first);
    this.#fetch();
    return () => {
      this.#client = undefined;
      this.#request?.abort();
    };
  }

  protected override build(): RequestState<T> {
    return this.#state;
  }

  #set(part: Partial<RequestState<T>>): void {
    this.#state = { ...this.#state, ...part };
    this.changed();
  }

  #fetch(): void {
    const client = this.#client;
    if (!client || !this.#type) return;
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    if (!this.#state.isFetching) this.#set({ isFetching: true });
    void this.#ask(client, this.#type, request.signal);
  }

  async #ask(client: Client, type: string, signal: AbortSignal): Promise<void> {
    const timeout = this.#timeoutMs === undefined ? {} : { timeoutMs: this.#timeoutMs };
    for (;;) {
      try {
        const data = await client.request<T>(type, this.#payload, { signal, ...timeout });
        if (!signal.aborted) this.#set({ status: "success", data, error: undefined, isFetching: false });
        return;
      } catch (cause) {
        if (signal.aborted) return;
        const error =
          cause instanceof TidewireError ? cause : new TidewireError("INVALID_ARGUMENT", String(cause));
        // What a render asks for changes nothing on the server, so that it may be asked for again.
        if (error.code === "CONNECTION_LOST") continue;
        this.#set({ status: "error", error, isFetching: false });
        return;
      }
    }
  }
}

/**
 * Asks the server's application for something while the component is mounted, and again when `type` or `payload` says
 * something else; the old answer is then not shown. It is for questions: a request may be made more than once. What
 * changes something belongs into a handler, with `useClient()`. `null` as the type asks nothing.
 */
export function useRequest<T = unknown>(
  type: string | null | undefined | false,
  payload: unknown = null,
  options: UseRequestOptions = {},
): RequestState<T> {
  const slot = useSlot();
  const { enabled = true, timeoutMs } = options;
  const asked = enabled && type ? type : undefined;
  const store = useKeyed(
    [slot, asked, JSON.stringify(payload), timeoutMs],
    () => new RequestStore<T>(slot, asked, payload, timeoutMs),
  );
  return useSyncExternalStore(store.subscribe, store.get, store.getServer);
}

/** Publishes to a topic: resolves when the server has accepted it, across reconnections. */
export type Publish<T> = (payload: T, options?: PublishOptions) => Promise<Published>;

/** A function that publishes to a topic, for handlers and effects. It stays the same while the topic does. */
export function usePublish<T = unknown>(topic: string): Publish<T> {
  const slot = useSlot();
  return useCallback(
    async (payload, options) => {
      slot.open();
      return slot.client!.publish(topic, payload, options);
    },
    [slot, topic],
  );
}
