/** The quality of a client's connection, measured by its pings. */

import { QualityMeter } from "./core/quality.js";
import type { QualityPort } from "./options.js";

export type { Quality } from "./core/quality.js";
export type { QualityPort } from "./options.js";

/** A connection with a lower score is poor. */
const POOR_SCORE = 40;
/** Answers before which nothing is known. */
const ANSWERS_MIN = 3;

/**
 * Measures latency, jitter and loss, for the option `quality` of one client: `get()` returns them. A client whose
 * connection is poor asks for less, unless `adapt` is false.
 */
export function quality(): QualityPort {
  const meter = new QualityMeter();
  const get = () => meter.quality(performance.now());
  const port: Omit<QualityPort, symbol> = {
    get,
    isPoor() {
      const { answered, score } = get();
      return answered >= ANSWERS_MIN && score < POOR_SCORE;
    },
    pingSent: (nowMs) => meter.pingSent(nowMs),
    pongReceived: (nowMs) => void meter.pongReceived(nowMs),
    disconnected: () => meter.disconnected(),
  };
  return port as QualityPort;
}
