/** A seeded generator of numbers in [0, 1) (mulberry32), so that a failing test can be repeated. */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** Whole numbers from 0 to below `limit`. */
export type Random = (limit: number) => number;

/** A seeded generator of whole numbers. */
export function randomOf(seed: number): Random {
  const next = seeded(seed);
  return (limit) => Math.floor(next() * limit);
}
