/** The message by which the client describes itself when it connects. */

import type { Envelope, KeyExchange } from "./layers.js";

/** The payload of `client_hello`: what the client can do, its part of a key exchange, and its producer. */
export function clientHello(
  { clientVersion, compression }: { clientVersion: string; compression?: unknown },
  prefersBatches: boolean,
  exchange: KeyExchange | undefined,
  producer: Envelope | undefined,
): Envelope {
  return {
    client_version: clientVersion,
    protocol_version: 1,
    features: {
      batching: prefersBatches,
      calls: true,
      compression: !!compression,
      encryption: !!exchange,
      binary: true,
      broker_updates: true,
    },
    ...exchange?.hello,
    ...producer,
  };
}
