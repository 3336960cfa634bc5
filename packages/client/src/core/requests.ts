/** Requests that wait for their answers, across connections. */

import type { TidewireError } from "../errors.js";
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
  /** It belongs to the current connection and fails with it, sent or not. */
  readonly isBound?: boolean;
  /** Ends the request: with the answer's envelope, or with an error. */
  settle(error: TidewireError | undefined, answer: Envelope): void;
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

  ids(): string[] {
    return [...this.#open.keys()];
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

  /** The connection is gone: what may be repeated waits for the next one. The rest, which is to be ended. */
  disconnected(): string[] {
    const lost: string[] = [];
    for (const request of this.#open.values()) {
      if (request.isBound || (request.state === "sent" && !request.isRepeatable)) lost.push(request.cid);
      else if (request.state === "sent") request.state = "waiting";
    }
    return lost;
  }

  /** Those that may be repeated count as not sent. */
  repeatAll(): void {
    for (const request of this.#open.values()) {
      if (request.isRepeatable && request.state === "sent") request.state = "waiting";
    }
  }

  /** Requests that are to be sent again on this connection, in the order of their calls. */
  waiting(): Request[] {
    return [...this.#open.values()].filter(({ state }) => state === "waiting");
  }

  get nextTimeout(): number {
    return this.#open.size ? this.#soonestMs : Infinity;
  }

  /** Requests whose time is over, which are to be ended. */
  timeout(nowMs: number): Request[] {
    if (nowMs < this.nextTimeout) return [];
    const over: Request[] = [];
    this.#soonestMs = Infinity;
    for (const request of this.#open.values()) {
      if (request.deadlineMs <= nowMs) over.push(request);
      else this.#soonestMs = Math.min(this.#soonestMs, request.deadlineMs);
    }
    return over;
  }
}
