/**
 * One end of a pipe between a tab and the leading tab: frames in batches, and how many of them are
 * on their way.
 */

import type { CloseInfo, Frame } from "../transport.js";
import type { Channel } from "./realm.js";

/** The messages between tabs. Each has the fields of one line. */
export interface Wire {
  /** Frames, in order. */
  frames?: Frame[];
  /** The bytes of frames that were handled. */
  done?: number;
  /** The tab is visible or hidden; the hub answers that it is there. */
  visible?: boolean;
  /** The hub has accepted the pipe, or is there. */
  hub?: string;
  producer?: string | undefined;
  /** The pipe is over; for the tab, `alone` is the reason why it needs a connection of its own. */
  end?: CloseInfo;
  alone?: string | undefined;
}

/** Bytes that are done with before the other end learns of them. */
const DONE_BYTES_MIN = 64 * 1024;

export class Port {
  /** Bytes that the other end is not done with. */
  waiting = 0;
  readonly #channel: Channel;
  #out: Frame[] = [];
  #done = 0;

  /** `receive` gets what the other end sends, but for `done`, after which `drained` is called. */
  constructor(channel: Channel, receive: (message: Wire) => void, drained: () => void) {
    this.#channel = channel;
    channel.onmessage = ({ data }) => {
      const message = data as Wire;
      if (message.done === undefined) return receive(message);
      this.waiting -= message.done;
      drained();
    };
  }

  /** Sends a frame at the end of this turn. */
  send(frame: Frame): void {
    this.waiting += frame.length;
    if (this.#out.push(frame) === 1) queueMicrotask(() => this.#flush());
  }

  post(message: Wire): void {
    this.#flush();
    this.#channel.postMessage(message);
  }

  /** Releases the bytes of frames that were handled. */
  done(bytes: number): void {
    this.#done += bytes;
    if (this.#done < DONE_BYTES_MIN) return;
    this.#channel.postMessage({ done: this.#done });
    this.#done = 0;
  }

  close(): void {
    this.#out = [];
    this.#channel.onmessage = null;
    this.#channel.close();
  }

  #flush(): void {
    if (!this.#out.length) return;
    const frames = this.#out;
    this.#out = [];
    this.#channel.postMessage({ frames });
  }
}

/** How many bytes frames have, as pipes count them: a text by its characters. */
export function sizeOf(frames: readonly Frame[]): number {
  return frames.reduce((sum, { length }) => sum + length, 0);
}
