/** Presence: who is on a topic, live. */

import type { Client } from "../client.js";
import type { PresenceEvent } from "../events.js";
import type { Message } from "../message.js";
import type { Subscription } from "../subscription.js";
import { presence } from "../topics.js";
import type { Plan } from "./plan.js";
import type { ClientSlot } from "./slot.js";
import { namesOf, SubscriptionStore, stateOf, type TopicState } from "./topic.js";

/** Somebody who is on a topic. */
export interface Member<D = unknown> {
  /** The user of the token or, without one, the id of the connection. */
  readonly user: string;
  /** The presence data of the member. */
  readonly data: D | undefined;
}

export interface UsePresenceOptions<D> {
  /** The data about this user that others receive, at most 4 KiB of JSON. Default nothing. Other data is sent as an update. */
  data?: D;
}

export interface Presence<D> extends Omit<TopicState, "isIncomplete"> {
  /** The users on the topic, in the order in which they were learnt of. */
  readonly members: readonly Member<D>[];
  /** How many users are there: more than `members` if the server does not name all. */
  readonly users: number;
  /** The list has arrived: before it, nobody is known. */
  readonly isLoaded: boolean;
}

const EMPTY = { members: [], users: 0, isLoaded: false } as const;

export class PresenceStore<D> extends SubscriptionStore<unknown, Presence<D>> {
  #members = new Map<string, Member<D>>();
  #shown: readonly Member<D>[] | undefined = EMPTY.members;
  /** Users that are there and were not named. */
  #unnamed = 0;
  #isLoaded = false;
  /** Events since the list was asked for; they are applied to it again. */
  #events: PresenceEvent[] | undefined;
  /** Ends the request for the list. */
  #request: AbortController | undefined;
  /** The list has been asked for on this connection. */
  #isAsked = false;

  constructor(slot: ClientSlot, topics: readonly string[]) {
    super(slot, topics, {}, { ...stateOf(topics), ...EMPTY });
  }

  protected override reset(): void {
    this.#members = new Map();
    this.#shown = EMPTY.members;
    this.#unnamed = 0;
    this.#isLoaded = this.#isAsked = false;
    this.#events = undefined;
  }

  protected override start(client: Client): () => void {
    const stop = super.start(client);
    return () => {
      this.#request?.abort();
      stop();
    };
  }

  /**
   * Shows others the data of this user. The result ends that: the data stays until the last subscription of the
   * topic ends.
   */
  tell(data: object): () => void {
    const [topic] = this.topics;
    const { client } = this.slot;
    if (!topic || !client) return () => {};
    try {
      const told = client.subscribe(topic, { presence: data });
      return () => void told.unsubscribe();
    } catch (error) {
      this.fail(error);
      return () => {};
    }
  }

  protected override message(_message: Message): void {}

  protected override watch(subscription: Subscription): void {
    subscription.on("presence", (event) => {
      this.#events?.push(event);
      this.#apply(event);
      this.#shown = undefined;
      this.changed();
    });
  }

  /** Asks for the list whenever the topic is there anew: events were missed before. */
  protected override moved(client: Client): void {
    const isThere = this.state.status === "active" && client.state === "open";
    if (isThere && !this.#isAsked) void this.#load(client);
    this.#isAsked = isThere;
  }

  async #load(client: Client): Promise<void> {
    this.#request?.abort();
    const request = new AbortController();
    this.#request = request;
    const events: PresenceEvent[] = [];
    this.#events = events;
    const [topic] = this.topics;
    try {
      const found = (await presence(client, topic!, { signal: request.signal }))[topic!];
      if (request.signal.aborted) return;
      const named = Object.entries(found?.members ?? {});
      this.#members = new Map(named.map(([user, { data }]) => [user, { user, data: data as D | undefined }]));
      this.#unnamed = Math.max(0, (found?.users ?? 0) - named.length);
      for (const event of events) this.#apply(event);
      this.#isLoaded = true;
    } catch (error) {
      if (request.signal.aborted) return;
      this.fail(error);
    }
    this.#events = this.#shown = undefined;
    this.changed();
  }

  #apply({ change, user, data }: PresenceEvent): void {
    if (change !== "leave") this.#members.set(user, { user, data: data as D | undefined });
    else if (!this.#members.delete(user) && !this.#events) this.#unnamed = Math.max(0, this.#unnamed - 1);
  }

  protected override build(): Presence<D> {
    const { status, error, isRecovering } = this.state;
    this.#shown ??= [...this.#members.values()];
    const users = this.#shown.length + this.#unnamed;
    return { status, error, isRecovering, members: this.#shown, users, isLoaded: this.#isLoaded };
  }
}

/** The users on a topic. {@link PresenceStore.tell} adds this user with its data. */
export function presencePlan<D>(
  topic: string | null | undefined | false,
): Plan<Presence<D>, PresenceStore<D>> {
  return { keys: [topic], open: (slot) => new PresenceStore<D>(slot, namesOf(topic)) };
}
