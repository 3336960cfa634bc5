/** Outbound messages, sent now or waiting for the connection, the rate limit or room, with the requests among them. */

import { DEVELOPMENT } from "#development";
import { aborted, TidewireError } from "../errors.js";
import type { EncodedPayload, Envelope, EnvelopeFields } from "./layers.js";
import { RateLimit } from "./rate.js";
import type { Now, Session } from "./session.js";
import { FIELDS_BYTES_MAX, isTooLarge } from "./size.js";

/** A message of the application that waits to be sent. */
interface Waiting {
  readonly fields: EnvelopeFields;
  readonly payload: EncodedPayload | undefined;
}

/** What a request is asked with. */
export interface Question {
  /** The type on the wire. */
  readonly t: string;
  readonly payload: EncodedPayload;
  /** The payload of the application in it is binary. */
  readonly isBinary?: boolean | undefined;
  /** Whether it may be sent again after a lost connection: it does no harm twice. */
  readonly isRepeatable?: boolean;
  readonly deadlineMs: number;
  /** It belongs to the current connection and fails with it, sent or not. */
  readonly isBound?: boolean;
  /** Ends the request: with the payload of the answer, or with an error. */
  settle(error: TidewireError | undefined, answer: Envelope): void;
}

/** A request that has not ended. One that is neither sent nor among the waiting messages waits for a connection. */
interface Request extends Question {
  readonly fields?: undefined;
  readonly cid: string;
  isSent: boolean;
}

export interface RequestOptions {
  isBinary?: boolean | undefined;
  /** Whether it may be sent again after a lost connection. */
  isRepeatable?: boolean;
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** The bytes of a message beside its payload, for the count of the bytes that wait. */
const OVERHEAD_BYTES = 32;
/** Messages that are acquired from the rate limit at once. */
const ALLOWANCE = 32;

const bytesOf = (payload: EncodedPayload | undefined): number => OVERHEAD_BYTES + (payload?.length ?? 0);

export class Outbound {
  /** The largest message that the server accepts; 0 if the server has not announced it. */
  bytesMax = 0;
  /** Bytes that wait. */
  bytes = 0;
  rate = new RateLimit(0, 0, 0);
  readonly #session: Session;
  /** The messages and requests to send next, in order. */
  readonly #waiting = new Set<Waiting | Request>();
  readonly #requests = new Map<unknown, Request>();
  /** No deadline of a request is sooner than this. */
  #soonestMs = Infinity;
  /** Messages that may be sent before the rate limit is asked again. */
  #allowance = 0;
  #nextCid = 1;

  constructor(session: Session) {
    this.#session = session;
  }

  /** Sends a message, or lets it wait. Throws `BUSY` when too much waits. Whether there is room for more. */
  send(fields: EnvelopeFields, payload: EncodedPayload | undefined, now: Now): boolean {
    const refusal = this.refusal(fields, payload, fields.b);
    if (refusal) throw refusal;
    if (!this.#waiting.size && this.#mayWrite(now)) {
      this.#session.host.write(fields, payload);
      return this.#session.mayWrite;
    }
    this.#checkRoom(payload);
    this.#wait({ fields, payload });
    return false;
  }

  /** The error for a message that the server would not accept, if that is known before it is sent. */
  refusal(
    fields: EnvelopeFields,
    payload: EncodedPayload | undefined,
    isBinary: boolean | undefined,
  ): TidewireError | undefined {
    const max = this.bytesMax;
    const units = fields.t.length + (fields.cid?.length ?? 0) + (payload?.length ?? 0);
    // Most messages are small, and no unit of a text has more than three bytes.
    if (!isBinary && (!max || units * 3 + FIELDS_BYTES_MAX <= max)) return undefined;
    const { isOpen, features, format, layerSizes } = this.#session;
    if (isBinary && isOpen && features.binary !== true)
      return new TidewireError(
        "NOT_SUPPORTED",
        DEVELOPMENT && "this server takes no binary payloads",
        "server",
      );
    if (!isTooLarge(max, format, fields, payload, layerSizes)) return undefined;
    return new TidewireError(
      "MESSAGE_TOO_LARGE",
      DEVELOPMENT && `the message ${fields.t} has more than the ${max} bytes that the server accepts`,
      "application",
    );
  }

  #checkRoom(payload: EncodedPayload | undefined): void {
    if (this.bytes + bytesOf(payload) > this.#session.options.outboxBytesMax) {
      throw new TidewireError(
        "BUSY",
        DEVELOPMENT && `${this.bytes} bytes wait to be sent; await client.ready()`,
      );
    }
  }

