/** Outbound rate limit: a token bucket that keeps below what the server accepts. */

/**
 * A token bucket: `capacity` messages at once, `refillPerS` in the long run. A warning of the
 * server halves the rate for some seconds; a refusal stops it for as long as the server asks, and
 * halves it after that.
 */
export class RateLimit {
  readonly #capacity: number;
  readonly #refillPerMs: number;
  #tokens: number;
  #atMs: number;
  /** Until when the refill is halved. */
  #slowUntilMs = 0;
  /** Until when nothing is sent. */
  #stoppedUntilMs = 0;

  /** A full bucket. A `capacity` or `refillPerS` of 0 means no limit until the server warns or refuses. */
  constructor(capacity: number, refillPerS: number, nowMs: number) {
    this.#capacity = capacity > 0 && refillPerS > 0 ? capacity : Infinity;
    this.#refillPerMs = refillPerS / 1000;
    this.#tokens = this.#capacity;
    this.#atMs = nowMs;
  }

  /** How many messages may be sent now, of up to `wanted`; they count as sent. */
  take(wanted: number, nowMs: number): number {
    if (nowMs < this.#stoppedUntilMs) return 0;
    this.#refill(nowMs);
    const taken = Math.min(wanted, Math.floor(this.#tokens));
    this.#tokens -= taken;
    return taken;
  }

  /** Returns messages to the bucket that were acquired and not sent. */
  giveBack(messages: number): void {
    this.#tokens = Math.min(this.#tokens + messages, this.#capacity);
  }

  /** When the next message may be sent; `nowMs` if one may at once. */
  nextAt(nowMs: number): number {
    if (nowMs < this.#stoppedUntilMs) return this.#stoppedUntilMs;
    this.#refill(nowMs);
    if (this.#tokens >= 1) return nowMs;
    const rate = this.#refillPerMs * (nowMs < this.#slowUntilMs ? 0.5 : 1);
    return nowMs + Math.ceil((1 - this.#tokens) / rate);
  }

  /**
   * After `rate_limit_warning`: no more than the server has left, and half of the rate for a while.
   */
  warned(remaining: number, nowMs: number): void {
    this.#refill(nowMs);
    this.#tokens = Math.min(this.#tokens, remaining);
    this.#slowUntilMs = nowMs + SLOW_MS;
  }

  /** After `RATE_LIMITED`: nothing is sent for so long, and then half of the rate for a while. */
  refused(retryAfterMs: number, nowMs: number): void {
    this.#refill(nowMs);
    this.#stoppedUntilMs = nowMs + Math.min(Math.max(retryAfterMs, REFUSAL_MS_MIN), REFUSAL_MS_MAX);
    this.#slowUntilMs = this.#stoppedUntilMs + SLOW_MS;
    if (this.#capacity < Infinity) this.#tokens = 0;
  }

  #refill(nowMs: number): void {
    if (nowMs <= this.#atMs) return;
    const slowMs = Math.min(Math.max(this.#slowUntilMs, this.#atMs), nowMs) - this.#atMs;
    const refilled = this.#refillPerMs * (nowMs - this.#atMs - slowMs / 2);
    this.#tokens = Math.min(this.#tokens + refilled, this.#capacity);
    this.#atMs = nowMs;
  }
}

/** For how long a warning or a refusal keeps the rate halved. */
const SLOW_MS = 5_000;
/** `retry_after` has whole seconds, and 0 would be none. */
const REFUSAL_MS_MIN = 100;
/** No server can silence a client for longer. */
const REFUSAL_MS_MAX = 60_000;
