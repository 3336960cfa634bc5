/** What answers of the server hold. */

import { Message, type Position } from "../message.js";
import { isObject } from "./envelope.js";
import type { Envelope } from "./layers.js";

/** The position that an answer names, if it does. */
export function positionOf({ epoch, offset }: Envelope): Position | undefined {
  return typeof epoch === "string" && typeof offset === "number" ? { epoch, offset } : undefined;
}

/** The publications of a `history_response`. */
export function publicationsOf<T>(topic: string, { publications }: Envelope): Message<T>[] {
  const list = Array.isArray(publications) ? publications.filter(isObject) : [];
  return list.map((envelope) => Message.read({ tp: topic, ...envelope }) as Message<T>);
}