  #wait(message: Waiting | Request): void {
    this.bytes += bytesOf(message.payload);
    this.#waiting.add(message);
  }

  /** A message does not wait any more. Whether it did. */
  #forget(message: Waiting | Request): boolean {
    const isFound = this.#waiting.delete(message);
    if (isFound) this.bytes -= bytesOf(message.payload);
    return isFound;
  }

  /** Requests that are open. */
  get requests(): number {
    return this.#requests.size;
  }

  /** Whether calls of the application wait for their answers. */
  get isAwaited(): boolean {
    for (const { isBound } of this.#requests.values()) if (!isBound) return true;
    return false;
  }

  /** Makes a request and resolves with the payload of its answer. */
  async request(t: string, payload: EncodedPayload, options: RequestOptions, now: Now): Promise<Envelope> {
    const {
      signal,
      timeoutMs = this.#session.options.requestTimeoutMs,
      isRepeatable = false,
      isBinary,
    } = options;
    if (signal?.aborted) throw aborted(signal);
    if (this.requests >= this.#session.options.requestsMax) {
      throw new TidewireError("BUSY", DEVELOPMENT && `${this.requests} requests are open`);
    }
    let abort: (() => void) | undefined;
    try {
      return await new Promise<Envelope>((resolve, reject) => {
        const settle = (error: TidewireError | undefined, answer: Envelope) =>
          error ? reject(error) : resolve(answer);
        const deadlineMs = now.ms + timeoutMs;
        const cid = this.ask({ t, payload, isBinary, isRepeatable, deadlineMs, settle }, now);
        abort = () => this.settle(cid, aborted(signal!));
        signal?.addEventListener("abort", abort);
      });
    } finally {
      if (abort) signal?.removeEventListener("abort", abort);
    }
  }

  /** Sends a request, or lets it wait. Throws `BUSY` when too much waits. */
  ask(question: Question, now: Now): string {
    this.#checkRoom(question.payload);
    const cid = (this.#nextCid++).toString(36);
    const request: Request = { ...question, cid, isSent: false };
    this.#requests.set(cid, request);
    this.#soonestMs = Math.min(this.#soonestMs, request.deadlineMs);
    if (!this.#waiting.size && this.#mayWrite(now)) this.#write(request);
    else this.#wait(request);
    this.#session.host.changed();
    return cid;
  }

  /** Sends a message. If the server would not accept it, only this message fails. */
  #write(message: Waiting | Request): void {
    const { payload } = message;
    const { host } = this.#session;
    if (message.fields) {
      const refusal = this.refusal(message.fields, payload, message.fields.b);
      return refusal ? host.emit("error", refusal) : host.write(message.fields, payload);
    }
    const { t, cid, isBinary } = message as Request;
    const fields = this.#session.numbered({ c: t === "sync_request" ? "S" : "WSE", t, cid });
    const refusal = this.refusal(fields, payload, isBinary);
    if (refusal) return void this.settle(cid, refusal);
    (message as Request).isSent = true;
    host.write(fields, payload);
  }

  /** The type of an open request. */
  typeOf(cid: unknown): string | undefined {
    return this.#requests.get(cid)?.t;
  }

  /** Ends a request, if it is open. What waits of it is forgotten. */
  settle(cid: unknown, error: TidewireError | undefined, answer: Envelope = {}): boolean {
    const request = this.#requests.get(cid);
    if (!request) return false;
    this.#requests.delete(cid);
    this.#forget(request);
    request.settle(error, answer);
    return true;
  }

  /** The server has refused a request for its rate: one that may be sent twice is sent again, another ends. */
  limited(cid: unknown, error: TidewireError): void {
    if (!this.#requests.get(cid)?.isRepeatable) this.settle(cid, error);
  }

  /** Whether a message may be sent at once; if so, it counts for the rate limit. */
  #mayWrite(now: Now): boolean {
    if (!this.#session.mayWrite) return false;
    if (this.#allowance < 1) this.#allowance = this.rate.take(ALLOWANCE, now.ms);
    return this.#allowance-- > 0;
  }

  /** The server changes the rate limit: returns the messages that were acquired from it in advance. */
  giveBack(): void {
    this.rate.giveBack(Math.max(this.#allowance, 0));
    this.#allowance = 0;
  }

  /** Sends what waits, as far as the connection and the rate limit allow. Whether nothing waits any more. */
  flush(now: Now): boolean {
    for (const message of this.#waiting) {
      if (!this.#mayWrite(now)) return false;
      this.#forget(message);
      this.#write(message);
    }
    return true;
  }

  /** Requests that are to be sent on this connection wait again; with `isAll` also those that may be sent a second time. */
  repeat(isAll?: boolean): void {
    for (const request of this.#requests.values()) {
      if (isAll && request.isRepeatable) request.isSent = false;
      if (!request.isSent && !this.#waiting.has(request)) this.#wait(request);
    }
  }

  /** When {@link timeout} or {@link flush} wants to be called. */
  nextTimeout(now: Now): number {
    const rateMs =
      this.#waiting.size && this.#allowance < 1 && this.#session.mayWrite
        ? this.rate.nextAt(now.ms)
        : Infinity;
    return Math.min(rateMs, this.requests ? this.#soonestMs : Infinity);
  }

  /** The connection is gone: what may be repeated waits for the next one. */
  disconnected(): void {
    this.bytesMax = 0;
    for (const request of this.#requests.values()) {
      const { isBound, isSent, isRepeatable, cid } = request;
      request.isSent = false;
      if (isBound || (isSent && !isRepeatable)) {
        this.settle(
          cid,
          new TidewireError(
            "CONNECTION_LOST",
            DEVELOPMENT &&
              "the connection was lost before the answer; whether it was carried out is not known",
            "network",
          ),
        );
      }
    }
  }

  /** There is no further connection. */
  end(error: TidewireError): void {
    for (const cid of this.#requests.keys()) this.settle(cid, error);
    this.#waiting.clear();
    this.bytes = 0;
  }

  /** Ends the requests whose time is over. */
  timeout(now: Now): void {
    if (now.ms < this.#soonestMs) return;
    this.#soonestMs = Infinity;
    for (const { cid, deadlineMs, isSent } of this.#requests.values()) {
      if (deadlineMs <= now.ms) {
        if (isSent) this.#session.doubt(now);
        this.settle(
          cid,
          new TidewireError(
            "TIMEOUT",
            DEVELOPMENT && (isSent ? "no answer came in time" : "there was no connection in time"),
            "network",
          ),
        );
      } else this.#soonestMs = Math.min(this.#soonestMs, deadlineMs);
    }
  }
}
