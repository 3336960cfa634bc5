/** Producers: clients with a queue, of whose messages each counts once (PROTOCOL 20). */

import { hex } from "../core/bytes.js";
import { randomBytes } from "../core/random.js";

interface Producer {
  epoch: string;
  last: number;
  /** The connection that sends for it. */
  owner: { close(code: number, reason: string): void };
}

export class Producers {
  readonly #producers = new Map<string, Producer>();

  /** Forgets all, as a server that restarts. */
  clear(): void {
    this.#producers.clear();
  }

  /** A connection sends for a producer from now on; the one before is closed. */
  claim(id: string, owner: Producer["owner"]): void {
    const known = this.#producers.get(id);
    if (!known) this.#producers.set(id, { epoch: hex(randomBytes(4)), last: 0, owner });
    else if (known.owner !== owner) {
      known.owner.close(4409, "another connection sends for this producer");
      known.owner = owner;
    }
  }

  isOf(id: string, owner: Producer["owner"]): boolean {
    return this.#producers.get(id)?.owner === owner;
  }

  state(id: string): { epoch: string; last: number } {
    const { epoch = "00000000", last = 0 } = this.#producers.get(id) ?? {};
    return { epoch, last };
  }

  accept(id: string): void {
    const producer = this.#producers.get(id);
    if (producer) producer.last += 1;
  }
}
