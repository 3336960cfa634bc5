/**
 * Transports: how a client opens one WebSocket connection and moves messages over it. The package has one on the
 * browser's `WebSocket`, one on `node:net` and `node:tls`, and one in memory for tests.
 */

import type { PreparedFrame } from "./transport/prepared.js";

/** A message as a WebSocket carries it: text, or binary. */
export type Frame = string | Uint8Array;

/** A message to send, which may have been encoded before. */
export type OutgoingFrame = Frame | PreparedFrame;

/** What a transport needs to open a connection. */
export interface OpenOptions {
  /** `ws:` or `wss:`, with the query of the protocol. */
  url: string;
  /** Subprotocols to offer. */
  protocols: string[];
  /** Headers of the upgrade request; a browser cannot send any. */
  headers: Record<string, string>;
  /** The largest message to accept, in bytes. */
  messageBytesMax: number;
}

/** How a connection ended. */
export interface CloseInfo {
  /** The code of the close frame; 1006 without a frame, 1005 for a frame without a code. */
  code: number;
  /** The reason of the close frame, or what went wrong. */
  reason: string;
  /** This side ended the connection, because the server broke a rule: the code names the fault of the server. */
  isRefusal?: boolean;
  /** The status of a refused upgrade, where the transport can see it. */
  status?: number;
  /** How long the server asks to wait, in milliseconds, from `Retry-After`. */
  retryAfterMs?: number;
}

/** The calls of a transport to its owner. None happens before `open` of the transport has returned. */
export interface SocketHandler {
  /** The server has accepted the upgrade. */
  onOpen(): void;
  /**
   * Messages have arrived, in order: all of one read. Text is a string, binary is a view that stays valid only
   * during the call unless the receiver copies it.
   */
  onMessages(frames: readonly Frame[]): void;
  /** What waited has been written: there is room again. */
  onDrain(): void;
  /** The connection is over. The last call of a connection, made exactly once. */
  onClose(info: CloseInfo): void;
}

/** One connection. */
export interface Socket {
  /** Queues a message; it leaves at the end of this turn of the event loop at the latest. */
  send(frame: OutgoingFrame): void;
  /** Bytes that were queued and not yet handed to the operating system or the browser. */
  readonly bufferedBytes: number;
  /** Starts the closing handshake. Messages sent before it leave first. */
  close(code: number, reason: string): void;
  /** Gives the connection up at once; `onClose` follows before or after the call returns. */
  terminate(): void;
  /** Stops reading, so that TCP holds the server back; without it the socket cannot. */
  pause?(): void;
  /** Goes on reading. */
  resume?(): void;
}

/** Opens connections. */
export interface Transport {
  /** Whether it can send headers; if not, the options define how a token travels. */
  readonly canSendHeaders: boolean;
  /** Whether it can send every close code; a browser cannot send 1001 to 2999. */
  readonly canSendAnyCode: boolean;
  /** Whether batches of the server help: they do where each message costs an event of the browser. */
  readonly prefersBatches: boolean;
  /** Begins to open a connection. `onClose` reports errors. */
  open(options: OpenOptions, handler: SocketHandler): Socket;
}
