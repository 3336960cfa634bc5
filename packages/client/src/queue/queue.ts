/** Queue of numbered messages: each is kept until the server has acknowledged it (PROTOCOL 20). */

import { DEVELOPMENT } from "#development";
import { base64, hex } from "../core/bytes.js";
import { json } from "../core/json.js";
import { bytesOf, isWhole, unsendable } from "../core/payload.js";
import { makeProducer } from "../core/producer.js";
import type {
  AddedEntry,
  Judge,
  MessageQueue,
  QueuedMessage,
  QueuedOptions,
  QueuedPublishOptions,
  QueueEntry,
  QueueHost,
  QueueReport,
} from "../core/queue-port.js";
import { randomBytes } from "../core/random.js";
import { checkType } from "../core/types.js";
import { aborted, TidewireError } from "../errors.js";
import { Appender } from "./appender.js";
import { limitsOf, type QueueLimits } from "./limits.js";
import { Receipts, type Refusal } from "./receipts.js";
import {
  COMMIT_MAX,
  entryOf,
  failure,
  type Meta,
  type NewRow,
  NUMBERED,
  pageOf,
  type Row,
  type Storage,
  UNCERTAIN,
  WAITING,
  waitingOrder,
} from "./storage.js";
import { type TabMessage, Tabs } from "./tabs.js";

/** Where a queue keeps its messages. */
export interface Place {
  storage: Storage;
  /** The name by which tabs share the storage; undefined if nobody else can use it. */
  sharedAs?: string;
  /** Why the storage is memory, if that was not asked for. */
  inMemoryBecause?: string;
}

/** A message that cannot be sent, and why. */
interface Refused {
  row: Row;
  error: TidewireError;
}

export class Queue implements MessageQueue {
  readonly producer = makeProducer;
  readonly #limits: QueueLimits;
  readonly #appender: Appender;
  readonly #place: (notWorking?: string) => Place;
  #host: QueueHost | undefined;
  #opened: Promise<void> | undefined;
  #closed: Promise<void> | undefined;
  #storage!: Storage;
  #meta!: Meta;
  #tabs: Tabs | undefined;
  #isOwner = false;
  #depth = 0;

  #receipts = new Receipts();

  /** Jobs of the owner run one after another. */
  #jobs: Promise<unknown> = Promise.resolve();
  /** Grows when what earlier jobs were asked for is of no use any more. */
  #round = 0;
  #wakes = 0;
  #isFailing = false;
  #endPause: (() => void) | undefined;

  /** Whether a connection speaks for this producer. */
  #isResumed = false;
  #judge: Judge = () => undefined;
  /** Messages with a number, by number; the last one that was given out; the next number. */
  #numbered: Row[] = [];
  #sent = 0;
  #next = 1;
  /** Acknowledged messages that are still in the store. */
  #done: Row[] = [];
  /** Rows that the server has refused and not acknowledged. */
  readonly #refusals = new Map<number, { error: TidewireError; isTemporary: boolean | undefined }>();
  #isReportingUncertain = false;

  /**
   * `place` gives the storage of an opening; `notWorking` is the reason why the first storage cannot be used.
   */
  constructor(limits: Partial<QueueLimits>, place: (notWorking?: string) => Place) {
    this.#limits = limitsOf(limits);
    this.#place = place;
    this.#appender = new Appender(this.#limits, (rows) => this.#append(rows));
  }

  get producerId(): string | undefined {
    return this.#isOwner ? this.#meta.producer : undefined;
  }

  get window(): number {
    return this.#limits.window;
  }

  get depth(): number {
    return this.#depth;
  }

