/** When messages are due. */

import { NS_PER_S } from "./clock.js";
import { randomOf } from "./random.js";

/** The times of the messages of a connection. Together all connections keep the rate, and not all of them send at once. */
export class Pace {
  readonly #beganNs: number;
  readonly #perS: number;
  readonly #connections: number;
  readonly #random: (() => number) | undefined;
  /** The number of the next message over all connections; at random times it is drawn. */
  #number: number;

  /** `index` counts over all `connections`, those of other workers too; without a seed the times are even. */
  constructor(beganNs: number, perS: number, connections: number, index: number, poissonSeed?: number) {
    this.#beganNs = beganNs;
    this.#perS = perS;
    this.#connections = Math.max(1, connections);
    if (poissonSeed !== undefined) {
      const random = randomOf(poissonSeed * 1_000_003 + index);
      this.#random = () => -Math.log(1 - random(2 ** 32) / 2 ** 32);
    }
    // A random time has no first place.
    this.#number = this.#random === undefined ? index : this.#connections * this.#random();
  }

  /** The time of the next message. */
  get nextNs(): number {
    // A sum of intervals adds up rounding errors, and a message at the end could seem to be due before it.
    return this.#beganNs + (this.#number * NS_PER_S) / this.#perS;
  }

  /** It has been dealt with. */
  advance(): void {
    this.#number += this.#connections * (this.#random?.() ?? 1);
  }
}
