/** Outbound: what is sent now, what waits for the connection, the rate limit or room, and requests among it. */

import { TidewireError } from "../errors.js";
import type { ResolvedOptions } from "../options.js";
import type { EncodedPayload, Envelope, EnvelopeFields } from "./layers.js";
import { RateLimit } from "./rate.js";
import { type Request, Requests } from "./requests.js";
import type { Now } from "./session.js";

/** A message that waits to be sent: one of the application, or a request. */
interface Waiting {
  fields: EnvelopeFields | undefined;
  payload: EncodedPayload | undefined;
  bytes: number;
  request: Request | undefined;
}

/** What sending needs. */
export interface OutboundHost {
  /** Sends a message on the current connection. */
  write(fields: EnvelopeFields, payload: EncodedPayload | undefined): void;
  /** Sends a message of the protocol on the current connection. */
  system(fields: EnvelopeFields, payload: EncodedPayload): void;
  /** Whether the session is open and its connection has room. */
  mayWrite(): boolean;
  changed(): void;
}

export interface RequestOptions {
  /** Whether it may be sent again after a lost connection. */
  isRepeatable?: boolean;
  timeoutMs?: number | undefined;
  signal?: AbortSignal | undefined;
}

/** What a message has beside its payload, in bytes, as far as limits count it. */
const OVERHEAD_BYTES = 32;
/** Messages that are taken from the rate limit at once. */
const ALLOWANCE = 32;

export class Outbound {
  readonly requests = new Requests();
  /** The largest message that the server accepts; 0 if it has not said. */
  bytesMax = 0;
  /** Bytes that wait. */
  bytes = 0;
  rate = RateLimit.unlimited();
  readonly #options: ResolvedOptions;
  readonly #host: OutboundHost;
  #waiting: Waiting[] = [];
  /** The first that was not sent. */
  #at = 0;
  /** Requests among the waiting ones that have ended. */
  #dead = 0;
  /** Messages that may be sent before the rate limit is asked again. */
  #allowance = 0;
  #nextCid = 1;

  constructor(options: ResolvedOptions, host: OutboundHost) {
    this.#options = options;
    this.#host = host;
  }

  /** Sends a message, or lets it wait. Throws `BUSY` when too much waits. Whether there is room for more. */
  send(fields: EnvelopeFields, payload: EncodedPayload | undefined, now: Now): boolean {
    const bytes = OVERHEAD_BYTES + (payload?.length ?? 0);
    if (this.bytesMax && bytes > this.bytesMax) this.#checkSize(bytes);
    if (this.#isEmpty && this.#mayWrite(now)) {
      this.#host.write(fields, payload);
      return this.#host.mayWrite();
    }
    this.#checkRoom(bytes);
    this.#push({ fields, payload, bytes, request: undefined });
    return false;
  }

