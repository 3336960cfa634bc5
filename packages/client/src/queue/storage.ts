/** Storage of a queue: one row for each message, and the data beside the messages. */

import { DEVELOPMENT } from "#development";
import type { QueueEntry } from "../core/queue-port.js";
import { TidewireError } from "../errors.js";

/**
 * The state of a message: never sent; with a number; or uncertain, because it is not known whether the server
 * accepted it.
 */
export const WAITING = 0;
export const NUMBERED = 1;
export const UNCERTAIN = 2;

/** A message before it has a row. */
export interface NewRow extends QueueEntry {
  /** {@link WAITING}, {@link NUMBERED} or {@link UNCERTAIN}. */
  state: number;
  /**
   * Its place among those of its state: by priority while waiting, the number when numbered, else
   * 0.
   */
  order: number;
  /** Bytes of its payload. */
  bytes: number;
}

/**
 * A stored message. `expiresMs` is set while it waits only: what may have been sent does not
 * expire.
 */
export interface Row extends NewRow {
  /** Grows with each message that is stored, and is never used again. */
  row: number;
}

/** The data of a store beside the messages. */
export interface Meta {
  /** The producer's id, made with the store. */
  producer: string;
  /** The epoch in which the numbered messages have their numbers. */
  epoch: string | undefined;
}

export interface Depth {
  messages: number;
  bytes: number;
}

export interface Limits {
  messagesMax: number;
  bytesMax: number;
}

/**
 * Keeps messages. What a call has resolved survives whatever the storage promises to survive. Calls
 * may overlap.
 */
export interface Storage {
  /** Messages in the store after the last call, and the bytes of their payloads. */
  readonly depth: Depth;
  /** Opens or makes the store, with `producer` for a new one. */
  open(producer: string): Promise<Meta>;
  /** Stores messages in one commit. Each one's row, or undefined where there was no room. */
  add(rows: readonly NewRow[], limits: Limits): Promise<(number | undefined)[]>;
  /** The first rows of one state, by order and row. */
  select(state: number, count: number): Promise<Row[]>;
  /** Waiting rows that expire within these times. */
  expiring(fromMs: number, toMs: number, count: number): Promise<Row[]>;
  /**
   * Changes and deletes rows, and sets the epoch, all or nothing. Rows to delete may be gone
   * already.
   */
  update(changed: readonly Row[], deleted: readonly Row[], epoch?: string): Promise<void>;
  /** Those of these rows that are not in the store. */
  missing(rows: readonly number[]): Promise<number[]>;
  close(): Promise<void>;
}

/** The place of a message among those that wait: the most urgent first. */
export function waitingOrder({ priority }: QueueEntry): number {
  return 10 - priority;
}

/** The message of a row. */
export function entryOf({
  row: _,
  state: _1,
  order: _2,
  bytes: _3,
  expiresMs: _4,
  ...entry
}: Row): QueueEntry {
  return entry;
}

/** The first of these rows, at least one and not many more bytes than an event should have. */
export function pageOf(rows: readonly Row[]): Row[] {
  let bytes = 0;
  const end = rows.findIndex((row, index) => {
    bytes += row.bytes;
    return index > 0 && bytes > PAGE_BYTES_MAX;
  });
  return end < 0 ? [...rows] : rows.slice(0, end);
}

/** What went wrong with a storage, as an error of the client. */
export function failure(cause: unknown): TidewireError {
  if (cause instanceof TidewireError) return cause;
  const { name, message } = cause as Error;
  return new TidewireError("QUEUE_FAILED", DEVELOPMENT && `the queue cannot be used: ${message || name}`, {
    cause,
  });
}

/** Messages that are stored, expired or reported together. */
export const COMMIT_MAX = 1024;
const PAGE_BYTES_MAX = 1024 * 1024;
