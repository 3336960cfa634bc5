/** Names of topics and patterns (PROTOCOL 19.1), and what subscriptions know of them. */

import type { TidewireError } from "../errors.js";
import type { Gap, PresenceEvent, Unrecovered } from "../events.js";
import type { Message, Position } from "../message.js";

export function isPattern(topic: string): boolean {
  return /[*>]/.test(topic);
}

/** A test for the topics that a pattern matches. */
export function compilePattern(pattern: string): (topic: string) => boolean {
  const segments = pattern.split(".");
  const isOpen = segments[segments.length - 1] === ">";
  return (topic) => {
    const names = topic.split(".");
    if (isOpen ? names.length < segments.length : names.length !== segments.length) return false;
    return segments.every((segment, index) => segment === "*" || segment === names[index] || segment === ">");
  };
}

/** Options of a subscription as they stand in the request (PROTOCOL 7.5). */
export interface WireOptions {
  filter?: object;
  overload?: string;
  queue_group?: string;
  acknowledge?: true;
  window?: number;
  presence?: object;
  renew?: true;
}

/** How a topic stands after the server's answer. */
export interface ActiveTopic {
  position: Position | undefined;
  /** Nothing was missed since the position that the client had. */
  recovered: boolean;
  /** Publications that the server sends again. */
  count: number;
  /** Another subscriber had the topic already: nothing is sent again for this one. */
  isShared: boolean;
}

/** One subscription of the application. */
export interface Subscriber {
  /** Whether missed publications are wanted. */
  readonly recover: boolean;
  /** Positions to recover from at the start, by topic. */
  readonly from: Readonly<Record<string, Position>>;
  /** How many of the newest publications are wanted at the start. */
  readonly replay: number;
  /** Gives the token that allows a topic. */
  readonly tokens?: ((topic: string) => string | undefined) | undefined;
  active(topic: string, info: ActiveTopic): void;
  /** The server refuses the topic or has ended its subscription. The subscriber is removed from it already. */
  failed(topic: string, error: TidewireError, wasActive: boolean): void;
  message(message: Message): void;
  gap(gap: Gap): void;
  unrecovered(event: Unrecovered): void;
  presence(event: PresenceEvent): void;
}
