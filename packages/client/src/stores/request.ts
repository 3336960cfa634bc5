/** Calls of the server's application, and publications. */

import type { CallOptions, Client, Published, PublishOptions } from "../client.js";
import { TidewireError } from "../errors.js";
import type { Plan } from "./plan.js";
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

/** A question to the server's application; without a type there is none. */
export function requestPlan<T>(
  type: string | null | undefined | false,
  payload: unknown,
  { enabled = true, timeoutMs }: UseRequestOptions,
): Plan<RequestState<T>, Store<RequestState<T>>> {
  const asked = enabled && type ? type : undefined;
  return {
    keys: [asked, JSON.stringify(payload), timeoutMs],
    open: (slot) => new RequestStore<T>(slot, asked, payload, timeoutMs),
  };
}

/** Publishes to a topic: resolves when the server has accepted it, across reconnections. */
export type Publish<T> = (payload: T, options?: PublishOptions) => Promise<Published>;

/**
 * A function that publishes to a topic, for handlers and effects. A call that the end of the client cuts off
 * rejects with `CLOSED`. It is no unhandled rejection where nobody waits for it, because a component that is gone
 * has nobody to notify.
 */
export function publisher<T>(slot: ClientSlot, topic: string): Publish<T> {
  const publish: Publish<T> = async (payload, options) => {
    slot.open();
    return slot.client!.publish(topic, payload, options);
  };
  return (payload, options) => {
    const published = new Promise<Published>((resolve, reject) => {
      publish(payload, options).then(resolve, (error: TidewireError) => {
        if (error.code === "CLOSED") published.catch(() => {});
        reject(error);
      });
    });
    return published;
  };
}
