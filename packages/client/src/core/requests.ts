/** Requests that wait for their answers, across connections. */

import { TidewireError } from "../errors.js";
import type { EncodedPayload, Envelope } from "./layers.js";

/** A request of the client. */
export interface Request {
  readonly cid: string;
  /** The type on the wire. */
  readonly t: string;
  readonly payload: EncodedPayload;
  /** Whether it may be sent again after a lost connection: it does no harm twice. */
  readonly isRepeatable: boolean;
  readonly deadlineMs: number;
  /** Ends the request: with the answer's envelope, or with an error. */
  settle(error: TidewireError | undefined, answer: Envelope): void;
  /** It belongs to the current connection and fails with it, sent or not. */
  readonly isBound?: boolean;
  /** `waiting` for a connection, `queued` behind other messages, or `sent`. */
  state: "waiting" | "queued" | "sent";
}

export class Requests {
  readonly #open = new Map<string, Request>();
  /** No deadline is sooner than this. */
  #soonestMs = Infinity;

  get size(): number {
    return this.#open.size;
  }

  add(request: Request): void {
    this.#open.set(request.cid, request);
    this.#soonestMs = Math.min(this.#soonestMs, request.deadlineMs);
  }

  get(cid: unknown): Request | undefined {
    return this.#open.get(cid as string);
  }

  /** Ends a request, if it is still open. */
  settle(cid: unknown, error: TidewireError | undefined, answer: Envelope = {}): boolean {
    const request = this.#open.get(cid as string);
    if (!request) return false;
    this.#open.delete(request.cid);
    request.settle(error, answer);
    return true;
  }

  /** The connection is gone: what may not be repeated fails, the rest waits for the next one. */
  disconnected(): void {
    for (const request of this.#open.values()) {
      if (request.isBound || (request.state === "sent" && !request.isRepeatable)) {
        const words =
          "the connection was lost before the answer came; whether it was carried out is not known";
        this.settle(request.cid, new TidewireError("CONNECTION_LOST", words, { fault: "network" }));
      } else if (request.state === "sent") request.state = "waiting";
    }
  }

  /** Requests that are to be sent again on this connection, in the order of their calls. */
  *waiting(): Iterable<Request> {
    for (const request of this.#open.values()) if (request.state === "waiting") yield request;
  }

  /** Those that may be repeated count as not sent. */
  repeatAll(): void {
    for (const request of this.#open.values()) {
      if (request.isRepeatable && request.state === "sent") request.state = "waiting";
    }
  }

  failAll(error: TidewireError): void {
    for (const cid of [...this.#open.keys()]) this.settle(cid, error);
  }

  get nextTimeout(): number {
    return this.#open.size ? this.#soonestMs : Infinity;
  }

  timeout(nowMs: number): void {
    if (nowMs < this.nextTimeout) return;
    this.#soonestMs = Infinity;
    for (const request of this.#open.values()) {
      if (request.deadlineMs <= nowMs) {
        const words = request.state === "sent" ? "no answer came in time" : "there was no connection in time";
        this.settle(request.cid, new TidewireError("TIMEOUT", words, { fault: "network" }));
      } else this.#soonestMs = Math.min(this.#soonestMs, request.deadlineMs);
    }
  }
}
