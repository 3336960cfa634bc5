"use strict";

// Several payloads in one piece of memory: each is its length as a number of 32 bits, and its JSON text.

const { encode } = require("./json.js");

const SIZE_MIN = 16 * 1024;
const SIZE_KEPT = 1024 * 1024;
const LENGTH_BYTES = 4;

/** Memory that is used again from call to call. */
class Payloads {
  #buffer = Buffer.allocUnsafeSlow(SIZE_MIN);

  /** Where the payloads stand: from 0 to `end` of `buffer`, until the next call. */
  pack(payloads) {
    if (this.#buffer.length > SIZE_KEPT) this.#buffer = Buffer.allocUnsafeSlow(SIZE_MIN);
    let end = 0;
    for (const payload of payloads) {
      const text = encode(payload);
      const needed = end + LENGTH_BYTES + 3 * text.length;
      if (needed > this.#buffer.length) this.#grow(needed, end);
      const length = this.#buffer.write(text, end + LENGTH_BYTES);
      this.#buffer.writeUInt32LE(length, end);
      end += LENGTH_BYTES + length;
    }
    return { buffer: this.#buffer, end };
  }

  #grow(needed, end) {
    const buffer = Buffer.allocUnsafeSlow(2 * needed);
    this.#buffer.copy(buffer, 0, 0, end);
    this.#buffer = buffer;
  }
}

module.exports = { Payloads };
