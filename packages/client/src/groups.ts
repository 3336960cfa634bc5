/** Acknowledgements of members of queue groups (PROTOCOL 19.7). */

import type { Client } from "./client.js";
import type { Session } from "./core/session.js";
import type { Message } from "./message.js";

/** Deliveries in one message. */
const DELIVERIES_MAX = 1_000;

/** Deliveries that were acknowledged in this turn; they leave together at its end. */
const waiting = new WeakMap<Session, number[]>();

/** Acknowledges a publication of a queue group. One of an earlier connection is delivered again: it counts for nothing. */
export function acknowledge(client: Client, message: Message): void {
  const { delivery } = message;
  const { session } = client.driver;
  if (delivery?.connectionId !== session.connectionId) return;
  let deliveries = waiting.get(session);
  if (!deliveries) {
    waiting.set(session, (deliveries = []));
    queueMicrotask(() => flush(session, delivery.connectionId));
  }
  deliveries.push(delivery.number);
}

function flush(session: Session, connectionId: string): void {
  const deliveries = waiting.get(session)!;
  waiting.delete(session);
  if (session.connectionId !== connectionId) return;
  while (deliveries.length)
    session.notify("publication_ack", { deliveries: deliveries.splice(0, DELIVERIES_MAX) });
}
