// The types of the utilities: what is useful without a server, and Node lacks.

import type { Bytes, Priority } from "./index.js";

/** A string counts as its UTF-8. */
export type TextOrBytes = string | Bytes;

/** A position in the history of a topic. */
export interface Position {
  /** 8 hexadecimal digits; another epoch means that counting began anew. */
  epoch: string;
  offset: number;
}

// Formats.

/** The zlib stream of some bytes. */
export function compress(
  data: Bytes,
  options?: {
    /** 0 (stored) to 9 (smallest). Default 6. */
    level?: number;
    /** Whether it begins with `C:`, as in a message. Default false. */
    prefix?: boolean;
  },
): Buffer;
/**
 * The content of a zlib stream, with or without `C:` before it. Throws an `InvalidMessageError` if it holds more than
 * `bytesMax` bytes (`TOO_LARGE`; 16 MiB by default), ends too early, or is none.
 */
export function decompress(data: Bytes, options?: { bytesMax?: number }): Buffer;
/** MessagePack with the value of JSON text; with `prefix` it begins with `M:`, as in a message. */
export function jsonToMsgpack(json: string, options?: { prefix?: boolean }): Buffer;
/** JSON text with the value of MessagePack, with or without `M:` before it. */
export function msgpackToJson(data: Bytes): string;

/** A filter of payloads, compiled once: the documents that subscriptions take. */
export class Filter {
  constructor(document: unknown);
  matches(payload: unknown): boolean;
  select<T>(payloads: Iterable<T>): T[];
  /** The filter's document as JSON text, the same for equal documents. */
  get document(): string;
}

// Queues.

/** The result of one attempt to take tokens. */
export interface RateVerdict {
  /** Whether the tokens were taken. */
  allowed: boolean;
  /** Less than a fifth is left. Said once, and again only after the bucket was half full in between. */
  low: boolean;
  /** Tokens that are left. */
  remaining: number;
  /** After N milliseconds the tokens would be taken; `undefined` if they were. */
  retryAfterMs: number | undefined;
}

/** A rate limit: `capacity` at once, and `refillPerS` a second in the long run. It begins full. */
export class TokenBucket {
  constructor(capacity: number, refillPerS: number);
  /** Takes `n` tokens (1 by default), or none. `nowMs` is on any clock that does not go back; by default the bucket's own. */
  take(n?: number, options?: { nowMs?: number }): RateVerdict;
  get capacity(): number;
  get refillPerS(): number;
}

export interface Queued<T> {
  priority: Priority;
  item: T;
}

export interface PushOptions {
  /** The bytes that the item counts for; by default those of a string or of bytes, else 0. */
  size?: number;
}

/** A bounded queue of five priorities: 10 (critical), 8, 5 (normal), 3, 1; in order of age within each. */
export class PriorityQueue<T = unknown> {
  /** By default 10,000 items and 16 MiB. */
  constructor(options?: { itemsMax?: number; bytesMax?: number });
  /** Puts an item behind those of its priority, 5 by default. Throws a `BusyError` if there is no room. */
  push(item: T, priority?: Priority, options?: PushOptions): void;
  /** `push` for which less urgent items give way; returns them. */
  pushDisplacing(item: T, priority?: Priority, options?: PushOptions): Queued<T>[];
  /** Takes the next item, with its priority. */
  pop(): Queued<T> | undefined;
  /** Takes up to `n` items, with their priorities. */
  popMany(n: number): Queued<T>[];
  /** The next item, which stays. */
  peek(): Queued<T> | undefined;
  /** The total weight of the items. */
  get bytes(): number;
  get length(): number;
}

/** Messages of a topic that have not come: those from `first` to `last`, both included. */
export class Gap {
  constructor(topic: string, epoch: string, first: number, last: number);
  readonly topic: string;
  readonly epoch: string;
  readonly first: number;
  readonly last: number;
  get length(): number;
}

export interface Sequenced<T> {
  /** `newEpoch`: it was let through, as the first of another history of its topic. */
  outcome: "delivered" | "held" | "duplicate" | "newEpoch";
  /** The items that can be let through now, in order. */
  released: (T | Gap)[];
}

/** The time in milliseconds, on any clock that does not go back; by default the sequencer's own. */
export interface At {
  nowMs?: number;
}

