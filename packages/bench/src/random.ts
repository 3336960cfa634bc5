/** Random numbers of a seed: the same seed gives the same messages. */

/** Whole numbers from 0 to below `limit`. */
export type Random = (limit: number) => number;

/** The generator mulberry32 (32 bits of state). */
export function randomOf(seed: number): Random {
  let state = seed | 0;
  return (limit) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * limit);
  };
}
