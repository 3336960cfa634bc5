/** Masks of RFC 6455, section 5.3: a fresh, unpredictable 32-bit key for each frame. */

import { randomFillSync } from "node:crypto";

/** Keys that one call of the random number generator makes: 32 KiB. */
const POOL_KEYS = 8192;

const pool = new Int32Array(POOL_KEYS);
let next = POOL_KEYS;

/** The byte order of this machine, in which `Int32Array` reads the bytes of a slab. */
const IS_LITTLE_ENDIAN = new Uint8Array(new Uint32Array([1]).buffer)[0] === 1;

/** A key that has not been used before, as a 32-bit number in the byte order of the machine. */
export function nextMask(): number {
  if (next === POOL_KEYS) {
    randomFillSync(pool);
    next = 0;
  }
  return pool[next++]!;
}

/** Writes the four bytes of a key at `at`. */
export function writeMask(bytes: Uint8Array, at: number, mask: number): void {
  if (IS_LITTLE_ENDIAN) {
    bytes[at] = mask;
    bytes[at + 1] = mask >>> 8;
    bytes[at + 2] = mask >>> 16;
    bytes[at + 3] = mask >>> 24;
  } else {
    bytes[at] = mask >>> 24;
    bytes[at + 1] = mask >>> 16;
    bytes[at + 2] = mask >>> 8;
    bytes[at + 3] = mask;
  }
}

/**
 * Masks `bytes` from `start` to `end` in place; the key is the four bytes directly before `start`. `words` are the
 * same bytes in units of four, from byte 0 on.
 */
export function applyMask(
  bytes: Uint8Array,
  words: Int32Array,
  start: number,
  end: number,
  mask: number,
): void {
  let at = start;
  while (at < end && (at & 3) !== 0) {
    bytes[at] = bytes[at]! ^ bytes[start - 4 + ((at - start) & 3)]!;
    at += 1;
  }
  const lastWord = end >> 2;
  const shift = ((at - start) & 3) << 3;
  let rotated = mask;
  if (shift !== 0) {
    rotated = IS_LITTLE_ENDIAN
      ? (mask >>> shift) | (mask << (32 - shift))
      : (mask << shift) | (mask >>> (32 - shift));
  }
  for (let word = at >> 2; word < lastWord; word += 1) words[word] = words[word]! ^ rotated;
  if (lastWord << 2 > at) at = lastWord << 2;
  while (at < end) {
    bytes[at] = bytes[at]! ^ bytes[start - 4 + ((at - start) & 3)]!;
    at += 1;
  }
}
