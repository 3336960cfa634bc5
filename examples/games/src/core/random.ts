/**
 * Seeded generator of pseudo-random numbers (mulberry32). Its state is one number, so that it is
 * part of a snapshot.
 */
export class Random {
  #state: number;

  constructor(seed: number) {
    this.#state = seed >>> 0;
  }

  /** The state; `new Random(state)` continues here. */
  get state(): number {
    return this.#state;
  }

  /** The next number, 0 included and 1 excluded. */
  next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from 0 to `end`, `end` excluded. */
  below(end: number): number {
    return Math.floor(this.next() * end);
  }
}
