"use strict";

// Places for clients that wait for something, shared among their addresses.

const { BusyError } = require("./errors.js");

/** So many places. When all are taken, a new client takes that of the oldest of the address that has the most. */
class Places {
  #max;
  #count = 0;
  /** By the address: what ends each of its clients, the oldest first. */
  #byAddress = new Map();

  constructor(max) {
    this.#max = max;
  }

  /** Takes a place: a function that gives it back, and a promise that rejects with a `BusyError` when another takes it. */
  take(address) {
    const own = this.#byAddress.get(address) ?? new Set();
    if (this.#count >= this.#max) this.#makeRoom(own);
    let evict;
    const evicted = new Promise((_, reject) => {
      evict = () => reject(new BusyError("too many clients wait for authorize"));
    });
    // It may have been decided about by then.
    evicted.catch(() => {});
    own.add(evict);
    this.#byAddress.set(address, own);
    this.#count += 1;
    return { evicted, giveBack: () => this.#giveBack(address, own, evict) };
  }

  #makeRoom(own) {
    const [address, most] = [...this.#byAddress].reduce((a, b) => (b[1].size > a[1].size ? b : a));
    if (most.size <= own.size) throw new BusyError("too many clients wait for authorize");
    const [oldest] = most;
    this.#giveBack(address, most, oldest);
    oldest();
  }

  #giveBack(address, own, evict) {
    if (!own.delete(evict)) return;
    this.#count -= 1;
    if (own.size === 0 && this.#byAddress.get(address) === own) this.#byAddress.delete(address);
  }
}

module.exports = { Places };
