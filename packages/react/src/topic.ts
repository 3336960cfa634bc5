"use client";

/** Topics in React: the newest messages of a topic, or a state made of them. */

import {
  type Client,
  type Message,
  type SubscribeOptions,
  type Subscription,
  type SubscriptionStatus,
  TidewireError,
} from "@tidewire/client";
import { useEffect, useSyncExternalStore } from "react";
import { useKeyed, useSlot } from "./provider.js";
import type { ClientSlot } from "./slot.js";
import { Store } from "./store.js";

/** Which topics: a name or pattern, several, or nothing while it is not known. */
export type Topics = string | readonly string[] | null | undefined | false;

/** The options of the subscription. Objects may be written inline: they are compared by content. */
export type TopicOptions = Pick<SubscribeOptions, "recover" | "from" | "replay" | "filter" | "overload">;

/** How a topic stands. */
export interface TopicState {
  /** `pending` until the server has answered, `active`, or `ended`: there is no topic, or `error` says why. */
  readonly status: SubscriptionStatus["state"];
  readonly error: TidewireError | undefined;
  /** The connection was lost after the topic had been active: what is shown may be old. */
  readonly isRecovering: boolean;
  /** Publications are missing that could not be recovered, or that the server has dropped. Conflation does not count. */
  readonly isIncomplete: boolean;
}

const PENDING: TopicState = {
  status: "pending",
  error: undefined,
  isRecovering: false,
  isIncomplete: false,
};
const NONE: TopicState = { ...PENDING, status: "ended" };

/** A store on one subscription. */
export abstract class SubscriptionStore<T, Snapshot> extends Store<Snapshot> {
  protected readonly topics: readonly string[];
  protected readonly options: TopicOptions;
  protected state: TopicState;

  constructor(slot: ClientSlot, topics: readonly string[], options: TopicOptions, initial: Snapshot) {
    super(slot, initial);
    this.topics = topics;
    this.options = options;
    this.state = stateOf(topics);
  }

  /** Begins anew: nothing is known. */
  protected abstract reset(): void;

  protected abstract message(message: Message<T>): void;

  /** Something of the subscription or the connection is other than before. */
  protected moved(_client: Client, _subscription: Subscription<T>): void {}

  protected override start(client: Client): () => void {
    this.state = stateOf(this.topics);
    this.reset();
    this.changed();
    if (!this.topics.length) return () => {};
    const subscription = this.#subscribe(client);
    if (!subscription) return () => {};
    const look = () => {
      const { state: status, error } = subscription.status.get();
      const isRecovering = status === "active" && client.state !== "open";
      this.#set({ status, error, isRecovering });
      this.moved(client, subscription);
    };
    const off = [subscription.status.subscribe(look), client.status.subscribe(look)];
    subscription.on("message", (message) => this.message(message));
    subscription.on("unrecovered", () => this.#set({ isIncomplete: true }));
    subscription.on("gap", ({ reason }) => {
      if (reason !== "conflated") this.#set({ isIncomplete: true });
    });
    this.watch(subscription);
    look();
    return () => {
      for (const end of off) end();
      void subscription.unsubscribe();
    };
  }

  #subscribe(client: Client): Subscription<T> | undefined {
    for (;;) {
      try {
        return client.subscribe<T>(this.topics, this.options);
      } catch (error) {
        // The topic may still be held with the options of the render before.
        if (this.endLingering()) continue;
        this.#set({ status: "ended", error: asError(error) });
        return undefined;
      }
    }
  }

  /** Listens to more of the subscription. */
  protected watch(_subscription: Subscription<T>): void {}

  protected fail(error: unknown): void {
    this.#set({ error: asError(error) });
  }

  #set(part: Partial<TopicState>): void {
    const names = Object.keys(part) as (keyof TopicState)[];
    if (names.every((name) => this.state[name] === part[name])) return;
    this.state = { ...this.state, ...part };
    this.changed();
  }
}

/** @internal */
export function stateOf(topics: readonly string[]): TopicState {
  return topics.length ? PENDING : NONE;
}

/** @internal */
export function namesOf(topics: Topics): readonly string[] {
  return topics ? (typeof topics === "string" ? [topics] : topics) : [];
}

/** The value by which subscriptions are compared. `from` is for its start. @internal */
export function subscriptionKey(topics: readonly string[], options: TopicOptions): string {
  const { recover, replay, filter, overload } = options;
  return JSON.stringify([topics, recover, replay, filter, overload]);
}

/** @internal */
export function wireOptions({ recover, from, replay, filter, overload }: TopicOptions): TopicOptions {
  const all = Object.entries({ recover, from, replay, filter, overload });
  return Object.fromEntries(all.filter(([, value]) => value !== undefined));
}

