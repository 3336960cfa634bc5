/** Slabs: reused memory in which the frames of one turn of the event loop are put together. */

/** A piece of memory; `words` are the same bytes in units of four. */
export interface Slab {
  readonly bytes: Buffer;
  readonly words: Int32Array;
}

/** Enough for a few short messages: what a connection holds that sends little. */
export const SMALL_BYTES = 2048;
/** What one write has at most, but for a message that is longer by itself. */
export const LARGE_BYTES = 65_536;

/** How many free slabs are kept: 2 MiB of small ones, 8 MiB of large ones. */
const SMALL_FREE_MAX = 1024;
const LARGE_FREE_MAX = 128;

const small: Slab[] = [];
const large: Slab[] = [];

/** A slab of its own size, for `bytes` bytes. */
export function newSlab(bytes: number): Slab {
  const rounded = (bytes + 3) & ~3;
  const memory = Buffer.allocUnsafeSlow(rounded);
  return { bytes: memory, words: new Int32Array(memory.buffer, memory.byteOffset, rounded >> 2) };
}

/** A slab of one of the two sizes. */
export function acquireSlab(isLarge: boolean): Slab {
  return (isLarge ? large : small).pop() ?? newSlab(isLarge ? LARGE_BYTES : SMALL_BYTES);
}

/** Gives back a slab that nobody reads any more. */
export function releaseSlab(slab: Slab): void {
  if (slab.bytes.length === LARGE_BYTES) {
    if (large.length < LARGE_FREE_MAX) large.push(slab);
  } else if (slab.bytes.length === SMALL_BYTES) {
    if (small.length < SMALL_FREE_MAX) small.push(slab);
  }
}
