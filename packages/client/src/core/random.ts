/** Randomness for names that must be unique. Keys use only that of `crypto`. */

import type { Bytes } from "./bytes.js";

/** Random bytes; where there is no `crypto`, as in React Native, those of `Math.random`, which can be guessed. */
export function randomBytes(count: number): Bytes {
  const bytes = new Uint8Array(count);
  return globalThis.crypto?.getRandomValues?.(bytes) ?? bytes.map(() => Math.random() * 256);
}