  get #isEmpty(): boolean {
    return this.#at === this.#waiting.length;
  }

  #checkSize(bytes: number): void {
    if (this.bytesMax && bytes > this.bytesMax) {
      const words = `the message has ${bytes} bytes, and the server accepts ${this.bytesMax}`;
      throw new TidewireError("MESSAGE_TOO_LARGE", words, { fault: "application" });
    }
  }

  #checkRoom(bytes: number): void {
    if (this.bytes + bytes > this.#options.outboxBytesMax) {
      throw new TidewireError("BUSY", `${this.bytes} bytes wait to be sent; await client.ready()`);
    }
  }

  #push(waiting: Waiting): void {
    this.bytes += waiting.bytes;
    this.#waiting.push(waiting);
  }

  /** Makes a request and resolves with the payload of its answer. */
  async request(t: string, payload: EncodedPayload, options: RequestOptions, now: Now): Promise<Envelope> {
    const { signal, timeoutMs = this.#options.requestTimeoutMs, isRepeatable = false } = options;
    if (signal?.aborted) throw aborted(signal);
    if (this.requests.size >= this.#options.requestsMax) {
      throw new TidewireError("BUSY", `${this.requests.size} requests are open`);
    }
    this.#checkSize(OVERHEAD_BYTES + payload.length);
    let abort: (() => void) | undefined;
    try {
      return await new Promise<Envelope>((resolve, reject) => {
        const settle = (error: TidewireError | undefined, answer: Envelope) => {
          if (error) reject(error);
          else resolve(answer);
        };
        const { cid } = this.ask({ t, payload, isRepeatable, deadlineMs: now.ms + timeoutMs, settle }, now);
        abort = () => this.settle(cid, aborted(signal!));
        signal?.addEventListener("abort", abort);
      });
    } finally {
      if (abort) signal?.removeEventListener("abort", abort);
    }
  }

  /** Sends a request, or lets it wait. Throws `BUSY` when too much waits. */
  ask(draft: Omit<Request, "cid" | "state">, now: Now): Request {
    this.#checkRoom(draft.payload.length);
    const request: Request = { ...draft, cid: (this.#nextCid++).toString(36), state: "queued" };
    this.enqueue(request, now);
    this.requests.add(request);
    this.#host.changed();
    return request;
  }

  /** Sends a request that is known, or lets it wait. */
  enqueue(request: Request, now: Now): void {
    request.state = "queued";
    const bytes = OVERHEAD_BYTES + request.payload.length;
    if (this.#isEmpty && this.#mayWrite(now)) this.#write(request);
    else this.#push({ fields: undefined, payload: undefined, bytes, request });
  }

  #write(request: Request): void {
    const { cid, t, payload } = request;
    request.state = "sent";
    this.#host.system({ c: t === "sync_request" ? "S" : "WSE", t, cid }, payload);
  }

  /** Ends a request, if it is open. What waits of it is forgotten. */
  settle(cid: unknown, error: TidewireError | undefined, answer?: Envelope): boolean {
    const request = this.requests.get(cid);
    const isSettled = this.requests.settle(cid, error, answer);
    if (request?.state === "queued") {
      request.state = "waiting";
      this.bytes -= OVERHEAD_BYTES + request.payload.length;
      if (++this.#dead * 2 > this.#waiting.length - this.#at) this.#compact();
    }
    return isSettled;
  }

  /** Drops what was sent, and requests that have ended. */
  #compact(): void {
    this.#waiting = this.#waiting
      .slice(this.#at)
      .filter(({ request }) => !request || request.state === "queued");
    this.#at = this.#dead = 0;
  }

  /** Whether a message may be sent at once; if so, it counts for the rate limit. */
  #mayWrite(now: Now): boolean {
    if (!this.#host.mayWrite()) return false;
    if (this.#allowance < 1) this.#allowance = this.rate.take(ALLOWANCE, now.ms);
    if (this.#allowance < 1) return false;
    this.#allowance--;
    return true;
  }

  /** Sends what waits, as far as the connection and the rate limit allow. Whether nothing waits any more. */
  flush(now: Now): boolean {
    while (!this.#isEmpty) {
      const { fields, payload, bytes, request } = this.#waiting[this.#at]!;
      if (!request || request.state === "queued") {
        if (!this.#mayWrite(now)) return false;
        this.bytes -= bytes;
        if (request) this.#write(request);
        else this.#host.write(fields!, payload);
      }
      if (++this.#at >= 1_024) this.#compact();
    }
    this.#waiting.length = this.#at = this.#dead = 0;
    return true;
  }

  /** Gives back what was taken from the rate limit in advance, before the server changes it. */
  giveBack(): void {
    this.rate.giveBack(this.#allowance);
    this.#allowance = 0;
  }

  /** When the rate limit lets the next message through, if one waits for that. */
  nextTimeout(now: Now): number {
    const isWaiting = !this.#isEmpty && this.#allowance < 1 && this.#host.mayWrite();
    return isWaiting ? this.rate.nextAt(now.ms) : Infinity;
  }

  /** The connection is gone. */
  disconnected(): void {
    this.bytesMax = 0;
    for (const cid of this.requests.disconnected()) {
      const words = "the connection was lost before the answer came; whether it was carried out is not known";
      this.settle(cid, new TidewireError("CONNECTION_LOST", words, { fault: "network" }));
    }
  }

  /** There is no further connection. */
  end(error: TidewireError): void {
    for (const cid of this.requests.ids()) this.settle(cid, error);
    this.#waiting.length = this.#at = this.#dead = this.bytes = 0;
  }

  /** Ends the requests whose time is over. */
  timeout(now: Now): void {
    for (const { cid, state } of this.requests.timeout(now.ms)) {
      const words = state === "sent" ? "no answer came in time" : "there was no connection in time";
      this.settle(cid, new TidewireError("TIMEOUT", words, { fault: "network" }));
    }
  }
}

function aborted(signal: AbortSignal): TidewireError {
  return new TidewireError("ABORTED", "the call was aborted", { fault: "application", cause: signal.reason });
}
