/**
 * The session's side of the queue of numbered messages (PROTOCOL 20). The core knows this interface
 * only; the queue is an entry point of its own.
 */

import type { TidewireError } from "../errors.js";
import type { Producer } from "./producer.js";
import type { Session } from "./session.js";

/** Priorities of messages, as `pri` has them: background, low, normal, high, critical. */
export type Priority = 1 | 3 | 5 | 8 | 10;

/** A message to keep until the server has acknowledged it. */
export interface QueueEntry {
  /**
   * The topic of a publication (`publish_request`); without one it is a message to the server's
   * application.
   */
  topic?: string;
  type: string;
  /** The payload as JSON text; of a binary one the base64 as such a text. */
  payload: string;
  /** The payload is binary. */
  binary?: true;
  /** The conflation key of a publication. */
  key?: string;
  priority: Priority;
  /**
   * When it is of no use any more, in milliseconds since 1970; the age limit of the queue holds as
   * well.
   */
  expiresMs?: number;
}

/** A message to send now. Its number is stored: after a crash it leaves again with the same one. */
export interface QueuedMessage extends QueueEntry {
  /** The producer's number, `n` of the envelope. */
  n: number;
}

/** What {@link QueuePort.add} returns when a message is stored. */
export interface AddedEntry {
  /**
   * Resolves when the server has acknowledged the message. Rejects with the server's error if it refused the
   * message, with `EXPIRED` if it was too old to be sent, with the client's own error if it knows that the server
   * would refuse the message, such as `MESSAGE_TOO_LARGE`, with `CONNECTION_LOST` if it is not known whether the
   * server accepted it, and with `CLOSED` if the client is closed first: the message then stays in the queue. A
   * rejection that nobody awaits is not reported as unhandled.
   */
  acknowledged: Promise<void>;
}

/** A report of a queue to the application, through its client. */
export type QueueReport =
  /**
   * The server has forgotten this producer, so it is not known whether it accepted these messages. With `resent`
   * they are sent again. Otherwise they stay in the store until the application calls `done`, when it has handled
   * the event. Further ones are reported after that.
   */
  | { type: "uncertain"; messages: QueueEntry[]; resent: boolean; done(): void }
  /** Messages that were too old to be sent, and are gone: their number. */
  | { type: "expired"; messages: number }
  /** A message that the server has refused, or would refuse, for its own fault. It is gone. */
  | { type: "refused"; message: QueueEntry; error: TidewireError }
  /** The store does not work or is not available. Pending writes are tried again until it works. */
  | { type: "queue_failed"; error: TidewireError }
  /** Messages are kept in memory only, and why. */
  | { type: "queue_in_memory"; reason: string };

/** What the session gives the queue. */
export interface QueueHost {
  /**
   * The queue may hold messages that were not there before, or `producerId` has changed. A session whose
   * `client_hello` named another producer than `producerId`, or none, needs a new connection to send for it.
   */
  wake(): void;
  report(report: QueueReport): void;
  /** Throws if the client accepts no further messages. */
  checkOpen?(): void;
}

/** Returns the error with which the server would refuse a message; `undefined` if nothing is known. */
export type Judge = (message: QueuedMessage) => TidewireError | undefined;

/** Makes the session's part of the queue. */
export type ProducerFactory = (session: Session, queue: QueuePort) => Producer;

/**
 * A queue, as the session uses it. All calls but `add` concern the owner only, and do nothing in
 * other tabs.
 */
export interface QueuePort {
  /** Makes the session's part of the queue, which is loaded with the queue. */
  readonly producer: ProducerFactory;
  /**
   * Opens the store. Resolves when messages can be added and it is known whether this client is the
   * owner.
   */
  open(host: QueueHost): Promise<void>;
  /**
   * The id for `client_hello` while this client is the owner: the only one that sends what the
   * store holds. undefined in the other tabs, which add to the same store, and while the page is
   * frozen.
   */
  readonly producerId: string | undefined;
  /** Numbered messages that may be without an acknowledgement at a time. */
  readonly window: number;
  /** Messages in the store, as far as this client knows. */
  readonly depth: number;
  /**
   * Resolves when the message is stored. Rejects with `BUSY` if there is no room, or with
   * `QUEUE_FAILED`.
   */
  add(entry: QueueEntry): Promise<AddedEntry>;
  /**
   * Applies `producer` of a `server_hello`. Numbers up to `last` are done, and later ones are given out again. In
   * another epoch than before the numbered messages are uncertain. undefined: this server keeps no producers, and
   * the queue gives out nothing. A message for which `judge` returns an error is reported and not given out;
   * those behind it get its number. To be called for each connection.
   */
  resume(producer: { epoch: string; last: number } | undefined, judge?: Judge): Promise<void>;
  /**
   * Gives out at most `count` messages of `bytes` of payload together, but at least one if there is any: first
   * those that have a number after the last that was given out, then others by priority and age. Empty if there
   * are none; then `wake` follows when there may be. The result is also empty if a `resume` or `rewind` overtakes
   * the call, or if the store fails.
   */
  take(count: number, bytes: number): Promise<QueuedMessage[]>;
  /** The server has accepted all numbers up to `last` (`message_ack`). */
  acknowledge(last: number): void;
  /**
   * The server has refused message `n` by an error of its own. Its acknowledgement removes it, or the next `resume`. With
   * `isTemporary` the error counts only if the server acknowledges the message all the same.
   */
  refused(n: number, error: TidewireError, isTemporary?: boolean): void;
  /**
   * Numbers after `last` have to be given out again (`MESSAGE_GAP`, `RATE_LIMITED`). False if the next one was refused
   * for good and not acknowledged: only a `resume` gets past it.
   */
  rewind(last: number): boolean;
  /**
   * Stores the messages that are not stored yet and gives up the ownership. Unacknowledged messages stay in the
   * store.
   */
  close(): Promise<void>;
}

/** What a message of a queue may have. */
export interface QueuedOptions {
  /** 1, 3, 5, 8 or 10: of what waits, the highest leaves first. Default 5. */
  priority?: Priority;
  /**
   * Ends the waiting: the call rejects with `ABORTED`. A message that is stored by then stays in the queue and is sent;
   * a call whose signal was aborted before stores nothing.
   */
  signal?: AbortSignal;
}

export interface QueuedPublishOptions extends QueuedOptions {
  /** The type of the publication. Default `message`. */
  type?: string;
  /** The conflation key: a newer publication with the same key replaces one that waits on the server. */
  key?: string;
}

/** A queue to be given to a client as its option `queue`. It belongs to one client at a time. */
export interface MessageQueue extends QueuePort {
  /**
   * Sends a numbered message, once and in order across reconnections. Resolves when the server has accepted it.
   * Rejects with `INVALID_ARGUMENT` for a type of the protocol and for a payload that would not arrive unchanged,
   * and with the server's code if it refuses the message. A refused message leaves the queue, and the client
   * reports it by the event `refused`.
   */
  send(type: string, payload?: unknown, options?: QueuedOptions): Promise<void>;
  /** Publishes once and in order across reconnections. Resolves when the server has accepted it. */
  publish(topic: string, payload: unknown, options?: QueuedPublishOptions): Promise<void>;
  /** As `send`, but resolves when the message is stored; it leaves when there is a connection. */
  sendLater(type: string, payload?: unknown, options?: QueuedOptions): Promise<void>;
}
