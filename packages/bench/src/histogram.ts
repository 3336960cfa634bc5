/** Histogram of latencies: three significant digits from a nanosecond to a minute, as the report's others are. */

/** The longest latency that is distinguished: 60 seconds. */
export const LATENCY_NS_MAX = 60_000_000_000;

/** Buckets are linear up to twice this number, and then this many for each doubling: 0.1 % wide at most. */
const HALF = 1024;
const POINTS_PER_DECADE = 8;
/** Buckets up to {@link LATENCY_NS_MAX}, which has 36 bits. */
const BUCKETS = 27 * HALF;

/** Where the clock of a latency starts. */
export type LatencyOrigin = "sent" | "intended" | "first_received";

/** A distribution as a report has it, in microseconds. */
export interface Latency {
  origin: LatencyOrigin;
  p50: number;
  p90: number;
  p95: number;
  p99: number;
  p99_9: number;
  p99_99: number;
  min: number;
  max: number;
  mean: number;
  stdev: number;
  count: number;
  points: [percentile: number, us: number][];
}

/** The values of a histogram in a form that travels between processes: bucket and count in turn. */
export interface PackedHistogram {
  buckets: number[];
  min: number;
  max: number;
  sum: number;
  squares: number;
}

/** Records latencies in nanoseconds. */
export class Histogram {
  #counts: Float64Array | undefined;
  #min = Number.POSITIVE_INFINITY;
  #max = 0;
  #sum = 0;
  #squares = 0;
  count = 0;

  /** Records one latency; a longer one than {@link LATENCY_NS_MAX} is recorded as that. */
  record(latencyNs: number, times = 1): void {
    const value = Math.max(1, Math.min(Math.round(latencyNs), LATENCY_NS_MAX));
    this.#counts ??= new Float64Array(BUCKETS);
    this.#counts[bucketOf(value)]! += times;
    this.count += times;
    this.#sum += value * times;
    this.#squares += value * value * times;
    if (value < this.#min) this.#min = value;
    if (value > this.#max) this.#max = value;
  }

  /** Adds what another process has recorded. */
  add(packed: PackedHistogram): void {
    if (packed.buckets.length === 0) return;
    this.#counts ??= new Float64Array(BUCKETS);
    for (let index = 0; index < packed.buckets.length; index += 2) {
      const times = packed.buckets[index + 1]!;
      this.#counts[packed.buckets[index]!]! += times;
      this.count += times;
    }
    this.#sum += packed.sum;
    this.#squares += packed.squares;
    this.#min = Math.min(this.#min, packed.min);
    this.#max = Math.max(this.#max, packed.max);
  }

  pack(): PackedHistogram {
    const buckets: number[] = [];
    this.#counts?.forEach((times, bucket) => {
      if (times > 0) buckets.push(bucket, times);
    });
    return { buckets, min: this.#min, max: this.#max, sum: this.#sum, squares: this.#squares };
  }

  /** The latency in nanoseconds that `percentile` (0 to 100) of those recorded do not exceed. */
  percentileNs(percentile: number): number {
    const wanted = Math.max(1, Math.ceil((percentile / 100) * this.count - 1e-9));
    let seen = 0;
    const counts = this.#counts ?? [];
    for (let bucket = 0; bucket < counts.length; bucket += 1) {
      seen += counts[bucket]!;
      if (seen >= wanted) return Math.min(upperEnd(bucket), this.#max);
    }
    return this.#max;
  }

  /** The distribution, if anything was recorded. */
  summary(origin: LatencyOrigin): Latency | undefined {
    if (this.count === 0) return undefined;
    const at = (percentile: number) => us(this.percentileNs(percentile));
    const mean = this.#sum / this.count;
    const variance = Math.max(0, this.#squares / this.count - mean * mean);
    return {
      origin,
      p50: at(50),
      p90: at(90),
      p95: at(95),
      p99: at(99),
      p99_9: at(99.9),
      p99_99: at(99.99),
      min: us(this.#min),
      max: us(this.#max),
      mean: us(mean),
      stdev: us(Math.sqrt(variance)),
      count: this.count,
      points: this.#points(),
    };
  }

  /** Evenly spaced on an axis of log 1/(1-p), as far as the number of values tells percentiles apart. */
  #points(): [percentile: number, us: number][] {
    const points: [number, number][] = [];
    for (let step = 0; ; step += 1) {
      const inverse = 10 ** (step / POINTS_PER_DECADE);
      if (inverse > this.count) break;
      const percentile = 100 * (1 - 1 / inverse);
      points.push([Math.round(percentile * 1e6) / 1e6, us(this.percentileNs(percentile))]);
    }
    points.push([100, us(this.#max)]);
    return points;
  }
}

function bucketOf(value: number): number {
  if (value < 2 * HALF) return value;
  // Above 2^31 the operators on 32 bits do not reach.
  const shift = Math.floor(Math.log2(value)) - 10;
  const exact = value / 2 ** shift;
  // A logarithm just below a power of two may be rounded up.
  if (exact < HALF) return (shift - 1) * HALF + Math.floor(exact * 2);
  return shift * HALF + Math.min(Math.floor(exact), 2 * HALF - 1);
}

/** The largest value of a bucket. */
function upperEnd(bucket: number): number {
  if (bucket < 2 * HALF) return bucket;
  const shift = Math.floor(bucket / HALF) - 1;
  return (bucket - shift * HALF + 1) * 2 ** shift - 1;
}

/** Nanoseconds to microseconds, with three decimals. */
function us(ns: number): number {
  return Math.round(ns) / 1000;
}