/**
 * Puts the messages of many topics in order by their positions, drops duplicates, and reports gaps. A message that comes
 * before its turn is held for up to `windowMs` until those before it have come.
 */
export class Sequencer<T = unknown> {
  /** By default 10,000 topics, 1,024 messages that are held, and 1,000 ms. */
  constructor(options?: { topicsMax?: number; heldMessagesMax?: number; windowMs?: number });
  /** Accepts a message: what became of it, and what can be let through now. */
  add(topic: string, position: Position, message: T, options?: At): Sequenced<T>;
  /** Takes note that everything up to `position` has been seen. What can be let through now. */
  advance(topic: string, position: Position, options?: At): (T | Gap)[];
  /** Takes note that the messages from `first` to `last` will not come. What can be let through now. */
  skip(topic: string, epoch: string, first: number, last: number, options?: At): (T | Gap)[];
  /** Gives up waiting where the time is over: the gaps, and the messages behind them. */
  expire(options?: At): (T | Gap)[];
  /** Forgets a topic, and lets through what it held. */
  forget(topic: string): (T | Gap)[];
  /** The position of the last message of a topic that was let through. */
  position(topic: string): Position | undefined;
  /** When `expire` wants to be called, on the clock of `nowMs`; `undefined` if nothing is held. */
  get deadlineMs(): number | undefined;
  /** How many topics are known. */
  get topics(): number;
  /** How many messages are held. */
  get held(): number;
}

// Security.

/** HMAC-SHA256 of a message: 32 bytes. */
export function hmacSha256(key: TextOrBytes, message: TextOrBytes): Buffer;

export interface SignOptions {
  /** Version 1 covers the payload alone. Default 2. */
  version?: 1 | 2;
  /** Seconds since 1970, or a `Date`; by default those of the clock. */
  now?: number | Date;
}

/** The signed parts besides the payload. */
export interface SignedParts {
  type?: string;
  id?: string;
  topic?: string;
  correlationId?: string;
}

/** A signature of `payload`, with the time and a nonce in it. The secret has at least 32 bytes. */
export function sign(payload: TextOrBytes, secret: TextOrBytes, options?: SignOptions & SignedParts): string;
/**
 * Checks a signature of `sign` over the payload, but not that it is new: for that there is `Verifier`. Its version. Throws a
 * `SecurityError` if the signature is wrong, or older than 5 minutes.
 */
export function verify(
  payload: TextOrBytes,
  signature: string,
  secret: TextOrBytes,
  options?: { now?: number | Date },
): number;

/** A key that signs. */
export class Signer {
  /** Either a secret of at least 32 bytes, or the private key of P-256 as PKCS#8 in PEM. */
  constructor(key: { secret: TextOrBytes } | { privateKey: string });
  /** A signature of a message's parts. */
  sign(payload: TextOrBytes, options?: SignOptions & SignedParts): string;
  /** A signature of a whole message, JSON or MessagePack. */
  signMessage(message: TextOrBytes, options?: SignOptions): string;
  /** The key for a `Verifier`, if it is not a secret: 65 bytes. */
  get publicKey(): Buffer | undefined;
}

/** Checks signatures, and that each comes once within 5 minutes. */
export class Verifier {
  /** Either the secret or the public key of the signer. It remembers up to `noncesMax` signatures, 1,000,000 by default. */
  constructor(key: ({ secret: TextOrBytes } | { publicKey: Bytes }) & { noncesMax?: number });
  /**
   * Checks the signature of a message's parts, and that it is new. The version of the signature. Throws a `SecurityError` if it
   * is wrong, stale or has been used, and a `BusyError` if there are too many to remember.
   */
  verify(payload: TextOrBytes, signature: string, options?: { now?: number | Date } & SignedParts): number;
  /** Checks the signature in a whole message, and that it is new. The version of the signature. */
  verifyMessage(message: TextOrBytes, options?: { now?: number | Date }): number;
  /** How many signatures are remembered. */
  get nonces(): number;
}

