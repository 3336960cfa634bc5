"use strict";

// The lines that a load prints while it runs, each with the figures of the time since the line before.

const PROGRESS_MS = 5_000;

const NOTHING = { ms: 0, requests: 0, errors: 0, latencies: 0, latencySumMs: 0 };

/** The lines of one load. */
class Progress {
  #maxRequests;
  #print;
  #last = NOTHING;

  constructor({ maxRequests }, print) {
    this.#maxRequests = maxRequests;
    this.#print = print;
  }

  /** Whether it is time for the next lines, `ms` after the start. */
  isDue(ms) {
    return ms >= this.#last.ms + PROGRESS_MS;
  }

  /** Prints the lines for sums since the start: the time in ms, requests, errors, latencies and the sum of these in ms. */
  show(now) {
    const { ms, requests, errors, latencies, latencySumMs } = now;
    const last = this.#last;
    this.#last = now;
    const rate = Math.round(((requests - last.requests) / (ms - last.ms)) * 1000);
    const part =
      this.#maxRequests === undefined ? "" : ` (${Math.round((100 * requests) / this.#maxRequests)}%)`;
    const mean = (latencySumMs - last.latencySumMs) / (latencies - last.latencies) || 0;
    const latency = Number(mean.toFixed(3));
    this.#print(`Requests: ${requests}${part}, requests per second: ${rate}, mean latency: ${latency} ms`);
    if (errors === 0) return;
    const share = Math.round((1000 * errors) / requests) / 10;
    const fresh = errors - last.errors;
    this.#print(`Errors: ${fresh}, accumulated errors: ${errors}, ${share}% of total requests`);
  }
}

module.exports = { Progress, PROGRESS_MS };
