/** Connection quality, from the answers to pings. */

/** The quality of a connection, measured by its pings. */
export interface Quality {
  /** Smoothed round-trip time in milliseconds (RFC 6298, with 1/8); 0 before the first answer. */
  latencyMs: number;
  /**
   * Smoothed difference between successive round-trip times in milliseconds (RFC 3550 section
   * 6.4.1, with 1/16).
   */
  jitterMs: number;
  /** The share of the last 50 pings that were not answered within 10 s, from 0 to 1. */
  loss: number;
  /** From 0 (useless) to 100: 100 minus the deductions for latency, jitter and loss. */
  score: number;
  /** Pings that were answered. */
  answered: number;
}

/**
 * Measures the quality of one connection. Times are milliseconds with fractions, on a clock that
 * never goes back.
 */
export class QualityMeter {
  #latencyMs = 0;
  #jitterMs = 0;
  #lastMs: number | undefined;
  #answered = 0;
  /** When each ping on its way was sent. They are answered in order. */
  #open: number[] = [];
  /** Whether each of the last pings was answered, the newest last. */
  readonly #recent: boolean[] = [];

  pingSent(nowMs: number): void {
    if (this.#open.length === OPEN_MAX) {
      this.#open.shift();
      this.#remember(false);
    }
    this.#open.push(nowMs);
  }

  /**
   * An answer, which belongs to the oldest ping on its way. Returns its round-trip time; undefined
   * without a ping.
   */
  pongReceived(nowMs: number): number | undefined {
    const sentMs = this.#open.shift();
    if (sentMs === undefined) return undefined;
    const latencyMs = Math.max(nowMs - sentMs, 0);
    this.#remember(latencyMs <= ANSWER_MS_MAX);
    this.#latencyMs += (latencyMs - this.#latencyMs) / (this.#answered === 0 ? 1 : 8);
    if (this.#lastMs !== undefined) {
      this.#jitterMs += (Math.abs(latencyMs - this.#lastMs) - this.#jitterMs) / 16;
    }
    this.#lastMs = latencyMs;
    this.#answered += 1;
    return latencyMs;
  }

  /** Pings on their way count as lost, because their connection is gone. */
  disconnected(): void {
    for (const _ of this.#open) this.#remember(false);
    this.#open = [];
  }

  quality(nowMs: number): Quality {
    const late = this.#open.filter((sentMs) => nowMs - sentMs > ANSWER_MS_MAX).length;
    const lost = this.#recent.filter((answered) => !answered).length + late;
    const loss = lost / (this.#recent.length + late || 1);
    return {
      latencyMs: this.#latencyMs,
      jitterMs: this.#jitterMs,
      loss,
      score: score(this.#latencyMs, this.#jitterMs, loss),
      answered: this.#answered,
    };
  }

  #remember(answered: boolean): void {
    if (this.#recent.length === WINDOW) this.#recent.shift();
    this.#recent.push(answered);
  }
}

/**
 * 40 points for latency (all up to 20 ms, none from 1 s on, by its logarithm), 20 for jitter (none
 * from 200 ms on) and 40 for loss (none from 20 % on).
 */
function score(latencyMs: number, jitterMs: number, loss: number): number {
  const slow = Math.min(Math.log(Math.max(latencyMs, 20) / 20) / Math.log(50), 1);
  return Math.round(100 - 40 * slow - 20 * Math.min(jitterMs / 200, 1) - 40 * Math.min(loss / 0.2, 1));
}

/** Pings that count for the loss. */
const WINDOW = 50;
/** Milliseconds after which a ping without an answer counts as lost. */
const ANSWER_MS_MAX = 10_000;
/** Pings that may be on their way; the oldest counts as lost for a further one. */
const OPEN_MAX = 64;
