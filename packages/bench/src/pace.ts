/** When messages are due. */

import { NS_PER_S } from "./clock.js";
import { randomOf } from "./random.js";

/** The times of the messages of a connection. Together all connections keep the rate, and not all of them send at once. */
export class Pace {
  readonly #intervalNs: number;
  readonly #random: (() => number) | undefined;
  #nextNs: number;

  /** `index` counts over all `connections`, those of other workers too; without a seed the times are even. */
  constructor(beganNs: number, perS: number, connections: number, index: number, poissonSeed?: number) {
    this.#intervalNs = (NS_PER_S * Math.max(1, connections)) / perS;
    if (poissonSeed !== undefined) {
      const random = randomOf(poissonSeed * 1_000_003 + index);
      this.#random = () => -Math.log(1 - random(2 ** 32) / 2 ** 32);
    }
    // A random time has no first place.
    const first = this.#random === undefined ? index / Math.max(1, connections) : this.#random();
    this.#nextNs = beganNs + this.#intervalNs * first;
  }

  /** The time of the next message. */
  get nextNs(): number {
    return this.#nextNs;
  }

  /** It has been dealt with. */
  advance(): void {
    this.#nextNs += this.#intervalNs * (this.#random?.() ?? 1);
  }
}