function asError(error: unknown): TidewireError {
  return error instanceof TidewireError ? error : new TidewireError("INVALID_ARGUMENT", String(error));
}

/** Options of {@link useTopic} with a list of messages. */
export interface UseMessagesOptions<T> extends TopicOptions {
  /** The newest messages that are kept. Default 100; 0 keeps none, and no message renders. */
  max?: number;
  /** Called for each message, for what is no rendering, such as a sound. */
  onMessage?: (message: Message<T>) => void;
  reduce?: undefined;
}

/** Options of {@link useTopic} with a reducer. */
export interface UseReducedOptions<T, S> extends TopicOptions {
  /** The state after a message. It is called once per message, outside of rendering. */
  reduce: (state: S, message: Message<T>) => S;
  /** The state before the first message. */
  initial: S;
  onMessage?: (message: Message<T>) => void;
}

/** A topic with its newest messages. */
export interface TopicMessages<T> extends TopicState {
  /** The oldest first, the newest last. */
  readonly messages: readonly Message<T>[];
}

/** A topic with a state made of its messages. */
export interface TopicValue<S> extends TopicState {
  readonly value: S;
}

interface Handlers<T> {
  onMessage?: ((message: Message<T>) => void) | undefined;
  reduce?: ((state: never, message: Message<T>) => unknown) | undefined;
}

const NO_MESSAGES: readonly never[] = [];

class MessagesStore<T> extends SubscriptionStore<T, TopicMessages<T>> {
  handlers: Handlers<T> = {};
  readonly #max: number;
  #messages: Message<T>[] = [];
  #shown: readonly Message<T>[] | undefined = NO_MESSAGES;

  constructor(slot: ClientSlot, topics: readonly string[], options: TopicOptions, max: number) {
    super(slot, topics, options, { ...stateOf(topics), messages: NO_MESSAGES });
    this.#max = max;
  }

  protected override reset(): void {
    this.#messages = [];
    this.#shown = NO_MESSAGES;
  }

  protected override message(message: Message<T>): void {
    if (this.#max > 0) {
      // The list is cut once in a while, not for each message.
      if (this.#messages.length >= 2 * this.#max) this.#messages = this.#messages.slice(1 - this.#max);
      this.#messages.push(message);
      this.#shown = undefined;
      this.changed();
    }
    this.handlers.onMessage?.(message);
  }

  protected override build(): TopicMessages<T> {
    this.#shown ??= this.#messages.slice(-this.#max);
    return { ...this.state, messages: this.#shown };
  }
}

class ValueStore<T, S> extends SubscriptionStore<T, TopicValue<S>> {
  handlers: Handlers<T> = {};
  readonly #initial: S;
  #value: S;

  constructor(slot: ClientSlot, topics: readonly string[], options: TopicOptions, initial: S) {
    super(slot, topics, options, { ...stateOf(topics), value: initial });
    this.#initial = this.#value = initial;
  }

  protected override reset(): void {
    this.#value = this.#initial;
  }

  protected override message(message: Message<T>): void {
    const { reduce, onMessage } = this.handlers;
    const before = this.#value;
    if (reduce) this.#value = (reduce as (state: S, message: Message<T>) => S)(before, message);
    if (!Object.is(before, this.#value)) this.changed();
    onMessage?.(message);
  }

  protected override build(): TopicValue<S> {
    return { ...this.state, value: this.#value };
  }
}

/**
 * Subscribes to a topic while the component is mounted. It shows the newest messages or, with `reduce`, a state made of
 * them. Another topic, or other options for the server, begin with nothing: the old topic's data is never shown.
 */
export function useTopic<T = unknown>(topics: Topics, options?: UseMessagesOptions<T>): TopicMessages<T>;
export function useTopic<T, S>(topics: Topics, options: UseReducedOptions<T, S>): TopicValue<S>;
export function useTopic<T, S>(
  topics: Topics,
  options: UseMessagesOptions<T> | UseReducedOptions<T, S> = {},
): TopicMessages<T> | TopicValue<S> {
  const slot = useSlot();
  const names = namesOf(topics);
  const { reduce, onMessage } = options;
  const max = options.reduce ? undefined : (options.max ?? 100);
  const store = useKeyed([slot, subscriptionKey(names, options), max], () =>
    options.reduce
      ? new ValueStore<T, S>(slot, names, wireOptions(options), options.initial)
      : new MessagesStore<T>(slot, names, wireOptions(options), options.max ?? 100),
  );
  // Functions written inline are new in each render; the subscription stays, and calls the newest.
  useEffect(() => {
    store.handlers = { onMessage, reduce };
  });
  return useSyncExternalStore<TopicMessages<T> | TopicValue<S>>(store.subscribe, store.get, store.getServer);
}
