/** Acknowledged publishing (PROTOCOL 20): numbered messages from the queue to the server, each once and in order. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import { type HelloProducer, helloProducer } from "./attempt.js";
import { isObject } from "./envelope.js";
import { json } from "./json.js";
import type { EncodedPayload, EnvelopeFields } from "./layers.js";
import { encode, readPayload } from "./payload.js";
import type { ProducerFactory, QueuedMessage, QueuePort, QueueReport } from "./queue-port.js";
import type { Now, Session } from "./session.js";
import { checkType } from "./types.js";

/** Maximum payload bytes of one read from the queue. */
const TAKE_BYTES_MAX = 1024 * 1024;

/** What the correlation id of a numbered message begins with. */
const CID = "q-";
/** A stored text that may have half a character, or too many levels. */
const SUSPICIOUS = /^(?:[^[{]*[[{]){61}|\\ud/i;
/** More bytes than a publication needs beside the texts whose lengths are checked. */
const FIELDS_BYTES_MAX = 1_024;
/** The message is not accepted, and has its turn again. */
const AGAIN = /^(RATE_LIMITED|MESSAGE_GAP|PRODUCER_SUPERSEDED)$/;
/** The server could not accept the message at that time. */
const TEMPORARY = /^(QUEUE_FULL|B(ROKER|ACKEND)_UNAVAILABLE)$/;
/** After how long such a message has its turn again, unless the server has acknowledged it. */
const AGAIN_MS = 1_000;

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
  /** When messages that the server could not accept have their turn again. */
  #againMs = Infinity;
  /** The last acknowledged number when a message behind one that was refused for good was a gap. */
  #stuckAt = -1;
  /** Connections and rewinds so far: an answer of the queue to an earlier one counts for nothing. */
  #round = 0;

  constructor(session: Session, queue: QueuePort) {
    this.#session = session;
    this.queue = queue;
  }

  /** A message as it is sent. A payload of JSON goes out as it was stored. */
  #encode(message: QueuedMessage): [EnvelopeFields, EncodedPayload] {
    const { topic, type, payload: text, binary, key, priority, n } = message;
    const { format } = this.#session;
    const payload = () => readPayload(JSON.parse(text), binary);
    const cid = `${CID}${n}`;
    if (topic === undefined) {
      const fields: EnvelopeFields = binary ? { t: type, n, cid, b: true } : { t: type, n, cid };
      return [fields, format === json ? text : encode(format, payload(), fields)!];
    }
    const request = { topic, type, priority, ...(key !== undefined && { key }), ...(binary && { binary }) };
    const encoded =
      format === json
        ? `${JSON.stringify(request).slice(0, -1)},"payload":${text}}`
        : format.payload({ ...request, payload: payload() }, "");
    return [{ c: "WSE", t: "publish_request", n, cid }, encoded];
  }

  /** The reason why a message of the store cannot be sent. Another program may have written the message. */
  #judge(message: QueuedMessage): TidewireError | undefined {
    const { topic = "", type, key = "", payload, binary } = message;
    const { features, outbound } = this.#session;
    try {
      checkType(type);
      if (SUSPICIOUS.test(payload)) json.payload(JSON.parse(payload));
      const units = topic.length + type.length + key.length + payload.length;
      if (binary && features.binary !== true) return outbound.refusal({ t: type }, undefined, true);
      if (units * 3 + FIELDS_BYTES_MAX <= outbound.bytesMax) return undefined;
      return outbound.refusal(...this.#encode(message), binary);
    } catch (error) {
      if (error instanceof TidewireError) return error;
      return new TidewireError("INVALID_ARGUMENT", DEVELOPMENT && "the payload is not JSON", {
        cause: error,
      });
    }
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
    else host.emit(type, { message: report.message, error: report.error });
  }

  hello(): { producer?: HelloProducer } {
    this.#isGreeted = true;
    this.#helloId = this.queue.producerId;
    return helloProducer(this.#helloId);
  }

  /** Whether messages are on their way: a close waits for them. */
  get isBusy(): boolean {
    return this.#isReady && (this.#lastSent > this.#lastAcknowledged || this.#isTaking || this.#hasMore);
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
    void this.queue
      .resume(known, (message) => this.#judge(message))
      .then(() => {
        if (round !== this.#round || !known) return;
        this.#lastSent = this.#lastAcknowledged = known.last;
        this.#isReady = this.#hasMore = true;
        this.flush(now);
      });
  }

  disconnected(): void {
    this.#round++;
    this.#isReady = this.#isTaking = this.#isGreeted = false;
    this.#againMs = Infinity;
  }

  /** The queue may hold more messages, or this client owns the queue now. */
  #wake(): void {
    this.#hasMore = true;
    if (this.#isStale) this.#session.host.renew("this client owns the queue now");
    else this.#session.host.changed();
  }

  /** Reads messages from the queue and sends them, if they may be sent. */
  flush(now: Now): void {
    if (now.ms >= this.#againMs) this.rewind();
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
        this.#session.host.write(...this.#encode(message));
      }
      if (this.#hasMore) this.flush(now);
      // A close may wait for the last one.
      else this.#session.host.changed();
    });
  }

  acknowledged(last: unknown, now: Now): void {
    if (typeof last !== "number" || !this.#isReady) return;
    this.#lastAcknowledged = Math.max(this.#lastAcknowledged, Math.min(last, this.#lastSent));
    this.queue.acknowledge(last);
    this.flush(now);
  }

  /** An error that answers a numbered message. */
  refused(cid: unknown, error: TidewireError, now: Now): boolean {
    if (typeof cid !== "string" || !cid.startsWith(CID)) return false;
    if (AGAIN.test(error.code)) return true;
    const isTemporary = TEMPORARY.test(error.code);
    if (isTemporary) this.#againMs = now.ms + AGAIN_MS;
    this.queue.refused(Number(cid.slice(CID.length)), error, isTemporary);
    return true;
  }

  /** The numbered messages after the last acknowledged one have to be sent again. */
  rewind(isGap?: boolean): void {
    if (!this.#isReady) return;
    this.#round++;
    this.#isTaking = false;
    this.#hasMore = true;
    this.#againMs = Infinity;
    this.#lastSent = this.#lastAcknowledged;
    if (this.queue.rewind(this.#lastAcknowledged) || !isGap) return;
    // An acknowledgement may be on its way. Only the start of a connection shows which number the server expects.
    if (this.#stuckAt === this.#lastAcknowledged)
      this.#session.host.renew("a message was refused and has no number");
    this.#stuckAt = this.#lastAcknowledged;
  }

  nextTimeout(now: Now): number {
    const isWaiting = this.#isReady && this.#hasMore && !this.#isTaking;
    const next = isWaiting ? this.#session.outbound.rate.nextAt(now.ms) : Infinity;
    return Math.min(next > now.ms ? next : Infinity, this.#againMs);
  }
}
