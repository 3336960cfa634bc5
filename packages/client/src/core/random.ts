/** Randomness for names that must not be given twice. Keys take theirs from `crypto` alone. */

import type { Bytes } from "./bytes.js";

/** Random bytes; where there is no `crypto`, as in React Native, those of `Math.random`, which can be guessed. */
export function randomBytes(count: number): Bytes {
  const bytes = new Uint8Array(count);
  return globalThis.crypto?.getRandomValues?.(bytes) ?? bytes.map(() => Math.random() * 256);
}
