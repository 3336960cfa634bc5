/** A picture of a client, for people who look for an error. */

import type { Client } from "./client.js";
import { withoutSecrets } from "./options.js";

/** The state of a client: its connection, the work that waits, and how much of it. */
export function debug(client: Client): Record<string, unknown> {
  const { session, url, options } = client.driver;
  return {
    ...client.status.get(),
    url: withoutSecrets(url),
    connectionId: session.connectionId,
    features: session.features,
    quality: options.quality?.get(),
    endpoints: options.endpoints?.health().map((one) => ({ ...one, url: withoutSecrets(one.url) })),
    subscriptions: session.subscriptions.size,
    requests: session.outbound.requests,
    outboxBytes: session.outbound.bytes,
    queueDepth: options.queue?.depth,
  };
}
