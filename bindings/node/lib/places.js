"use strict";

// Places for clients that wait for something, shared among their addresses.

const { isIPv6 } = require("node:net");
const { BusyError } = require("./errors.js");

/**
 * A number of places. When all are taken, a new client takes that of the oldest of the address that has the most. What was begun for a
 * client runs on without its place, so that at most twice as many run at once.
 */
class Places {
  #max;
  #count = 0;
  #running = 0;
  /** By the address: what ends each of its clients, the oldest first. */
  #byAddress = new Map();

  constructor(max) {
    this.#max = max;
  }

  /**
   * Takes a place: a function that gives it back, a promise that rejects with a `BusyError` when another takes it, and a function to
   * call when what was begun for it has ended.
   */
  take(from) {
    const address = sourceOf(from);
    const own = this.#byAddress.get(address) ?? new Set();
    if (this.#running >= 2 * this.#max) throw new BusyError("too many clients wait for authorize");
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
    this.#running += 1;
    const end = () => {
      this.#running -= 1;
    };
    return { evicted, giveBack: () => this.#giveBack(address, own, evict), end };
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

/** The part of an address that one party has: of IPv6 a network with a prefix of 64 bits. */
function sourceOf(address) {
  if (typeof address !== "string" || !isIPv6(address) || address.includes(".")) return address;
  const [head, tail = ""] = address.split("::");
  const [first, last] = [head, tail].map((half) => (half === "" ? [] : half.split(":")));
  const zeros = new Array(Math.max(0, 8 - first.length - last.length)).fill("0");
  return [...first, ...zeros, ...last].slice(0, 4).join(":");
}

module.exports = { Places };
