/** Keys of messages, for lists that a framework renders. */

import type { Message } from "../message.js";

const keys = new WeakMap<Message, string>();
let count = 0;

/**
 * A key of a message that no other has: its position or, on a topic without history, a number of its own. The same message has
 * the same key for as long as it is kept; one with a position has it on every page.
 */
export function keyOf(message: Message<unknown>): string {
  const { topic, position, delivery } = message;
  if (position && !delivery) return `${topic}@${position.epoch}.${position.offset}`;
  let key = keys.get(message);
  if (!key) {
    count += 1;
    key = `#${count}`;
    keys.set(message, key);
  }
  return key;
}
