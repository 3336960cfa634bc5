/** What a client asks about topics: their history, who is there, and their snapshots. */

import { DEVELOPMENT } from "#development";
import type { CallOptions, Client } from "./client.js";
import { publicationsOf } from "./core/answers.js";
import { TidewireError } from "./errors.js";
import type { Message, Position } from "./message.js";

export interface HistoryOptions extends CallOptions {
  /** Publications after this position or, with `newest`, before it. Default: all that are kept. */
  since?: Position;
  /** How many at most, 1 to 1000. The server may return fewer. Default 100. */
  limit?: number;
  /** From the oldest on, or from the newest backwards. Default `oldest`. */
  order?: "oldest" | "newest";
}

export interface HistoryPage<T = unknown> {
  /** The publications, in the order that was asked for. */
  publications: Message<T>[];
  /** The current position of the topic. */
  position: Position;
  /** The offset of the oldest publication that is kept. */
  oldest: number;
  /** There are more in this direction: ask again with the position of the last one as `since`. */
  hasMore: boolean;
  /** Nothing is missing between `since` and these publications. */
  isComplete: boolean;
}

export interface PresenceOptions extends CallOptions {
  /** Whether the members are left out. Default false. */
  countsOnly?: boolean;
  /** How many members of a topic at most. */
  limit?: number;
}

export interface PresenceInfo {
  users: number;
  connections: number;
  /** Not all members are named. */
  truncated: boolean;
  members: Record<string, { connections: number; data?: unknown }>;
}

/** Publications of a topic's history. */
export async function history<T = unknown>(
  client: Client,
  topic: string,
  options: HistoryOptions = {},
): Promise<HistoryPage<T>> {
  const { since, limit, order } = options;
  const { session } = client.driver;
  if (session.isOpen && session.features.history !== true) {
    throw new TidewireError("NOT_SUPPORTED", DEVELOPMENT && "this server gives no history", "server");
  }
  const answer = await client.driver.query("history_request", { topic, since, limit, order }, options);
  const { epoch, offset, oldest } = answer;
  return {
    publications: publicationsOf<T>(topic, answer),
    position: { epoch: String(epoch), offset: Number(offset) },
    oldest: Number(oldest),
    hasMore: answer.more === true,
    isComplete: answer.complete === true,
  };
}

/** Who is on topics with presence. Topics of which this user may not know are missing. */
export async function presence(
  client: Client,
  topics: string | readonly string[],
  options: PresenceOptions = {},
): Promise<Record<string, PresenceInfo>> {
  const { countsOnly, limit } = options;
  const list = typeof topics === "string" ? [topics] : topics;
  const request = { topics: list, counts_only: countsOnly, limit };
  const answer = await client.driver.query("presence_request", request, options);
  return (answer.topics ?? {}) as Record<string, PresenceInfo>;
}

/** Asks for snapshots of subscribed topics; they arrive at their subscriptions. */
export async function sync(
  client: Client,
  topics?: readonly string[],
  options: CallOptions = {},
): Promise<void> {
  await client.driver.query("sync_request", { topics, include_snapshots: true }, options);
}
