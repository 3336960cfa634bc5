/** Histogram of latencies in the form of the worker contract. */

/** The longest latency that is distinguished: 60 seconds. */
export const LATENCY_NS_MAX = 60_000_000_000;

/** Buckets are linear up to twice this number, and then this many for each doubling: 0.1 % wide at most. */
const HALF = 1024;
/** Buckets up to {@link LATENCY_NS_MAX}, which has 36 bits. */
const BUCKETS = 27 * HALF;

/** Counts latencies in nanoseconds. */
export class Histogram {
  /** Made with the first value: most tests need only some of their histograms. */
  #counts: Float64Array | undefined;

  record(ns: number): void {
    this.#counts ??= new Float64Array(BUCKETS);
    this.#counts[bucketOf(Math.min(Math.max(1, Math.round(ns)), LATENCY_NS_MAX))]! += 1;
  }

  /** A value of each bucket that has any, and how many are in it. */
  buckets(): [valueNs: number, count: number][] {
    const found: [number, number][] = [];
    this.#counts?.forEach((count, bucket) => {
      if (count > 0) found.push([lowerEnd(bucket), count]);
    });
    return found;
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

/** The smallest value of a bucket. */
function lowerEnd(bucket: number): number {
  if (bucket < 2 * HALF) return bucket;
  const shift = Math.floor(bucket / HALF) - 1;
  return (bucket - shift * HALF) * 2 ** shift;
}