  open(host: QueueHost): Promise<void> {
    if (this.#host) {
      const words = DEVELOPMENT && "this queue belongs to another client already; make one for each";
      return Promise.reject(new TidewireError("INVALID_ARGUMENT", words));
    }
    this.#host = host;
    this.#closed = undefined;
    this.#opened = this.#open().catch((error) => {
      this.#host = undefined;
      throw failure(error);
    });
    return this.#opened;
  }

  async #open(): Promise<void> {
    let place = this.#place();
    const producer = hex(randomBytes(16));
    try {
      this.#meta = await place.storage.open(producer);
    } catch (error) {
      place = this.#place(failure(error).message);
      if (!place.inMemoryBecause) throw error;
      this.#meta = await place.storage.open(producer);
    }
    this.#storage = place.storage;
    this.#updateDepth();
    if (place.inMemoryBecause) this.#report({ type: "queue_in_memory", reason: place.inMemoryBecause });
    if (!place.sharedAs) return this.#setOwner(true);
    this.#tabs = new Tabs(place.sharedAs, {
      onOwner: (isOwner) => this.#setOwner(isOwner),
      onMessage: (message) => this.#handleMessage(message),
      onReturn: () => void this.#settleMissing(),
    });
    await this.#tabs.join();
  }

  async close(): Promise<void> {
    this.#closed ??= this.#host && this.#close();
    await this.#closed;
  }

  async #close(): Promise<void> {
    await this.#opened?.catch(() => {});
    this.#host = undefined;
    this.#round += 1;
    this.#endPause?.();
    await this.#appender.finish();
    await this.#jobs;
    this.#setOwner(false);
    await this.#storage.close();
    this.#tabs?.close();
    this.#tabs = undefined;
    const receipts = this.#receipts;
    this.#receipts = new Receipts();
    receipts.settle(receipts.rows, {
      code: "CLOSED",
      message: "the client was closed; the message stays in the queue",
    });
  }

  async add(entry: QueueEntry): Promise<AddedEntry> {
    await this.#opened;
    if (!this.#host)
      throw new TidewireError("CLOSED", DEVELOPMENT && "the queue has no client, or its client is closed");
    return this.#appender.add(entry);
  }

  send(type: string, payload?: unknown, options?: QueuedOptions): Promise<void> {
    return this.#enqueue({ type, ...options }, payload, true);
  }

  publish(topic: string, payload: unknown, options?: QueuedPublishOptions): Promise<void> {
    return this.#enqueue({ topic, type: "message", ...options }, payload, true);
  }

  sendLater(type: string, payload?: unknown, options?: QueuedOptions): Promise<void> {
    return this.#enqueue({ type, ...options }, payload, false);
  }

  /** Stores a message; with `waits` it also waits until the server has accepted it. */
  async #enqueue(
    { signal, ...entry }: Omit<QueueEntry, "payload" | "priority"> & QueuedOptions,
    payload: unknown,
    waits: boolean,
  ): Promise<void> {
    if (signal?.aborted) throw aborted(signal);
    this.#host?.checkOpen?.();
    checkType(entry.type);
    for (const name of ["topic", "key"] as const) {
      if (!isWhole(entry[name] ?? "")) throw unsendable(name, entry[name]);
    }
    const bytes = bytesOf(payload);
    const value = bytes ? base64(bytes) : payload === undefined ? {} : payload;
    const text = json.payload(value) as string;
    const added = this.add({ priority: 5, ...entry, payload: text, ...(bytes && { binary: true }) });
    const done = added.then(({ acknowledged }) => (waits ? acknowledged : undefined));
    await (signal ? unlessAborted(done, signal) : done);
  }

  /** Stores messages; the receipt of each, or undefined where there was no room. */
  async #append(rows: NewRow[]): Promise<(Promise<void> | undefined)[]> {
    const added = await this.#storage.add(rows, this.#limits).catch((error) => {
      this.#reportFailure(error);
      throw failure(error);
    });
    this.#isFailing = false;
    this.#updateDepth();
    const receipts = added.map((row) => (row === undefined ? undefined : this.#receipts.add(row)));
    if (this.#isOwner) this.#wake();
    else this.#tabs?.tell({ type: "added" });
    return receipts;
  }

  async resume(
    producer: { epoch: string; last: number } | undefined,
    judge: Judge = () => undefined,
  ): Promise<void> {
    this.#round += 1;
    this.#isResumed = false;
    if (!producer) return;
    this.#judge = judge;
    await this.#insist(this.#round, (round) => this.#resume(producer, round));
    this.#wake();
  }

  async #resume({ epoch, last }: { epoch: string; last: number }, round: number): Promise<void> {
    const numbered = await this.#storage.select(NUMBERED, Number.POSITIVE_INFINITY);
    if (round !== this.#round) return;
    const isForgotten = this.#meta.epoch !== undefined && this.#meta.epoch !== epoch;
    const settled = isForgotten ? numbered : numbered.filter(({ order }) => order <= last);
    if (isForgotten)
      await this.#storage.update(
        settled.map((row) => this.#forgotten(row)),
        [],
        epoch,
      );
    else {
      this.#settleAcknowledged(settled);
      await this.#storage.update([], settled, epoch);
    }
    this.#meta.epoch = epoch;
    this.#numbered = await this.#renumber(numbered.slice(settled.length), last);
    this.#updateDepth();
    const lastNumber = this.#numbered.at(-1)?.order ?? 0;
    this.#next = Math.max(isForgotten ? 1 : 0, lastNumber + 1, last + 1);
    this.#sent = last;
    this.#isResumed = round === this.#round;
    if (isForgotten) await this.#handleForgotten(settled);
  }

  /**
   * Removes the numbered messages that the server will never accept. The others get the numbers that the server
   * expects next.
   */
  async #renumber(rows: Row[], last: number): Promise<Row[]> {
    const refused: Refused[] = [];
    const left: Row[] = [];
    const moved: Row[] = [];
    for (const row of rows) {
      const order = last + left.length + 1;
      const known = this.#refusals.get(row.row);
      const error = (!known?.isTemporary && known?.error) || this.#judge({ ...entryOf(row), n: order });
      if (error) {
        refused.push({ row, error });
        continue;
      }
      left.push(row.order === order ? row : { ...row, order });
      if (row.order !== order) moved.push(left.at(-1)!);
    }
    // Two steps, because a number is free when its row is gone.
    if (refused.length)
      await this.#storage.update(
        [],
        refused.map(({ row }) => row),
      );
    if (moved.length) await this.#storage.update(moved, []);
    this.#refuse(refused.filter(({ row }) => !this.#refusals.has(row.row)));
    this.#refusals.clear();
    return left;
  }

  /** Settles messages that are gone from the store for their own fault, and reports them. */
  #refuse(refused: readonly Refused[]): void {
    for (const { row, error } of refused) {
      const { code, message } = error;
      this.#settle([row], { code, message });
      this.#report({ type: "refused", message: entryOf(row), error });
    }
  }

  /** A message of which it is not known whether the server accepted it. */
  #forgotten(row: Row): Row {
    return this.#limits.uncertain === "drop"
      ? { ...row, state: UNCERTAIN, order: 0 }
      : { ...row, state: WAITING, order: waitingOrder(row) };
  }

  async #handleForgotten(rows: Row[]): Promise<void> {
    if (this.#limits.uncertain === "drop") {
      this.#settle(rows, {
        code: "CONNECTION_LOST",
        message: "whether the server took the message is not known",
      });
      await this.#reportUncertain();
      return;
    }
    for (let page = pageOf(rows); page.length > 0; page = pageOf(rows)) {
      rows = rows.slice(page.length);
      this.#report({ type: "uncertain", messages: page.map(entryOf), resent: true, done: () => {} });
    }
  }

  take(count: number, bytes: number): Promise<QueuedMessage[]> {
    const round = this.#round;
    return this.#job(async () => {
      for (;;) {
        if (round !== this.#round || !this.#isResumed) return [];
        const wakes = this.#wakes;
        try {
          const { messages, isAny } = await this.#take(count, bytes, round);
          this.#isFailing = false;
          if (messages.length > 0) return messages;
          if (isAny || wakes !== this.#wakes) continue;
          // A wake that arrives before the caller has the answer would be lost.
          setTimeout(() => wakes !== this.#wakes && this.#wake());
          return messages;
        } catch (error) {
          this.#reportFailure(error);
          setTimeout(() => this.#wake(), RETRY_MS);
          return [];
        }
      }
    });
  }

  /** Reads the store once. `isAny`: the store held messages, though they were not to be sent. */
  async #take(
    count: number,
    bytesMax: number,
    round: number,
  ): Promise<{ messages: QueuedMessage[]; isAny: boolean }> {
    const nowMs = Date.now();
    const expired = await this.#storage.expiring(Number.NEGATIVE_INFINITY, nowMs - 1, COMMIT_MAX);
    const again = this.#numbered.filter(({ order }) => order > this.#sent);
    const room = Math.max(count - again.length, 0);
    // No more than will fit, as far as that can be known before they are read.
    const { depth } = this.#storage;
    const fitting = Math.min(room, Math.ceil((bytesMax * depth.messages) / Math.max(depth.bytes, 1)) + 1);
    const waiting = room > 0 ? await this.#storage.select(WAITING, fitting + expired.length) : [];
    if (round !== this.#round) return NOTHING;
    const rows = [...again];
    const refused: Refused[] = [];
    for (const row of waiting) {
      if ((row.expiresMs ?? nowMs) < nowMs) continue;
      const error = this.#judge({ ...entryOf(row), n: this.#next + rows.length - again.length });
      if (error) refused.push({ row, error });
      else rows.push(row);
    }
    let bytes = 0;
    const end = rows.findIndex((row, index) => {
      bytes += row.bytes;
      return index > 0 && (index >= count || bytes > bytesMax);
    });
    const taken = end < 0 ? rows : rows.slice(0, end);
    const numbered = taken.slice(again.length).map(({ expiresMs: _, ...row }, index) => {
      return { ...row, state: NUMBERED, order: this.#next + index };
    });
    this.#settle(expired, { code: "EXPIRED", message: "the message was too old to be sent" });
    const deleted = [...expired, ...refused.map(({ row }) => row)];
    if (numbered.length + deleted.length > 0) await this.#storage.update(numbered, deleted);
    this.#next += numbered.length;
    this.#numbered.push(...numbered);
    this.#updateDepth();
    if (expired.length > 0) this.#report({ type: "expired", messages: expired.length });
    this.#refuse(refused);
    // They have their numbers, but what asked for them is gone.
    if (round !== this.#round) return NOTHING;
    const sent = [...taken.slice(0, again.length), ...numbered];
    this.#sent = sent.at(-1)?.order ?? this.#sent;
    return { messages: sent.map((row) => ({ ...entryOf(row), n: row.order })), isAny: deleted.length > 0 };
  }

  acknowledge(last: number): void {
    if (!this.#isResumed) return;
    const upTo = Math.min(last, this.#sent);
    const done = this.#numbered.filter(({ order }) => order <= upTo);
    if (done.length === 0) return;
    this.#numbered = this.#numbered.slice(done.length);
    // Those who wait learn it before the store does. If it never does, the message is sent again,
    // and dropped there.
    this.#settleAcknowledged(done);
    this.#done.push(...done);
    if (this.#done.length === done.length) void this.#insist(undefined, () => this.#deleteDone());
  }

  async #deleteDone(): Promise<void> {
    const done = [...this.#done];
    if (done.length === 0) return;
    await this.#storage.update([], done);
    this.#done = this.#done.slice(done.length);
    this.#updateDepth();
    await this.#deleteDone();
  }

  /** Settles messages that the server has acknowledged: those that it has refused by the reason. */
  #settleAcknowledged(rows: readonly Row[]): void {
    this.#settle(rows.filter(({ row }) => !this.#refusals.has(row)));
    for (const row of rows) {
      const refusal = this.#refusals.get(row.row);
      if (refusal?.isTemporary) this.#refuse([{ row, error: refusal.error }]);
      this.#refusals.delete(row.row);
    }
  }

  refused(n: number, error: TidewireError, isTemporary?: boolean): void {
    const row = this.#numbered.find(({ order }) => order === n);
    if (!row || this.#refusals.has(row.row)) return;
    this.#refusals.set(row.row, { error, isTemporary });
    if (!isTemporary) this.#refuse([{ row, error }]);
  }

  rewind(last: number): boolean {
    this.#round += 1;
    this.#sent = Math.min(this.#sent, last);
    for (const [row, { isTemporary }] of this.#refusals) if (isTemporary) this.#refusals.delete(row);
    this.#wake();
    const next = this.#numbered.find(({ order }) => order === last + 1);
    return !next || !this.#refusals.has(next.row);
  }

  #setOwner(isOwner: boolean): void {
    if (isOwner === this.#isOwner) return;
    this.#isOwner = isOwner;
    this.#round += 1;
    this.#isResumed = this.#isReportingUncertain = false;
    this.#numbered = [];
    this.#refusals.clear();
    this.#done = [];
    this.#next = 1;
    if (isOwner) void this.#insist(undefined, () => this.#handleOwner());
    this.#wake();
  }

  /** Looks at what those who owned the store before have left. */
  async #handleOwner(): Promise<void> {
    this.#meta = await this.#storage.open(this.#meta.producer);
    const { ageMaxMs, messagesMax } = this.#limits;
    if (ageMaxMs > 0) {
      // A message that was stored while the clock was ahead would stay until the clock is there
      // again.
      const expiresMs = Date.now() + ageMaxMs;
      const late = await this.#storage.expiring(expiresMs + 1, Number.POSITIVE_INFINITY, messagesMax);
      if (late.length > 0)
        await this.#storage.update(
          late.map((row) => ({ ...row, expiresMs })),
          [],
        );
    }
    await this.#reportUncertain();
    void this.#settleMissing();
  }

  /**
   * Reports uncertain messages, some at a time. They are kept until the application has handled
   * that.
   */
  async #reportUncertain(): Promise<void> {
    if (this.#isReportingUncertain || !this.#isOwner) return;
    this.#isReportingUncertain = true;
    const page = pageOf(await this.#storage.select(UNCERTAIN, COMMIT_MAX));
    this.#isReportingUncertain = page.length > 0;
    if (page.length === 0) return;
    let isDone = false;
    const forget = async () => {
      await this.#storage.update([], page);
      this.#updateDepth();
      this.#isReportingUncertain = false;
      await this.#reportUncertain();
    };
    const done = () => {
      if (!isDone) void this.#insist(undefined, forget);
      isDone = true;
    };
    this.#report({ type: "uncertain", messages: page.map(entryOf), resent: false, done });
  }

  #handleMessage(message: TabMessage): void {
    if (message.type === "settled") this.#receipts.settle(message.rows, message.refusal);
    else if (message.type === "depth") this.#depth = message.depth;
    else if (message.type === "owner") void this.#settleMissing();
    else if (this.#isOwner) this.#wake();
  }

  /** Settles the receipts of messages, here and in the other tabs. */
  #settle(rows: readonly Row[], refusal?: Refusal): void {
    if (rows.length === 0) return;
    const numbers = rows.map(({ row }) => row);
    this.#receipts.settle(numbers, refusal);
    this.#tabs?.tell({ type: "settled", rows: numbers, ...(refusal && { refusal }) });
  }

  /** Settles the receipts of messages that are gone while this page could not receive the reason. */
  async #settleMissing(): Promise<void> {
    const rows = await this.#storage.missing(this.#receipts.rows).catch(() => []);
    if (rows.length === 0) return;
    // The report of another tab may still be on its way.
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    const waited = new Set(this.#receipts.rows);
    const message = "another tab had the message; whether the server took it is not known";
    this.#receipts.settle(
      rows.filter((row) => waited.has(row)),
      { code: "CONNECTION_LOST", message },
    );
  }

  #job<T>(job: () => Promise<T>): Promise<T> {
    const done = this.#jobs.then(job);
    this.#jobs = done.catch(() => {});
    return done;
  }

  /**
   * Runs a job of the owner again until it works, or until it is of no use: in another round, if it
   * has one.
   */
  #insist(round: number | undefined, job: (round: number) => Promise<void>): Promise<void> {
    return this.#job(async () => {
      while (this.#isOwner && (round === undefined || round === this.#round)) {
        try {
          await job(this.#round);
          this.#isFailing = false;
          return;
        } catch (error) {
          this.#reportFailure(error);
        }
        if (!this.#host) return;
        await new Promise<void>((resolve) => {
          const timer = setTimeout(resolve, RETRY_MS);
          this.#endPause = () => {
            clearTimeout(timer);
            resolve();
          };
        });
        if (!this.#host) return;
      }
    });
  }

  #updateDepth(): void {
    const { messages } = this.#storage.depth;
    if (messages !== this.#depth) this.#tabs?.tell({ type: "depth", depth: messages });
    this.#depth = messages;
  }

  #wake(): void {
    this.#wakes += 1;
    this.#host?.wake();
  }

  #report(report: QueueReport): void {
    this.#host?.report(report);
  }

  #reportFailure(error: unknown): void {
    if (!this.#isFailing) this.#report({ type: "queue_failed", error: failure(error) });
    this.#isFailing = true;
  }
}

/** What `promise` gives, or `ABORTED` if the call is aborted first. */
function unlessAborted(promise: Promise<void>, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(aborted(signal));
    signal.addEventListener("abort", abort);
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}

const NOTHING = { messages: [], isAny: false };
/** How long a store that did not work is left alone. */
const RETRY_MS = 1000;
