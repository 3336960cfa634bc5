"use strict";

// The signals that end a program.

const { deferred } = require("./waiting.js");

const SIGNALS = ["SIGINT", "SIGTERM"];
/** The exit code of a program that a second signal has ended, as that of `tidewire serve`. */
const INTERRUPTED = 130;

/** Listens for signals: the promise `told` is resolved by the first, and the second calls `onSecond`. One more ends the process. */
class Signals {
  #told = deferred();
  #count = 0;
  #listener;

  constructor(onSecond) {
    this.#listener = () => {
      this.#count += 1;
      this.#told.resolve();
      if (this.#count === 1) return;
      process.exitCode = INTERRUPTED;
      onSecond();
      this.ignore();
    };
    for (const signal of SIGNALS) process.on(signal, this.#listener);
  }

  get told() {
    return this.#told.promise;
  }

  /** Listens no more. */
  ignore() {
    for (const signal of SIGNALS) process.off(signal, this.#listener);
  }
}

module.exports = { Signals };
