/** Circuit breaker: an endpoint that failed too often is left alone for a while. */

/** When a breaker opens and closes. */
export interface BreakerOptions {
  /** Failures in a row that open it; 0 for never. Default 5. */
  failuresMax: number;
  /** How long it stays open before a trial is let through. Default 30,000. */
  openMs: number;
  /** Trials that have to succeed, one after another, to close it again. Default 1. */
  trials: number;
}

/** `closed` lets all attempts through, `open` none, `half_open` one at a time. */
export type BreakerState = "closed" | "open" | "half_open";

export const defaultBreaker: BreakerOptions = { failuresMax: 5, openMs: 30_000, trials: 1 };

/** Decides whether an attempt may be made. */
export class Breaker {
  readonly #options: BreakerOptions;
  #state: BreakerState = "closed";
  /** Failures in a row while closed, successes in a row while half open. */
  #count = 0;
  #untilMs = 0;
  #trial = false;

  constructor(options: BreakerOptions) {
    this.#options = options;
  }

  /**
   * Asks to make an attempt: 0 if it may be made, whose end {@link succeeded} or {@link failed}
   * then reports; otherwise the milliseconds until it makes sense to ask again.
   */
  acquire(nowMs: number): number {
    const waitMs = this.waitMs(nowMs);
    if (waitMs === 0 && this.#state !== "closed") {
      if (this.#state === "open") this.#count = 0;
      this.#state = "half_open";
      this.#trial = true;
    }
    return waitMs;
  }

  /** Milliseconds until an attempt is let through; 0 if one is now. */
  waitMs(nowMs: number): number {
    if (this.#state === "open") return Math.max(this.#untilMs - nowMs, 0);
    return this.#trial ? TRIAL_MS : 0;
  }

  succeeded(): void {
    if (this.#state === "open") return;
    this.#trial = false;
    this.#count = this.#state === "closed" ? 0 : this.#count + 1;
    if (this.#count >= this.#options.trials) {
      this.#state = "closed";
      this.#count = 0;
    }
  }

  failed(nowMs: number): void {
    if (this.#state === "open") return;
    const { failuresMax, openMs } = this.#options;
    this.#count += 1;
    if (this.#state === "half_open" || (failuresMax > 0 && this.#count >= failuresMax)) {
      this.#state = "open";
      this.#trial = false;
      this.#untilMs = nowMs + openMs;
    }
  }

  state(nowMs: number): BreakerState {
    return this.#state === "open" && nowMs >= this.#untilMs ? "half_open" : this.#state;
  }
}

/** When to ask again while a trial is on its way. */
const TRIAL_MS = 100;
