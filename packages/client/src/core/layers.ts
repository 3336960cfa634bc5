/**
 * Layers between an envelope and a frame: format, signature, compression, encryption. Each is a value that an entry
 * point of its own provides, so that a page loads only what it uses. A layer may answer at once or by a promise; the
 * client keeps the order of messages either way.
 */

import type { PreparedFrame } from "../transport/prepared.js";
import type { Frame } from "../transport.js";
import type { PipelineFactory } from "./pipeline.js";

/** A value, or a promise of one. */
export type Awaitable<T> = T | Promise<T>;

/** An encoded payload: JSON text, or the bytes of another format. */
export type EncodedPayload = string | Uint8Array;

/** The fields of an outgoing envelope beside its payload, by their names on the wire (PROTOCOL 4.1). */
export interface EnvelopeFields {
  c?: string;
  t: string;
  id?: string;
  ts?: string;
  seq?: number;
  cid?: string;
  tp?: string;
  n?: number;
  sig?: string;
  /** The payload is binary. */
  b?: true;
  /** The whole message, if `prepare` has encoded it. No field of the wire. */
  readonly frame?: PreparedFrame;
}

/** An envelope that was read. Fields are unchecked: the peer may have written anything. */
export interface Envelope {
  [field: string]: unknown;
}

/** A format writes envelopes and reads binary messages of its own; JSON is read by the core. */
export interface Format {
  /** The value of the query parameter `format`; empty for JSON. */
  readonly query: string;
  /** Encodes a payload. Throws a `TidewireError` for a value that would not arrive as it is; its place begins with `name`. */
  payload(value: unknown, name?: string): EncodedPayload;
  /** Writes a message; without a payload the field is left out. */
  envelope(fields: EnvelopeFields, payload: EncodedPayload | undefined): Frame;
  /** Reads the message behind the prefix `M:`. Throws a `TidewireError` if it is malformed. */
  read(bytes: Uint8Array): Envelope;
}

/** Compression by zlib (PROTOCOL 9.1). */
export interface Compression {
  /** The pipeline that handles layers; the first layer of a client supplies it. */
  readonly pipeline: PipelineFactory;
  /** Compresses a message; the frame gets the prefix `C:` from the caller. */
  deflate(bytes: Uint8Array): Awaitable<Uint8Array>;
  /** Inflates a whole stream. Rejects with `MESSAGE_TOO_LARGE` past `bytesMax`, else `PROTOCOL_ERROR`. */
  inflate(bytes: Uint8Array, bytesMax: number): Awaitable<Uint8Array>;
}

/** Signs messages (PROTOCOL 11). */
export interface Signing {
  /** The pipeline that handles layers; the first layer of a client supplies it. */
  readonly pipeline: PipelineFactory;
  /** How many characters a signature has. */
  readonly length: number;
  /** The value of `sig` for a message with these fields and these payload bytes; `unixMs` is the time of day. */
  sign(fields: EnvelopeFields, payload: Uint8Array, unixMs: number): Awaitable<string>;
}

/** Encryption of messages inside the WebSocket (PROTOCOL 10). */
export interface Encryption {
  /** The pipeline that handles layers; the first layer of a client supplies it. */
  readonly pipeline: PipelineFactory;
  /** Begins a key exchange for one connection. */
  begin(): Promise<KeyExchange>;
}

/** The keys of one connection. */
export interface KeyExchange {
  /** The fields of the key exchange in `client_hello`. */
  readonly hello: { encryption_public_key: string; encryption_version: number };
  /** Reads the payload of `server_hello`. Rejects if the server does not encrypt or is not the pinned one. */
  accept(serverHello: Envelope, connectionId: string): Promise<void>;
  /** The version in force after `accept`. */
  readonly version: 1 | 2;
  /** Seals a message; the result has the prefix `E:`. */
  seal(bytes: Uint8Array): Promise<Uint8Array>;
  /** Opens what stands behind the prefix `E:`. Rejects if it cannot be opened. */
  open(bytes: Uint8Array): Promise<Uint8Array>;
  /** The next key for sealing; to be called after the `key_update` message was sealed. */
  updateSealingKey(): Promise<void>;
  /** The next key for opening, when the server has sent `key_update`. */
  updateOpeningKey(): Promise<void>;
  /** Whether enough was sealed under this key that the client should send `key_update` (10.5 (4)). */
  readonly wantsKeyUpdate: boolean;
  /** Everything is sealed from here on: the session has accepted the keys. */
  isSealed: boolean;
}
