/**
 * What tabs share: locks and channels of the browser, and channels in memory for a tab's own hub.
 */

import { hex } from "../core/bytes.js";
import { randomBytes } from "../core/random.js";
import type { Group } from "./group.js";

/** The part of `BroadcastChannel` that is used. */
export interface Channel {
  postMessage(message: unknown): void;
  onmessage: ((event: { data: unknown }) => void) | null;
  close(): void;
}

/** A tab's means of finding the others. Tests have their own. */
export interface Realm {
  readonly locks: Pick<LockManager, "request">;
  channel(name: string): Channel;
  isVisible(): boolean;
  /** Calls `listener` when the page is shown or hidden. The result ends that. */
  onVisibility(listener: () => void): () => void;
  /**
   * For how long the leading tab may be hidden, in milliseconds, before a visible one gets the
   * connection.
   */
  readonly hiddenMsMax: number;
  /**
   * How long a tab waits for the leading one, in milliseconds, before it steals the lead from it.
   */
  readonly joinMsMax: number;
  /**
   * How long a visible tab hears nothing of the leading one, in milliseconds, before it asks whether that is
   * there; it asks twice, and then steals the lead. Each time is drawn from this to one and a half times as much.
   */
  readonly silentMsMax: number;
  /** The groups of which this tab is a member, by name. */
  readonly groups: Map<string, Group>;
}

let realm: Realm | undefined;

/** This page's realm; `undefined` without Web Locks or BroadcastChannel. */
export function browserRealm(): Realm | undefined {
  const { navigator, document, BroadcastChannel } = globalThis as Partial<typeof globalThis>;
  if (!navigator?.locks || !BroadcastChannel) return undefined;
  realm ??= {
    locks: navigator.locks,
    channel: (name) => new BroadcastChannel(name) as Channel,
    isVisible: () => document?.visibilityState !== "hidden",
    onVisibility(listener) {
      document?.addEventListener("visibilitychange", listener);
      return () => document?.removeEventListener("visibilitychange", listener);
    },
    hiddenMsMax: 30_000,
    joinMsMax: 4_000,
    silentMsMax: 600,
    groups: new Map(),
  };
  return realm;
}

/** Two ends of a channel in memory. Messages arrive in later microtasks, in order. */
export function channelPair(): [Channel, Channel] {
  const end = (): Channel & { other?: Channel } => ({
    onmessage: null,
    postMessage(data) {
      const { other } = this;
      queueMicrotask(() => other?.onmessage?.({ data }));
    },
    close() {
      this.onmessage = null;
    },
  });
  const [a, b] = [end(), end()];
  [a.other, b.other] = [b, a];
  return [a, b];
}

/** A name that no other pipe or hub has. */
export function uniqueName(): string {
  return hex(randomBytes(12));
}
