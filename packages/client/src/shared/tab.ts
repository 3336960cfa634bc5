/** A tab, as the hub sees it: the end of a pipe, behind which a client has its session. */

import type { CloseInfo, Frame } from "../transport.js";
import { Port, type Wire } from "./port.js";
import type { Channel } from "./realm.js";

/** What may wait for a tab that does not read, in bytes. */
const WAITING_BYTES_MAX = 16 * 1024 * 1024;

export interface TabHost {
  received(tab: Tab, message: Wire): void;
  /** The tab does not read. */
  stuck(tab: Tab): void;
}

export class Tab {
  /** Whether it is in the leading tab itself. */
  readonly isLocal: boolean;
  isVisible: boolean;
  /** The tab has `server_ready`. */
  isOpen = false;
  isOver = false;
  /** Bytes of the tab's frames that the shared connection has no room for. */
  owed = 0;
  readonly #host: TabHost;
  readonly #port: Port;
  /** Requests of which the publications wait for the answer. */
  #holds = 0;
  #answers: Frame[] = [];
  #held: Frame[] = [];
  #heldBytes = 0;

  constructor(channel: Channel, isLocal: boolean, isVisible: boolean, host: TabHost) {
    this.isLocal = isLocal;
    this.isVisible = isVisible;
    this.#host = host;
    this.#port = new Port(
      channel,
      (message) => host.received(this, message),
      () => undefined,
    );
  }

  send(frame: Frame): void {
    if (this.isOver) return;
    if (!this.isLocal && this.#port.waiting + this.#heldBytes > WAITING_BYTES_MAX)
      return this.#host.stuck(this);
    if (this.#holds === 0) return this.#port.send(frame);
    this.#held.push(frame);
    this.#heldBytes += frame.length;
  }

  /** Sends the answer to a subscription, and the frames that belong to it, before the held frames. */
  answer(frames: Frame[]): void {
    if (this.#holds) this.#answers.push(...frames);
    else for (const frame of frames) this.send(frame);
  }

  /** From here on frames wait for a `release`. */
  hold(): void {
    this.#holds++;
  }

  release(): void {
    if (--this.#holds > 0) return;
    const frames = [...this.#answers, ...this.#held];
    this.#answers = [];
    this.#held = [];
    this.#heldBytes = 0;
    for (const frame of frames) this.send(frame);
  }

  post(message: Wire): void {
    if (!this.isOver) this.#port.post(message);
  }

  done(bytes: number): void {
    if (!this.isOver && bytes) this.#port.done(bytes);
  }

  end(info: CloseInfo, more: Wire = {}): void {
    if (this.isOver) return;
    this.#port.post({ ...more, end: info });
    this.isOver = true;
    this.#held = this.#answers = [];
    this.#port.close();
  }
}
