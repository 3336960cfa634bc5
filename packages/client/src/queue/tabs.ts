/** Tabs that share a store: which of them owns it, and the messages between them. */

import type { Refusal } from "./receipts.js";

/** A message from one tab to the others. */
export type TabMessage =
  /** There are messages in the store that were not there before. */
  | { type: "added" }
  /** Another tab owns the store now. */
  | { type: "owner" }
  /** The number of messages in the store. */
  | { type: "depth"; depth: number }
  /** What became of messages: acknowledged, or why not. */
  | { type: "settled"; rows: number[]; refusal?: Refusal };

export interface TabHandler {
  /** This tab has become the owner, or has ceased to be. */
  onOwner(isOwner: boolean): void;
  onMessage(message: TabMessage): void;
  /** This page was frozen, and has missed the messages of the others. */
  onReturn(): void;
}

/** The other tabs of this origin that use the store of this name. Needs Web Locks. */
export class Tabs {
  readonly #name: string;
  readonly #handler: TabHandler;
  readonly #listeners = new AbortController();
  #channel: BroadcastChannel | undefined;
  /** Ends the current request for the lock, or gives it back. */
  #leave: (() => void) | undefined;

  constructor(name: string, handler: TabHandler) {
    this.#name = name;
    this.#handler = handler;
  }

  /**
   * Resolves when it is known whether this tab is the owner now. It becomes so later when the owner
   * ends.
   */
  async join(): Promise<void> {
    const { signal } = this.#listeners;
    const leave = () => this.#suspend();
    const enter = () => {
      if (this.#leave) return;
      void this.#enter();
      this.#handler.onReturn();
    };
    // A frozen page sends nothing, so that another one has to own the store meanwhile.
    globalThis.document?.addEventListener("freeze", leave, { signal });
    globalThis.document?.addEventListener("resume", enter, { signal });
    globalThis.addEventListener?.("pagehide", leave, { signal });
    globalThis.addEventListener?.("pageshow", enter, { signal });
    await this.#enter();
  }

  tell(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }

  /** Gives the lock back. */
  close(): void {
    this.#listeners.abort();
    this.#suspend();
  }

  async #enter(): Promise<void> {
    this.#channel = new BroadcastChannel(this.#name);
    this.#channel.onmessage = ({ data }) => this.#handler.onMessage(data);
    const abort = new AbortController();
    this.#leave = () => abort.abort();
    // Without waiting first, because most often there is one tab.
    if (!(await this.#request({ ifAvailable: true }, abort.signal))) {
      void this.#request({ signal: abort.signal }, abort.signal);
    }
  }

  /** Resolves when the lock is held, or is not to be had. It is held until `left` is aborted. */
  #request(options: LockOptions, left: AbortSignal): Promise<boolean> {
    return new Promise((resolve) => {
      const held = (lock: Lock | null) => {
        if (!lock || left.aborted) return resolve(left.aborted);
        const ended = new Promise((end) => left.addEventListener("abort", end, { once: true }));
        this.#handler.onOwner(true);
        this.tell({ type: "owner" });
        resolve(true);
        return ended;
      };
      navigator.locks.request(this.#name, options, held).catch(() => resolve(false));
    });
  }

  #suspend(): void {
    if (!this.#leave) return;
    this.#handler.onOwner(false);
    this.#leave();
    this.#leave = undefined;
    this.#channel?.close();
    this.#channel = undefined;
  }
}
