/**
 * State of a room in a client: the whole room once, and then its events. The store asks for the
 * whole room again when events are missing, such as after a restart of the server.
 */

import type { Client, Message, Subscription } from "@tidewire/client";
import { applyEvent, type RoomEvent, type RoomView } from "../core/view.js";

export interface RoomState {
  view: RoomView | undefined;
  /** Why there is no room. */
  error: Error | undefined;
  /** The time of this machine minus the time of the server, in milliseconds. */
  offsetMs: number;
}

type RoomMessage = Message<RoomEvent["payload"]>;

export class RoomStore {
  readonly #client: Client;
  readonly #room: string;
  readonly #subscription: Subscription<RoomEvent["payload"]>;
  readonly #listeners = new Set<() => void>();
  readonly #off: (() => void)[];
  #state: RoomState = { view: undefined, error: undefined, offsetMs: 0 };
  /** Events that arrived while the room was asked for; `undefined` while nothing is asked. */
  #pending: RoomEvent[] | undefined;
  #isStale = true;
  #isClosed = false;

  constructor(client: Client, room: string) {
    this.#client = client;
    this.#room = room;
    this.#subscription = client.subscribe(`rooms.${room}`);
    const reload = () => this.#load();
    this.#off = [
      this.#subscription.on("message", (message) => this.#receive(message)),
      this.#subscription.on("gap", reload),
      this.#subscription.on("unrecovered", reload),
      client.on("connected", () => {
        if (this.#isStale) this.#load();
      }),
    ];
    this.#load();
  }

  get = (): RoomState => this.#state;

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  close(): void {
    this.#isClosed = true;
    for (const off of this.#off) off();
    void this.#subscription.unsubscribe();
  }

  #receive({ type, payload }: RoomMessage): void {
    const event = { type, payload } as RoomEvent;
    if (this.#pending) this.#pending.push(event);
    else this.#apply([event]);
  }

  #apply(events: readonly RoomEvent[]): void {
    let { view } = this.#state;
    for (const event of events) {
      view = view && applyEvent(view, event);
      if (!view) return this.#load();
    }
    this.#set({ ...this.#state, view });
  }

  /** Asks for the whole room. Events that arrive meanwhile are applied afterwards. */
  #load(): void {
    this.#isStale = true;
    if (this.#pending) return;
    this.#pending = [];
    this.#ask().then(
      (view) => {
        this.#isStale = false;
        this.#set({ view, error: undefined, offsetMs: Date.now() - view.clockAtMs });
        const pending = this.#pending ?? [];
        this.#pending = undefined;
        this.#apply(pending);
      },
      (error: Error) => {
        this.#pending = undefined;
        // The client opens a lost connection again, and then the room is asked for. Other errors
        // are shown.
        if ((error as { code?: string }).code !== "CONNECTION_LOST") this.#set({ ...this.#state, error });
      },
    );
  }

  async #ask(): Promise<RoomView> {
    // The subscription is there before the question, so that no event falls between the two.
    await this.#subscription.ready();
    return this.#client.request<RoomView>("room", { room: this.#room });
  }

  #set(state: RoomState): void {
    if (this.#isClosed) return;
    this.#state = state;
    for (const listener of this.#listeners) listener();
  }
}
