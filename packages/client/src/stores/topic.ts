/** Topics: the newest messages of a topic, or a state made of them. */

import type { Client } from "../client.js";
import { TidewireError } from "../errors.js";
import type { Message } from "../message.js";
import type { SubscribeOptions, Subscription, SubscriptionStatus } from "../subscription.js";
import type { Plan } from "./plan.js";
import type { ClientSlot } from "./slot.js";
import { Store } from "./store.js";

/** Which topics: a name or pattern, several, or nothing while it is not known. */
export type Topics = string | readonly string[] | null | undefined | false;

/** The options of the subscription. Objects may be written inline: they are compared by content. */
export type TopicOptions = Pick<SubscribeOptions, "recover" | "from" | "replay" | "filter" | "overload">;

/** How a topic stands. */
export interface TopicState {
  /** `pending` until the server has answered, `active`, or `ended`: there is no topic, or `error` is the reason. */
  readonly status: SubscriptionStatus["state"];
  readonly error: TidewireError | undefined;
  /** The connection was lost after the topic had been active: the shown data may be old. */
  readonly isRecovering: boolean;
  /**
   * Publications are missing that could not be recovered, or that the server has dropped. Conflation does not count. False again
   * when the list has as many messages behind them as it keeps, or with a message that is the whole state (`isSnapshot`).
   */
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
    subscription.on("message", (message) => {
      if (message.isSnapshot) this.#set({ isIncomplete: false });
      this.message(message);
    });
    subscription.on("unrecovered", () => this.missed());
    subscription.on("gap", ({ reason }) => {
      if (reason !== "conflated") this.missed();
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

  /** Publications are missing. */
  protected missed(): void {
    this.#set({ isIncomplete: true });
  }

  /** The shown messages no longer reach back to the missing ones. */
  protected completed(): void {
    this.#set({ isIncomplete: false });
  }

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

/** Options of a topic with a list of messages. */
export interface UseMessagesOptions<T> extends TopicOptions {
  /** The newest messages that are kept. Default 100; 0 keeps none, and no message renders. */
  max?: number;
  /** Called for each message, for effects beside rendering, such as a sound. */
  onMessage?: (message: Message<T>) => void;
  reduce?: undefined;
}

/** Options of a topic with a reducer. */
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
  /** Messages since one was missing. */
  #whole = 0;
  #shown: readonly Message<T>[] | undefined = NO_MESSAGES;

  constructor(slot: ClientSlot, topics: readonly string[], options: TopicOptions, max: number) {
    super(slot, topics, options, { ...stateOf(topics), messages: NO_MESSAGES });
    this.#max = max;
  }

  protected override reset(): void {
    this.#messages = [];
    this.#whole = 0;
    this.#shown = NO_MESSAGES;
  }

  protected override missed(): void {
    this.#whole = 0;
    super.missed();
  }

  protected override message(message: Message<T>): void {
    if (this.#max > 0) {
      // The list is cut once in a while, not for each message.
      if (this.#messages.length >= 2 * this.#max) this.#messages = this.#messages.slice(1 - this.#max);
      this.#messages.push(message);
      if (this.state.isIncomplete && ++this.#whole >= this.#max) this.completed();
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

/** A topic with its newest messages or, with `reduce`, with a state made of them. */
export function topicPlan<T, S>(
  topics: Topics,
  options: UseMessagesOptions<T> | UseReducedOptions<T, S>,
): Plan<TopicMessages<T> | TopicValue<S>, MessagesStore<T> | ValueStore<T, S>> {
  const names = namesOf(topics);
  const { reduce, onMessage } = options;
  const max = options.reduce ? undefined : (options.max ?? 100);
  return {
    keys: [subscriptionKey(names, options), max],
    open: (slot) =>
      options.reduce
        ? new ValueStore<T, S>(slot, names, wireOptions(options), options.initial)
        : new MessagesStore<T>(slot, names, wireOptions(options), options.max ?? 100),
    // Functions written inline are new each time; the subscription stays, and calls the newest.
    update: (store) => {
      store.handlers = { onMessage, reduce };
    },
  };
}
