/**
 * A pipe: what a client of this tab uses as its connection. It leads to the hub of the leading tab.
 */

import type { ResolvedOptions } from "../options.js";
import type {
  CloseInfo,
  OpenOptions,
  OutgoingFrame,
  Socket,
  SocketHandler,
  Transport,
} from "../transport.js";
import type { Group } from "./group.js";
import type { Hub } from "./hub.js";
import { Port, sizeOf, type Wire } from "./port.js";
import { channelPair, uniqueName } from "./realm.js";
import type { Tab } from "./tab.js";

/** What a pipe has, so that its tab can open the shared connection. */
export interface PipeOptions {
  readonly base: Transport;
  readonly options: ResolvedOptions;
  readonly open: OpenOptions;
  /** The tab needs a connection of its own from now on. */
  readonly alone: (reason: string) => void;
}

/** Bytes that are on their way and do not count yet, because their receipt is reported in batches. */
const UNTOLD_BYTES = 64 * 1024;
/** Tabs in the background reconnect later, so that a visible one leads. */
const HIDDEN_WAIT_MS = 300;

export class Pipe implements Socket {
  readonly options: PipeOptions;
  readonly producer: string | undefined;
  /** The hub has sent something. */
  isOpen = false;
  readonly #id = uniqueName();
  readonly #group: Group;
  #handler: SocketHandler | undefined;
  #port: Port | undefined;
  /** The hub's side, if this tab leads. */
  #local: { hub: Hub; tab: Tab } | undefined;
  #hubId: string | undefined;
  #isClosing = false;
  #isFull = false;
  /** The lock by which the leading tab sees that this one lives. */
  #release: (() => void) | undefined;
  /** Waits for the leading tab to accept this pipe, and then watches it: it may hang. */
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** The leading tab has sent something since it was asked whether it is there. */
  #hasHeard = false;

  constructor(group: Group, options: PipeOptions, handler: SocketHandler) {
    this.#group = group;
    this.options = options;
    this.#handler = handler;
    this.producer = options.options.queue?.producerId;
    group.add(this);
  }

  // For the client

  get bufferedBytes(): number {
    return Math.max((this.#port?.waiting ?? 0) - UNTOLD_BYTES, 0);
  }

  send(frame: OutgoingFrame): void {
    const data = typeof frame === "string" || frame instanceof Uint8Array ? frame : frame.data;
    // A copy of a view would include all the memory behind it.
    const isView = typeof data !== "string" && data.length < data.buffer.byteLength;
    this.#port?.send(isView ? data.slice() : data);
    this.#isFull ||= this.bufferedBytes > 0;
  }

  close(code: number, reason: string): void {
    if (!this.#handler || this.#isClosing) return;
    this.#isClosing = true;
    const info = { code, reason };
    this.#port?.post({ end: info });
    const { hub } = this.#local ?? {};
    this.#leave(code, reason);
    // The tab that leads waits for the server's answer to its close.
    void (hub?.isOver ? hub.closed : Promise.resolve()).then(() => this.#over(info));
  }

  terminate(): void {
    const { hub } = this.#local ?? {};
    this.#leave(1000, "");
    if (hub?.isOver) hub.terminate();
    this.#over({ code: 1006, reason: "" });
  }

  // For the group

  /** Leads to the hub of this tab. */
  attach(hub: Hub): void {
    if (this.#local) return;
    this.#port?.close();
    const [own, other] = channelPair();
    this.#port = this.#listen(own);
    this.#local = { hub, tab: hub.attach(other, true, this.#group.realm.isVisible()) };
  }

  /** Asks the leading tab, if there is one. */
  offer(): void {
    const { realm, name } = this.#group;
    const own = `${name}/${this.#id}`;
    this.#port = this.#listen(realm.channel(own));
    const hold = () => {
      if (!this.#handler || this.#isClosing) return undefined;
      return new Promise<void>((resolve) => {
        this.#release = resolve;
        this.#offer();
      });
    };
    void realm.locks.request(own, hold).catch(() => undefined);
    this.#timer = setTimeout(() => this.#group.steal(), realm.joinMsMax * (1 + Math.random() / 2));
  }

  #offer(): void {
    const visible = this.#group.realm.isVisible();
    if (!this.#local) this.#group.announce({ pipe: this.#id, visible, producer: this.producer });
  }

  /** Another tab's hub has begun. */
  led(hubId: string): void {
    if (hubId === this.#hubId) return;
    if (this.isOpen) this.lost();
    else if (this.#release) this.#offer();
  }

  /** The tab that had the connection is gone. */
  lost(): void {
    this.#ended({ code: 1001, reason: "the leading tab is gone" });
  }

  /** There can be no shared connection. */
  refuse(reason: string): void {
    this.options.alone(reason);
    this.lost();
  }

  tellVisible(visible: boolean): void {
    this.#port?.post({ visible });
    if (this.isOpen) this.#watchLeader();
  }

  /**
   * Asks the leading tab whether it is there when it has been silent for a while, and steals the lead from one
   * that does not answer twice: its page may stand at a breakpoint or a dialogue. The second time is for an
   * answer that is there and unread, because this page itself stood still. Tabs in the background do not ask,
   * because nobody looks at them.
   */
  #watchLeader(asked = 0): void {
    const { realm } = this.#group;
    clearTimeout(this.#timer);
    this.#hasHeard = false;
    if (!this.#port || this.#local || !realm.isVisible()) return;
    const waitMs = realm.silentMsMax * (1 + Math.random() / 2);
    this.#timer = setTimeout(() => {
      if (this.#hasHeard) this.#watchLeader();
      else if (asked > 1) this.#group.steal();
      else {
        this.#port?.post({ visible: true });
        this.#watchLeader(asked + 1);
      }
    }, waitMs);
  }

  #listen(channel: ConstructorParameters<typeof Port>[0]): Port {
    return new Port(
      channel,
      (message) => this.#receive(message),
      () => {
        if (!this.#isFull || this.bufferedBytes) return;
        this.#isFull = false;
        this.#handler?.onDrain();
      },
    );
  }

  #receive({ hub, producer, frames, end, alone }: Wire): void {
    this.#group.learn(producer);
    this.#hasHeard = true;
    if (hub && hub !== this.#hubId) {
      this.#hubId = hub;
      this.#watchLeader();
    }
    if (frames) {
      if (!this.isOpen) {
        this.isOpen = true;
        this.#handler?.onOpen();
      }
      this.#handler?.onMessages(frames);
      this.#port?.done(sizeOf(frames));
    }
    if (!end) return;
    if (alone !== undefined) this.options.alone(alone);
    this.#ended(end);
  }

  #ended(info: CloseInfo): void {
    // Nothing is wrong with the server: the next tab opens its connection at once.
    if (info.code === 1001 && this.isOpen) {
      const waitMs = this.#group.realm.isVisible() ? 0 : Math.ceil(HIDDEN_WAIT_MS * (1 + Math.random()));
      this.#handler?.onMessages([`{"c":"WSE","t":"reconnect","p":{"after_ms":${waitMs}}}`]);
    }
    this.#over(info);
  }

  #leave(code: number, reason: string): void {
    clearTimeout(this.#timer);
    this.#group.remove(this, code, reason);
    this.#release?.();
    this.#port?.close();
    this.#port = undefined;
  }

  #over(info: CloseInfo): void {
    const handler = this.#handler;
    this.#handler = undefined;
    this.#leave(1000, info.reason);
    handler?.onClose(info);
  }
}
