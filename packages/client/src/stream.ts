/** A bounded buffer between a source that pushes and a loop that pulls. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "./errors.js";

/** The handling of messages that a loop does not read in time. */
export interface BufferOptions {
  /** Messages that may wait. Default 10,000. */
  max?: number;
  /**
   * What happens past it: `error` ends the loop with `BUSY`, so that nothing is lost unseen (default); `drop_oldest`
   * and `drop_newest` drop messages.
   */
  overflow?: "error" | "drop_oldest" | "drop_newest";
}

/** An async iterator over pushed values. Iterating ends with `return()`, the source's end, or its error. */
export class Stream<T> implements AsyncIterableIterator<T> {
  readonly #max: number;
  readonly #overflow: "error" | "drop_oldest" | "drop_newest";
  readonly #onReturn: () => void;
  #buffer: T[] = [];
  #at = 0;
  /** The call that waits for the next value. */
  #waiting: { resolve(result: IteratorResult<T>): void; reject(error: unknown): void } | undefined;
  #end: { error?: unknown } | undefined;

  constructor(options: BufferOptions, onReturn: () => void) {
    this.#max = options.max ?? 10_000;
    this.#overflow = options.overflow ?? "error";
    this.#onReturn = onReturn;
  }

  push(value: T): void {
    if (this.#end) return;
    if (this.#waiting) {
      this.#waiting.resolve({ value, done: false });
      this.#waiting = undefined;
      return;
    }
    if (this.#buffer.length - this.#at >= this.#max) {
      if (this.#overflow === "error") {
        return this.end(
          new TidewireError(
            "BUSY",
            DEVELOPMENT &&
              `the loop has not taken ${this.#max} messages; take them faster, or choose another overflow`,
            { fault: "application" },
          ),
        );
      }
      if (this.#overflow === "drop_newest") return;
      this.#shift();
    }
    this.#buffer.push(value);
  }

  /** Ends the stream after what waits, with an error if there is one. */
  end(error?: unknown): void {
    if (this.#end) return;
    this.#end = error === undefined ? {} : { error };
    if (error === undefined) this.#waiting?.resolve({ value: undefined, done: true });
    else this.#waiting?.reject(error);
    this.#waiting = undefined;
  }

  #shift(): T {
    const value = this.#buffer[this.#at]!;
    this.#buffer[this.#at++] = undefined as T;
    if (this.#at * 2 > this.#buffer.length) {
      this.#buffer = this.#buffer.slice(this.#at);
      this.#at = 0;
    }
    return value;
  }

  /** What waits, without waiting. */
  takeAll(): T[] {
    const all = this.#buffer.slice(this.#at);
    this.#buffer = [];
    this.#at = 0;
    return all;
  }

  next(): Promise<IteratorResult<T>> {
    if (this.#at < this.#buffer.length) return Promise.resolve({ value: this.#shift(), done: false });
    if (this.#end) {
      const { error } = this.#end;
      this.#end = {};
      return error === undefined ? Promise.resolve({ value: undefined, done: true }) : Promise.reject(error);
    }
    if (this.#waiting) {
      return Promise.reject(
        new TidewireError("INVALID_ARGUMENT", DEVELOPMENT && "another call waits for the next message"),
      );
    }
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  return(): Promise<IteratorResult<T>> {
    this.#buffer = [];
    this.#at = 0;
    this.end();
    this.#onReturn();
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
