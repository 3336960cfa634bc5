/** The transport for Node: WebSocket frames on `node:net` and `node:tls`, without any other package. */

import { readFileSync } from "node:fs";
import type { ConnectionOptions } from "node:tls";
import type { OpenOptions, Transport } from "../transport.js";
import { type NodeSocket, type NodeSocketHandler, openSocket, type Settings } from "./node/socket.js";

export type { NodeSocket, NodeSocketHandler } from "./node/socket.js";

/** Options of {@link nodeTransport}; all may be left out. */
export interface NodeTransportOptions {
  /** Certificates (PEM) that sign the server's, instead of those that Node knows. */
  ca?: string | Uint8Array | readonly (string | Uint8Array)[];
  /** A file with such certificates; read when the transport is made. */
  caFile?: string;
  /** Further options of `tls.connect`, such as a client certificate. */
  tls?: ConnectionOptions;
  /** The address to connect from. */
  localAddress?: string;
  /**
   * Offers permessage-deflate (RFC 7692), as browsers do by themselves. Messages of at least `deflateBytesMin` bytes are then
   * compressed, if the server agrees; off by default.
   */
  deflate?: boolean;
  /** The shortest message that `deflate` compresses, in bytes; 1,024 by default. */
  deflateBytesMin?: number;
  /** Maximum time to open a connection, in milliseconds; 10,000 by default. */
  openTimeoutMs?: number;
  /** How long to wait for the answer to a close, in milliseconds; 6,000 by default. */
  closeTimeoutMs?: number;
}

/** The transport that {@link nodeTransport} makes. */
export interface NodeTransport extends Transport {
  open(options: OpenOptions, handler: NodeSocketHandler): NodeSocket;
}

const OPEN_TIMEOUT_MS = 10_000;
const DEFLATE_BYTES_MIN = 1024;
/** Longer than the 5 s of the client, which knows and reports whose close it was. */
const CLOSE_TIMEOUT_MS = 6_000;

/**
 * A transport that opens connections from Node. The frames of one turn of the event loop leave in one write.
 *
 * @throws if `caFile` cannot be read.
 */
export function nodeTransport(options: NodeTransportOptions = {}): NodeTransport {
  const { ca, caFile } = options;
  const certificates = caFile === undefined ? ca : readFileSync(caFile);
  const settings: Settings = {
    tls: { ...options.tls, ...(certificates === undefined ? {} : { ca: asCertificates(certificates) }) },
    localAddress: options.localAddress,
    deflateBytesMin: options.deflate === true ? (options.deflateBytesMin ?? DEFLATE_BYTES_MIN) : undefined,
    openTimeoutMs: options.openTimeoutMs ?? OPEN_TIMEOUT_MS,
    closeTimeoutMs: options.closeTimeoutMs ?? CLOSE_TIMEOUT_MS,
  };
  return {
    canSendHeaders: true,
    canSendAnyCode: true,
    prefersBatches: false,
    open: (openOptions, handler) => openSocket(openOptions, settings, handler),
  };
}

function asCertificates(ca: NonNullable<NodeTransportOptions["ca"]>): (string | Buffer)[] {
  const list = typeof ca === "string" || ca instanceof Uint8Array ? [ca] : ca;
  return list.map((one) => (typeof one === "string" ? one : Buffer.from(one)));
}
