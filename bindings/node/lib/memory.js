"use strict";

// Memory for received batches. That of earlier ones is kept as long as a message of it is.

const { performance } = require("node:perf_hooks");

const MEMORY_MIN = 64 * 1024;
/** Larger pieces come from the system and go back to it each time, which costs more than what they save. */
const MEMORY_MAX = 256 * 1024;
/** Memory that was filled in a shorter time is followed by twice as much. */
const MEMORY_BUSY_MS = 250;

class Memory {
  #current;
  #filledAt = 0;

  /** The memory at hand, with the place of the next batch. */
  get current() {
    this.#current ??= this.#fresh(MEMORY_MIN);
    return this.#current;
  }

  /** Replaces the memory at hand, which is too small for the next batch. */
  renew(bytesMin) {
    this.#current = this.#fresh(bytesMin);
  }

  clear() {
    this.#current = undefined;
  }

  #fresh(bytesMin) {
    const now = performance.now();
    const last = this.#current?.buffer.length ?? 0;
    const wanted = now - this.#filledAt < MEMORY_BUSY_MS ? 2 * last : MEMORY_MIN;
    this.#filledAt = now;
    const buffer = Buffer.allocUnsafeSlow(Math.max(bytesMin, Math.min(wanted, MEMORY_MAX), MEMORY_MIN));
    return { buffer, numbers: new Uint32Array(buffer.buffer), at: 0, isShared: false };
  }
}

module.exports = { Memory };
