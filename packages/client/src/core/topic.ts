/** The state of a subscribed topic, and the requests that concern it. */

import { TidewireError } from "../errors.js";
import type { Message, Position } from "../message.js";
import { isObject } from "./envelope.js";
import type { Subscriber, WireOptions } from "./topics.js";

export interface Topic {
  readonly name: string;
  wire: WireOptions;
  /** The options but `presence`, which subscribers add to the subscription. */
  readonly key: string;
  readonly matches: ((topic: string) => boolean) | undefined;
  readonly subscribers: Set<Subscriber>;
  state: "idle" | "asked" | "active";
  /** It was active on an earlier connection. */
  wasActive: boolean;
  /** Missed publications have been requested on this connection. */
  isCatchingUp: boolean;
  /** What others learn of this subscriber has changed. */
  isChanged: boolean;
  /** The connection has it with the options of an earlier subscription, which ends first. */
  isReplaced: boolean;
  /** Subscribers that were added after the request had been sent. */
  readonly late: Set<Subscriber>;
  /** A new subscriber gets the newest publication, which is kept for those who join later. */
  last: Message | undefined;
  givesLast: boolean;
  /** A subscription that the server made: it counts as lost at this time, unless the server makes it again before. */
  lostMs: number;
  /** The position of such a subscription, if the server sent it while the answer to the renewal was on its way. */
  told: Position | "nowhere" | undefined;
}

/** A request to be sent. */
export interface TopicRequest {
  action: "subscribe" | "unsubscribe";
  topics: string[];
  payload: Record<string, unknown>;
  /** Its size, or more. */
  bytes: number;
}

/** A request without its topics. */
export interface Draft extends WireOptions {
  action: "subscribe" | "unsubscribe";
  recover?: true;
  replay?: number;
}

export function tokenOf(topic: Topic): string | undefined {
  for (const { tokens } of topic.subscribers) {
    const token = tokens?.(topic.name);
    if (token) return token;
  }
  return undefined;
}

/** The reason why the server does not give a topic, if its answer contains one. */
export function reasonOf(failures: readonly unknown[], topic: string): TidewireError | undefined {
  for (const failure of failures) {
    if (isObject(failure) && failure.topic === topic && typeof failure.code === "string") {
      const { code, message } = failure;
      return new TidewireError(code, typeof message === "string" && message, "application");
    }
  }
  return undefined;
}

export function isGaplessTopic({ wire }: Topic): boolean {
  return !wire.filter && !wire.queue_group && (!wire.overload || wire.overload === "disconnect");
}
