"use strict";

// A limit of lines of the log about the same fault, which clients can cause.

const LINES_PER_SECOND_MAX = 10;

/** Writes the first lines of each second, and later the number of the others. */
class LineLimit {
  #summary;
  #until = 0;
  #count = 0;
  #leftOut = 0;

  /** `summary` makes the line about those that were left out from their number. */
  constructor(summary) {
    this.#summary = summary;
  }

  /** Writes a line if there is room for it. */
  line(log, message, error) {
    const now = Date.now();
    if (now >= this.#until) {
      this.conclude(log);
      this.#until = now + 1000;
      this.#count = 0;
    }
    if (this.#count >= LINES_PER_SECOND_MAX) {
      this.#leftOut += 1;
      return;
    }
    this.#count += 1;
    log("error", message, error);
  }

  /** Writes the number of the lines that were left out. */
  conclude(log) {
    if (this.#leftOut === 0) return;
    log("error", this.#summary(this.#leftOut));
    this.#leftOut = 0;
  }
}

module.exports = { LineLimit };
