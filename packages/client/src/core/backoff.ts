/**
 * Waiting times between attempts to connect: growing, random, and never shorter than the server
 * asks for.
 */

/** When a lost connection is opened again. */
export interface ReconnectPolicy {
  /**
   * How the time between attempts grows. `adaptive` lies between linear and exponential: it grows
   * by up to three times where nearly all attempts fail, and by a third where nearly all succeed.
   * Default `exponential`.
   */
  delay: "exponential" | "linear" | "fibonacci" | "adaptive";
  /** The time before the first attempt, and the unit of all growth. Default 500. */
  baseMs: number;
  /**
   * The longest time between two attempts; what the server asks for may be longer. Default 30,000.
   */
  maxMs: number;
  /** Attempts in a row that may fail before the client gives up; 0 for no limit. Default 0. */
  attemptsMax: number;
  /** For how long the client tries before it gives up; 0 for ever. Default 0. */
  timeMaxMs: number;
  /** The longest wait that a server can ask for. Default 600,000. */
  hintMaxMs: number;
}

export const defaultReconnect: ReconnectPolicy = {
  delay: "exponential",
  baseMs: 500,
  maxMs: 30_000,
  attemptsMax: 0,
  timeMaxMs: 0,
  hintMaxMs: 600_000,
};

/** The attempts of one client. */
export class Backoff {
  readonly #policy: ReconnectPolicy;
  #failures = 0;
  /** Sessions in a row that did not last. */
  #brief = 0;
  #sinceMs: number | undefined;
  #adaptiveMs: number;
  /** The share of attempts that succeed, from 0 to 1, smoothed. */
  #success = 1;

  constructor(policy: ReconnectPolicy) {
    this.#policy = policy;
    this.#adaptiveMs = policy.baseMs;
  }

  /** Attempts that have failed in a row. */
  get failures(): number {
    return this.#failures;
  }

  /**
   * A session was established: counting begins anew. One that did not last counts with those before it that did not, so that
   * a server that accepts clients only to lose them gets fewer and fewer attempts.
   */
  succeeded(hasLasted = true): void {
    this.#failures = hasLasted ? (this.#brief = 0) : this.#brief++;
    if (this.#failures) return;
    this.#sinceMs = undefined;
    this.#success += (1 - this.#success) * SMOOTHING;
    this.#adaptiveMs = this.#policy.baseMs;
  }

  /**
   * Milliseconds to wait after an attempt that failed or a connection that was lost; undefined to give up.
   * `random` in [0, 1) draws the time evenly from 0 to the full delay (full jitter), so that clients that were
   * cut off together reconnect at different times. The time is added to `hintMs`, the time that the server asked
   * for.
   */
  next(hintMs: number | undefined, nowMs: number, random: number): number | undefined {
    const { attemptsMax, timeMaxMs, hintMaxMs } = this.#policy;
    this.#sinceMs ??= nowMs;
    if (attemptsMax > 0 && this.#failures >= attemptsMax) return undefined;
    const fullMs = Math.floor(this.#fullDelayMs());
    this.#failures += 1;
    this.#success -= this.#success * SMOOTHING;
    const waitMs = Math.min(hintMs ?? 0, hintMaxMs) + Math.floor(random * (fullMs + 1));
    return timeMaxMs > 0 && nowMs - this.#sinceMs + waitMs > timeMaxMs ? undefined : waitMs;
  }

  /**
   * As {@link next} after a `reconnect` message of the server, which gives each of its clients a
   * time of its own: that time, and nothing random.
   */
  nextAt(afterMs: number, nowMs: number): number | undefined {
    return this.next(undefined, nowMs, 0) === undefined
      ? undefined
      : Math.min(afterMs, this.#policy.hintMaxMs);
  }

  #fullDelayMs(): number {
    const { delay, baseMs, maxMs } = this.#policy;
    if (delay !== "adaptive") return Math.min(baseMs * GROWTH[delay](this.#failures), maxMs);
    const fullMs = Math.min(this.#adaptiveMs, maxMs);
    this.#adaptiveMs = fullMs * (GROWTH_MAX - (GROWTH_MAX - GROWTH_MIN) * this.#success);
    return fullMs;
  }
}

/** The weight of the newest attempt in the share that succeeds. */
const SMOOTHING = 0.3;
const GROWTH_MAX = 3;
const GROWTH_MIN = 4 / 3;
/** Failures after which the factor grows no further: Infinity times a base of 0 would be no time. */
const GROWING_MAX = 900;
/** The factor of the base after a number of failures. */
const GROWTH = {
  exponential: (failures: number) => 2 ** Math.min(failures, GROWING_MAX),
  linear: (failures: number) => failures + 1,
  // Binet's formula, which is exact up to the 70th number; `maxMs` is reached long before.
  fibonacci: (failures: number) =>
    Math.round(((1 + Math.sqrt(5)) / 2) ** (Math.min(failures, GROWING_MAX) + 1) / Math.sqrt(5)),
};
