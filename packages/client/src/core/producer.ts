/** Acknowledged publishing (PROTOCOL 20): numbered messages from the queue to the server, each once and in order. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import { type HelloProducer, helloProducer } from "./attempt.js";
import { isObject } from "./envelope.js";
import { json } from "./json.js";
import type { ProducerFactory, QueuedMessage, QueuePort, QueueReport } from "./queue-port.js";
import type { Now, Session } from "./session.js";

/** Bytes that are taken from the queue at once. */
const TAKE_BYTES_MAX = 1024 * 1024;

/** What the correlation id of a numbered message begins with. */
const CID = "q-";

export const makeProducer: ProducerFactory = (session, queue) => new Producer(session, queue);

export class Producer {
  readonly queue: QueuePort;
  readonly #session: Session;
  /** The id that this connection's hello had. */
  #helloId: string | undefined;
  /** This connection's hello has been sent. */
  #isGreeted = false;
  #isReady = false;
  #isTaking = false;
  /** The queue may have more. */
  #hasMore = true;
  #lastSent = 0;
  #lastAcknowledged = 0;
  /** Connections and rewinds so far: an answer of the queue to an earlier one counts for nothing. */
  #round = 0;

  constructor(session: Session, queue: QueuePort) {
    this.#session = session;
    this.queue = queue;
  }

  #write({ topic, type, payload, key, priority, n }: QueuedMessage): void {
    const { format, host } = this.#session;
    const cid = `${CID}${n}`;
    if (topic === undefined) {
      const encoded = format === json ? payload : format.payload(JSON.parse(payload));
      return host.write({ t: type, n, cid }, encoded);
    }
    const request = { topic, type, key, priority, payload: JSON.parse(payload) as unknown };
    host.write({ c: "WSE", t: "publish_request", n, cid }, format.payload(request));
  }

  /** Opens the queue, whose reports become events of the client. */
  async open(): Promise<void> {
    const { host } = this.#session;
    await this.queue
      .open({
        wake: () => this.#wake(),
        report: (report) => this.#report(report),
        checkOpen: () => host.checkOpen(),
      })
      .catch((error: TidewireError) => host.emit("queueFailed", error));
  }

  #report(report: QueueReport): void {
    const { host } = this.#session;
    const { type } = report;
    if (type === "uncertain") host.emit(type, report);
    else if (type === "expired") host.emit(type, { messages: report.messages });
    else if (type === "queue_failed") host.emit("queueFailed", report.error);
    else if (type === "queue_in_memory") host.emit("degraded", { what: "queue", reason: report.reason });
    else {
      const words = `${report.messages} queued messages are larger than the server accepts`;
      host.emit("error", new TidewireError("MESSAGE_TOO_LARGE", words, "application"));
    }
  }

  hello(): { producer?: HelloProducer } {
    this.#isGreeted = true;
    this.#helloId = this.queue.producerId;
    return helloProducer(this.#helloId);
  }

  /** Whether this connection speaks for another producer than the queue has now. */
  get #isStale(): boolean {
    return this.#isGreeted && this.queue.producerId !== undefined && this.#helloId !== this.queue.producerId;
  }

  opened(producer: unknown, now: Now): void {
    const { epoch, last } = isObject(producer) ? producer : {};
    const isKnown = typeof epoch === "string" && /^[0-9a-f]{8}$/.test(epoch) && Number(last) >= 0;
    const known = isKnown ? { epoch, last: last as number } : undefined;
    if (!known && this.#helloId) {
      const words = DEVELOPMENT && "the server does not acknowledge messages; they wait in the queue";
      this.#session.host.emit("queueFailed", new TidewireError("QUEUE_FAILED", words, "server"));
    }
    const round = ++this.#round;
    void this.queue.resume(known, this.#session.outbound.bytesMax).then(() => {
      if (round !== this.#round || !known) return;
      this.#lastSent = this.#lastAcknowledged = known.last;
      this.#isReady = this.#hasMore = true;
      this.flush(now);
    });
  }

  disconnected(): void {
    this.#round++;
    this.#isReady = this.#isTaking = this.#isGreeted = false;
  }

  /** There may be more to take, or this client owns the queue now. */
  #wake(): void {
    this.#hasMore = true;
    if (this.#isStale) this.#session.host.renew("this client owns the queue now");
    else this.#session.host.changed();
  }

  /** Takes messages from the queue, if they may be sent. */
  flush(now: Now): void {
    const room = this.queue.window - (this.#lastSent - this.#lastAcknowledged);
    if (!this.#isReady || this.#isTaking || !this.#hasMore || room < 1) return;
    const count = this.#session.isOpen ? this.#session.outbound.rate.take(room, now.ms) : 0;
    if (!count) return;
    this.#isTaking = true;
    // A wake while the queue is asked must not be lost: this is set to true again only.
    this.#hasMore = false;
    const round = this.#round;
    void this.queue.take(count, TAKE_BYTES_MAX).then((messages) => {
      this.#session.outbound.rate.giveBack(count - messages.length);
      if (round !== this.#round) return;
      this.#isTaking = false;
      this.#hasMore ||= messages.length > 0;
      for (const message of messages) {
        this.#lastSent = message.n;
        this.#write(message);
      }
      if (this.#hasMore) this.flush(now);
    });
  }

  acknowledged(last: unknown, now: Now): void {
    if (typeof last !== "number" || !this.#isReady) return;
    this.#lastAcknowledged = Math.max(this.#lastAcknowledged, Math.min(last, this.#lastSent));
    this.queue.acknowledge(last);
    this.flush(now);
  }

  /** An error that answers a numbered message. */
  refused(cid: unknown, error: TidewireError): boolean {
    if (typeof cid !== "string" || !cid.startsWith(CID)) return false;
    this.queue.refused(Number(cid.slice(CID.length)), error);
    return true;
  }

  /** Numbered messages have to be sent again from the last that was taken. */
  rewind(): void {
    if (!this.#isReady) return;
    this.#round++;
    this.#isTaking = false;
    this.#hasMore = true;
    this.#lastSent = this.#lastAcknowledged;
    this.queue.rewind(this.#lastAcknowledged);
  }

  nextTimeout(now: Now): number {
    const isWaiting = this.#isReady && this.#hasMore && !this.#isTaking;
    const next = isWaiting ? this.#session.outbound.rate.nextAt(now.ms) : Infinity;
    return next > now.ms ? next : Infinity;
  }
}