/** One side's fresh keys for one agreement (ECDH on P-256, HKDF-SHA256). */
export class KeyPair {
  constructor();
  /** The public key for the other side: an uncompressed point, 65 bytes. */
  get publicKey(): Buffer;
  /**
   * The side that was spoken to: what both sides seal and open with from now on. `session` is a UUID of the connection that
   * both sides know; `identity` signs the agreement, see `SessionCipher.proof`.
   */
  accept(
    peerPublicKey: Bytes,
    session: string,
    options?: { version?: 1 | 2; identity?: IdentityKey },
  ): SessionCipher;
  /**
   * The side that spoke first. `proof` is the other side's `SessionCipher.proof`, `pinned` its `IdentityKey.publicKey`, which
   * it must prove to have. Throws a `SecurityError` if it does not, or if its key is none.
   */
  finish(
    peerPublicKey: Bytes,
    session: string,
    options?: { version?: 1 | 2; proof?: Bytes; pinned?: Bytes },
  ): SessionCipher;
}

/** A lasting key, by which one side is known: the private key of P-256 as PKCS#8 in PEM. */
export class IdentityKey {
  constructor(privateKey: string);
  /** The key that the other side pins: an uncompressed point, 65 bytes. */
  get publicKey(): Buffer;
}

/**
 * The cipher of both sides once they agreed (AES-256-GCM). In version 2 messages must be opened in the order in
 * which they were sealed, each once.
 */
export class SessionCipher {
  private constructor();
  /** `plain`, encrypted: 30 bytes more. */
  seal(plain: TextOrBytes): Buffer;
  /** The content of a sealed message. Throws a `SecurityError` if it was changed, repeated or moved. */
  open(message: Bytes): Buffer;
  /** 1 or 2, as agreed. */
  get version(): number;
  /** The `proof` for `KeyPair.finish`, if `KeyPair.accept` was given an identity. */
  get proof(): Buffer | undefined;
  /** Whether it is time for another key; never in version 1. */
  get wantsKeyUpdate(): boolean;
  /** Changes the key of this side, when the other side has been notified. */
  updateSealingKey(): void;
  /** Changes the key of the other side, when it has said so. */
  updateOpeningKey(): void;
}

// Envelopes.

export type Category = "update" | "snapshot" | "system";

/** A message that was read. A number past 2^53 - 1 throws an `InvalidMessageError` when it is asked for. */
export class Envelope {
  private constructor();
  /** `undefined` if the message does not say. */
  get category(): Category | undefined;
  /** The type of the message, such as `order_created`. */
  get type(): string;
  get id(): string | undefined;
  /** When the message was made. */
  get time(): Date | undefined;
  /** The sender's count of its messages. */
  get sequence(): number | undefined;
  /** 1 (background), 3, 5 (normal), 8 or 10 (critical). */
  get priority(): number;
  /** The fields that an answer has in common with its request. */
  get correlationId(): string | undefined;
  get signature(): string | undefined;
  /** The topic that the message was published to. */
  get topic(): string | undefined;
  /** Where the message stands in its topic's history. */
  get position(): Position | undefined;
  /** The producer's number of the message. */
  get number(): number | undefined;
  /** The number by which a member of a queue group acknowledges the message. */
  get delivery(): number | undefined;
  /** Whether the message was delivered to another member before. */
  get redelivered(): boolean;
  /** The payload, decoded when it is first asked for; `undefined` if there is none. */
  get payload(): any;
  /** The payload as JSON text, as it stands in the message. */
  get payloadJson(): string;
}

/** Reads a message: JSON, or MessagePack behind `M:`. Throws an `InvalidMessageError` if it is none. */
export function parseEnvelope(message: TextOrBytes): Envelope;

/** `topic`, `position` and `priority` make it what a server publishes to many, without time, sequence, signature and number. */
export interface EnvelopeOptions {
  /** Default `update`. */
  category?: Category;
  /** A UUID; by default a new one, which sorts by the time. */
  id?: string;
  /** A `Date`, or milliseconds since 1970; by default now. */
  time?: Date | number;
  /** The sender's count; default 0. */
  sequence?: number;
  correlationId?: string;
  signature?: string;
  /** The producer's number of the message. */
  number?: number;
  topic?: string;
  position?: Position;
  priority?: Priority;
}

/** A message with this type and payload: text, or with the format `msgpack` bytes. */
export function encodeEnvelope(
  type: string,
  payload?: unknown,
  options?: EnvelopeOptions & { format?: "json" },
): string;
export function encodeEnvelope(
  type: string,
  payload: unknown,
  options: EnvelopeOptions & { format: "msgpack" },
): Buffer;
