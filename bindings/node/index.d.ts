// The types of the package; index.d.mts has the same for `import`.

import * as jwt from "./jwt.js";

export { jwt };

/** The version of the package. */
export const version: string;

/** Who has to act on an error: this program, the other end, the server, or nobody (try later). */
export type Fault = "caller" | "peer" | "server" | "nobody";

export interface ErrorFields {
  code?: string;
  fault?: Fault;
  /** When another try makes sense, in milliseconds. */
  retryAfterMs?: number;
  cause?: unknown;
}

/** The base of every error of this package. */
export class TidewireError extends Error {
  constructor(message: string, fields?: ErrorFields);
  /** A stable name, such as `BUSY` or `CONFIGURATION`. */
  readonly code: string;
  readonly fault: Fault;
  readonly retryAfterMs: number | undefined;
}
/** An option is unknown, or has a value that cannot be used. */
export class ConfigurationError extends TidewireError {}
/** An argument has a value that cannot be used. */
export class InvalidArgumentError extends TidewireError {}
/** An argument has a type that cannot be used. */
export class WrongTypeError extends TidewireError {}
/** The address is in use, not of this machine, or not permitted. */
export class AddressError extends TidewireError {}
/** A message that was received is not what it should be. */
export class InvalidMessageError extends TidewireError {}
/** A token is not accepted. */
export class TokenError extends TidewireError {}
/** The other side has not caught up; nothing was done, try again. */
export class BusyError extends TidewireError {}
/** The server has stopped, or was not started. */
export class StoppedError extends TidewireError {}
/** A request was not answered, or was answered with an error. A handler that throws it refuses its message. */
export class CallError extends TidewireError {}
/** No answer came in time. Whether the request was carried out is not known. */
export class CallTimeoutError extends CallError {}
/** The connection is gone. */
export class ConnectionClosedError extends TidewireError {}
/** A signature or an encrypted message is not what its key says. */
export class SecurityError extends TidewireError {}

/** JSON text that is sent as it is where a payload is wanted. */
export class RawJson {
  constructor(text: string);
  readonly text: string;
  toJSON(): unknown;
}

/** 1 (background) to 10 (critical); by default that of the topic. */
export type Priority = 1 | 3 | 5 | 8 | 10;
export type Bytes = ArrayBuffer | ArrayBufferView | SharedArrayBuffer;
export type Kind = "message" | "request" | "snapshotRequest" | "connect" | "disconnect";

export interface TypeAndPriority {
  /** The type of the message. Default `message`. */
  type?: string;
  priority?: Priority;
}

/** Topics or patterns, such as `orders.eu`, `orders.*` or `orders.>`. */
export type Topics = string | Iterable<string>;

export interface AccessRules {
  subscribeAllow?: Topics;
  subscribeDeny?: Topics;
  publishAllow?: Topics;
  publishDeny?: Topics;
  presenceAllow?: Topics;
  presenceDeny?: Topics;
  queueGroupAllow?: Topics;
  queueGroupDeny?: Topics;
}

/** A client's connection: one object as long as it is open. */
export class Connection {
  private constructor();
  readonly id: string;
  /** The user that its token names. */
  readonly user: string | undefined;
  readonly address: { host: string; port: number } | undefined;
  /** The application's own. */
  attachment: unknown;
  /** Whether it is open, as far as was received. */
  get isOpen(): boolean;
  /** Sends a message. If the connection is gone, the message is dropped without an error. */
  send(payload: unknown, options?: TypeAndPriority): void;
  /** Sends a string as a text message, bytes as a binary one, and a received message as it came. */
  sendRaw(data: string | Bytes | Message): void;
  /** Ends the connection. Codes: 1000, or 4000 to 4999. */
  close(code?: number, reason?: string): void;
  /** Subscribes it to a topic or pattern, whatever its access rules say. */
  subscribe(topic: string): void;
  unsubscribe(topic: string): void;
  /** Gives it access rules of its own. What is not allowed is forbidden. */
  setAccess(rules: AccessRules): void;
  /** Asks its client something. `timeoutMs` is 10000 by default. Rejects with a `CallError`. */
  request(payload: unknown, options: { type: string; timeoutMs?: number }): Promise<any>;
  toString(): string;
}

/** Something that happened on a connection; `kind` says what. */
export class Message {
  private constructor();
  get kind(): Kind;
  get connection(): Connection;
  get user(): string | undefined;
  /** The size of `data` in bytes. */
  get length(): number;
  /** The bytes that were received, without a copy; empty for other kinds than `message`. */
  get data(): Buffer;
  get text(): string;
  get encoding(): "text" | "binary" | "msgpack";
  /** The whole message, decoded once. Throws an `InvalidMessageError` if it is no JSON. */
  json(): any;
  /** What it carries. */
  get payload(): any;
  /** What it is about, such as `chat`. */
  get type(): string | undefined;
  get topic(): string | undefined;
  /** The topics that a `snapshotRequest` asks for. */
  get topics(): string[];
  /** Why a connection ended. */
  get reason(): "peer" | "server" | "lost" | undefined;
  get closeCode(): number | undefined;
  /** How long the client waits for the answer to a `request`, in milliseconds. */
  get timeoutMs(): number | undefined;
  /** Answers a `request`; false if it was answered before, or too late. */
  reply(payload: unknown): boolean;
  /** Answers a `request` with an error; false if it was answered before, or too late. */
  fail(code: string, message: string): boolean;
  /** Answers a `snapshotRequest` for one of its topics. */
  replySnapshot(topic: string, payload: unknown, options?: { type?: string }): void;
}

/** Messages of one turn of the engine, in the order in which they arrived. */
export class Batch implements Iterable<Message> {
  private constructor();
  readonly length: number;
  at(index: number): Message | undefined;
  entries(): IterableIterator<[number, Message]>;
  [Symbol.iterator](): IterableIterator<Message>;
}

export interface TopicRule {
  /** A topic's name, or a pattern such as `orders.*` and `orders.>`. */
  pattern: string;
  /** Publications kept of each topic. */
  historyPublications?: number;
  /** The same in bytes. Default 4 MiB. */
  historyBytes?: number;
  /** Only publications younger than this are kept, in seconds; 0 for any age. Default 0. */
  historyAgeS?: number;
  /** Subscribers get the newest publication at once. Default false. */
  lastValue?: boolean;
  /** Subscribers are told who else is there. Default false. */
  presence?: boolean;
  /** What happens to a subscription that lags. Default `disconnect`. */
  overload?: "disconnect" | "conflate" | "drop_oldest";
  priority?: Priority;
}

type Texts = string | string[];

/**
 * The options of a server: those of `tidewire serve`, in camelCase, and of its handlers. `null` is the
 * default of each.
 */
export interface ServerOptions {
  /** Where clients connect, such as `0.0.0.0:5006`; instead of `host` and `port`. */
  listen?: string | null;
  /** The address to listen on, `0.0.0.0` for all. Default `127.0.0.1`. */
  host?: string | null;
  /** The port; 0 takes a free one. Default 5006. */
  port?: number | null;
  /** Where /health, /ready, /metrics and /stats are answered, without authentication, and the HTTP API. */
  opsListen?: string | null;
  /** A file with the key of the HTTP API, at least 16 visible letters; without it the API is off. */
  apiKeyFile?: string | null;
  /** The key of the HTTP API itself. */
  apiKey?: string | null;
  /** Event loops, each with a thread of its own. Default one per core. */
  shards?: number | null;
  /**
   * What is spoken inside the WebSocket: Tidewire's protocol version 1, which wants a token unless
   * `noAuth` is given, or plain messages for any client. Default `"v1"`.
   */
  protocol?: "v1" | "raw" | null;
  /** Paths that take connections, or `any`. Default `/ws` and `/wse`. */
  path?: Texts | null;
  /** Origins of web pages that may connect besides those of the same host, or `any`. */
  origin?: Texts | null;
  /** Subprotocols that are confirmed to clients that offer them; the client's first if none is given. */
  subprotocol?: Texts | null;
  /**
   * Names by which the server may be called, such as `app.example.com` or `*.example.com`, or `any`.
   * Default any, but none for web pages on a loopback address without authentication.
   */
  allowHost?: Texts | null;
  /** Proxies that are believed when they tell whom they forward, such as `10.0.0.0/8`. */
  trustedProxy?: Texts | null;
  /** The header line that they write. Default `"x-forwarded-for"`. */
  forwardedHeader?: "x-forwarded-for" | "forwarded" | null;
  /** A file with the certificate chain, PEM; with `tlsKey` it turns TLS on. */
  tlsCertificate?: string | null;
  /** The certificate's private key, PEM. */
  tlsKey?: string | null;
  /** Sessions in all; the next one gets HTTP 503. Default 1000000. */
  connectionsMax?: number | null;
  /**
   * Connections in the opening handshake that are read, in all; past it, the address with the most gives
   * way. Default 512.
   */
  handshakesMax?: number | null;
  /**
   * The same of one address (IPv6: of a /64); further ones wait for those of their own address. Default
   * 256.
   */
  handshakesPerAddressMax?: number | null;
  /** Connections that wait so, in all. Default 16384. */
  handshakesParkedMax?: number | null;
  /** Time for the opening handshake, TLS included. Default 10000. */
  handshakeTimeoutMs?: number | null;
  /** Size of the head of the upgrade request. Default 16384. */
  requestHeadBytesMax?: number | null;
  /** Size of a message, also when inflated. Default 1048576. */
  messageBytesMax?: number | null;
  /** Messages that may come at once; 0 for no rate limit. Default 100000. */
  rateLimitCapacity?: number | null;
  /** Messages a second that may come in the long run. Default 10000. */
  rateLimitRefillPerS?: number | null;
  /**
   * Messages that may have to be refused in `errorsWindowMs` before the connection is closed; 0 for no
   * limit. Default 50.
   */
  errorsMax?: number | null;
  /** The time in which so many errors are forgotten. Default 10000. */
  errorsWindowMs?: number | null;
  /** What may wait to be sent before the connection is closed. Default 16777216. */
  outboxBytesMax?: number | null;
  /**
   * What may wait for all connections together, in bytes; past it a connection for which more than 64
   * KiB wait is closed. Default 1 GiB.
   */
  outboxesBytesMax?: number | null;
  /** What may wait to be sent before nothing more is read. Default 1048576. */
  outboxPauseBytes?: number | null;
  /**
   * What the kernel may hold unread of a connection that sends fast; 0 leaves it to the kernel. Default
   * 4194304.
   */
  receiveBufferBytesMax?: number | null;
  /**
   * The same of all connections together; each gets an equal part, but at least 64 KiB. Default
   * 1073741824.
   */
  receiveBuffersBytesMax?: number | null;
  /** Time between the server's pings. Default 25000. */
  pingIntervalMs?: number | null;
  /** Silence after which a connection is closed. Default 60000. */
  idleTimeoutMs?: number | null;
  /** Time a peer has to answer a close. Default 5000. */
  closeTimeoutMs?: number | null;
  /** Time that an event loop may take for one turn before it counts as stuck. Default 5000. */
  shardStallMs?: number | null;
  /** Wait that a client is told that finds the server full. Default 5. */
  retryAfterS?: number | null;
  /** How long the application has to answer a call of a client. Default 10000. */
  callTimeoutMs?: number | null;
  /** Calls that may be open at once, in each direction. Default 100. */
  callsPerConnectionMax?: number | null;
  /**
   * Milliseconds of each second that the requests of one user or, without tokens, of one address may
   * keep an event loop busy; 0 for no limit. Default 500.
   */
  ownerWorkMsPerS?: number | null;
  /** Drop messages for the application whose `id` has come before from the same user. */
  deduplicate?: boolean | null;
  /** Ids remembered for that, in all. Default 50000. */
  intakeIdsMax?: number | null;
  /** Producers (those who number their messages) that are remembered, in all. Default 10000. */
  producersMax?: number | null;
  /** How long a producer without a connection is remembered. Default 3600000. */
  producerTtlMs?: number | null;
  /**
   * Sessions that each event loop closes in a second of a drain; 0 for all in half of
   * `drain_timeout_ms`. Default 0.
   */
  drainRatePerS?: number | null;
  /**
   * Clients that have to leave are told to come back after a random time of up to so long; 0 to tell
   * nothing. Default 5000.
   */
  reconnectSpreadMs?: number | null;
  /** The secret of HS256 tokens, 32 bytes or more. */
  jwtSecret?: string | null;
  /** A file with that secret. */
  jwtSecretFile?: string | null;
  /** A file with the public key of tokens, PEM; with `jwtAlgorithm`. */
  jwtPublicKey?: string | null;
  /** What the public key is for. */
  jwtAlgorithm?: "rs256" | "es256" | "eddsa" | null;
  /** Accept only tokens that name this key (`kid`). */
  jwtKeyId?: string | null;
  /** During rotation: the secret before, still accepted. */
  jwtPreviousSecret?: string | null;
  /** A file with that secret. */
  jwtPreviousSecretFile?: string | null;
  /** During rotation: a file with the public key before, still accepted. */
  jwtPreviousPublicKey?: string | null;
  /** What that public key is for. */
  jwtPreviousAlgorithm?: "rs256" | "es256" | "eddsa" | null;
  /** The `kid` of the previous key. */
  jwtPreviousKeyId?: string | null;
  /** What the claim `iss` has to be. */
  jwtIssuer?: string | null;
  /** What the claim `aud` has to be or contain. */
  jwtAudience?: string | null;
  /** How far the clocks of signer and server may be apart. Default 5. */
  jwtLeewayS?: number | null;
  /**
   * How long a session goes on after its token has expired, so that a new token that is late can still
   * come; at least `jwtLeewayS`. Then it ends with close code 4401. Default 10.
   */
  tokenGraceS?: number | null;
  /**
   * How long before that a client is told that its token expires; of a token that is good for less than
   * twice as long, half of that. 0 for never. Default 60.
   */
  tokenWarningS?: number | null;
  /** Sessions go on when their token has expired. */
  keepExpiredSessions?: boolean | null;
  /** The cookie that may hold the token. Default `access_token`. */
  cookieName?: string | null;
  /** The query parameter that may hold the token. */
  tokenQueryParameter?: string | null;
  /** A subprotocol with this prefix may hold the token in its rest. */
  tokenSubprotocolPrefix?: string | null;
  /** Let everyone in. */
  noAuth?: boolean | null;
  /**
   * Tell a bad token by an error message and close code 4401 after the upgrade, where a browser can read
   * it, instead of HTTP 401.
   */
  authFailureAfterUpgrade?: boolean | null;
  /**
   * permessage-deflate for clients that offer it: with the event loops' own compressors, or with a
   * memory of what each connection said before (340 to 430 KB of it). Default `"off"`.
   */
  deflate?: "off" | "shared" | "per-connection" | null;
  /** 1 (fastest) to 9 (smallest), also of messages sent as `C:`. Default 1. */
  compressionLevel?: number | null;
  /** Shorter messages are not compressed. Default 1024. */
  compressionThresholdBytes?: number | null;
  /** How far back compressed messages refer, as a power of two. Default 15. */
  deflateWindowBits?: number | null;
  /** Whether clients can encrypt their messages, or must. Default `"off"`. */
  encryption?: "off" | "optional" | "required" | null;
  /**
   * A file with the private key, PEM (PKCS#8, P-256), by which clients tell this server from somebody in
   * between.
   */
  identityKey?: string | null;
  /** The secret that signatures of messages are checked with, at least 32 bytes. */
  signatureSecret?: string | null;
  /** Check the signatures of messages with the secret in this file, at least 32 bytes. */
  signatureSecretFile?: string | null;
  /** A file with the ECDSA key, PEM (P-256), that signatures of messages are checked with. */
  signaturePublicKey?: string | null;
  /** Refuse messages without a signature. */
  requireSignatures?: boolean | null;
  /** Clients may subscribe to everything, publish everywhere and see who is present. */
  topicsOpen?: boolean | null;
  /**
   * Topics that clients may subscribe to: names or patterns such as `orders.*` and `orders.>`, with
   * `{sub}` for the user's name.
   */
  clientSubscribeAllow?: Texts | null;
  /** Topics that clients may not subscribe to, though they be allowed. */
  clientSubscribeDeny?: Texts | null;
  /** Topics that clients may publish to. */
  clientPublishAllow?: Texts | null;
  /** Topics that clients may not publish to, though they be allowed. */
  clientPublishDeny?: Texts | null;
  /** Topics of which clients may ask who is present. */
  clientPresenceAllow?: Texts | null;
  /** Topics of which clients may not ask who is present, though they be allowed. */
  clientPresenceDeny?: Texts | null;
  /** Topics of which clients may be members of queue groups, if they may subscribe to them. */
  clientQueueGroupAllow?: Texts | null;
  /** Topics of which clients may not be members of queue groups, though they be allowed. */
  clientQueueGroupDeny?: Texts | null;
  /**
   * The claim of a token with rules for its user, in place of those above; empty to look at none.
   * Default `topics`.
   */
  topicAccessClaim?: string | null;
  /** Keep so many publications of each of these topics: `{ "orders.>": 1000 }`. */
  history?: Record<string, number> | string[] | null;
  /** Tell the subscribers of these topics who else is there. */
  presence?: Texts | null;
  /** What is kept of which topics, in detail; the first rule whose pattern matches counts. */
  topicRules?: TopicRule[] | null;
  /** Topics and patterns that one connection may have. Default 10000. */
  subscriptionsPerConnectionMax?: number | null;
  /** Subscribers of one topic on one shard. Default 1000000. */
  subscribersPerTopicMax?: number | null;
  /** The payload of a publication. Default 1048576. */
  payloadBytesMax?: number | null;
  /** Publications that a shard has yet to deliver, before publishing fails. Default 16777216. */
  backlogBytesMax?: number | null;
  /** All histories together. Default 268435456. */
  historyBytesMax?: number | null;
  /** Topics whose position is remembered. Default 1000000. */
  historyTopicsMax?: number | null;
  /** What a subscriber may tell others about itself, as JSON. Default 4096. */
  presenceDataBytesMax?: number | null;
  /** Ids remembered to drop repeated publications. Default 50000. */
  rememberedIdsMax?: number | null;
  /** Publications that may wait for a lagging subscription that conflates or drops. Default 1000. */
  lagPublicationsMax?: number | null;
  /** The same in bytes. Default 1048576. */
  lagBytesMax?: number | null;
  /** Publications that wait for the members of a queue group. Default 100000. */
  groupWaitingMax?: number | null;
  /** The same in bytes. Default 16777216. */
  groupWaitingBytesMax?: number | null;
  /** Queue groups of one topic. Default 64. */
  groupsPerTopicMax?: number | null;
  /**
   * What a full queue group drops: what has waited longest, or the new publication. Default
   * `drop_oldest`.
   */
  groupOverload?: "drop_oldest" | "drop_newest" | null;
  /** Patterns that one connection may have. Default 256. */
  patternsPerConnectionMax?: number | null;
  /** What the subscriptions of one connection may take, in bytes as estimated. Default 16 MiB. */
  subscriptionBytesPerConnectionMax?: number | null;
  /** The same for one user or, without tokens, one address. Default 256 MiB. */
  subscriptionBytesPerOwnerMax?: number | null;
  /** The same for the whole server. Default 2 GiB. */
  subscriptionBytesMax?: number | null;
  /**
   * What may wait for `batches()` or `receive()`, in bytes; past it nothing is read from the
   * connections. Default 64 MiB.
   */
  queueBytesMax?: number | null;
  /**
   * Clients that ask for the state of topics are answered by the application (messages of the kind
   * `snapshotRequest`), not with what the topics keep. Default false.
   */
  snapshotRequests?: boolean | null;
  /** Handlers that may wait at once; at the limit nothing more is received. Default 256. */
  handlersMax?: number | null;
  /** Messages that may wait for an earlier one of their connection. Default 1024. */
  waitingMax?: number | null;
  /** The same in bytes of these messages. Default 16 MiB. */
  waitingBytesMax?: number | null;
  /** A handler that waits for longer is given up, and its client is told. By default none is. */
  handlerTimeoutMs?: number | null;
  /** With `false` messages of one connection are handled at once, too. Default true. */
  keepOrder?: boolean | null;
  /** A handler that keeps the event loop for so long is told in the log; 0 for never. Default 250. */
  blockedWarningMs?: number | null;
  /** How long handlers have to end after the server has stopped. Default 5000. */
  stopTimeoutMs?: number | null;
  /** Where errors of handlers and warnings go. Default the console, without `debug`. */
  log?: (level: "error" | "warn" | "debug", message: string, error?: unknown) => void;
}

export interface Published {
  /** Its number in its topic, from 1; `undefined` if the topic keeps no history. */
  offset: number | undefined;
  /** The life of the topic that the number is of. */
  epoch: string | undefined;
  /** Whether it repeats the `id` of an earlier one, and was delivered to nobody. */
  duplicate: boolean;
}

export interface PublishOptions extends TypeAndPriority {
  /** A publication with the id of an earlier one is dropped. */
  id?: string;
  /** What a lagging subscription conflates by. */
  key?: string;
  ttlMs?: number;
  /** Everybody but this connection. */
  exclude?: Connection;
  /** A snapshot of the topic instead of an update. */
  snapshot?: boolean;
}

export interface HistoryPage {
  epoch: string | null;
  offset: number;
  oldest: number | null;
  /** The publications as clients receive them. */
  publications: any[];
  more: boolean;
}

export interface TopicPresence {
  users: number;
  connections: number;
  members: { user: string | null; connections: number; data: any }[];
}

export interface HandlerStatistics {
  /** Messages whose handler ended. */
  handled: number;
  /** Messages whose handler threw, took too long, or returned a value that has no form in JSON. */
  errors: number;
  /** Those of `errors` that took too long. */
  timeouts: number;
  /** Messages that a handler refused by throwing `CallError`. */
  refused: number;
  /** Messages for which there is no handler. */
  unrouted: number;
  /** How often a handler kept the event loop from running for too long. */
  blocked: number;
  /** Handlers that wait for something now. */
  running: number;
  /** Messages that wait for an earlier one of their connection. */
  waiting: number;
}

export interface Address {
  host: string;
  port: number;
}

type Handler = (message: Message) => unknown;

/** A WebSocket server. It runs on threads of its own; what clients do is received in batches. */
export class Server implements AsyncIterable<Message> {
  constructor(options?: ServerOptions);
  /** The names of all options. */
  static optionNames(): string[];
  /** Starts to listen, and to call the handlers. */
  start(): Promise<this>;
  /** Ends every connection at once, and waits for the handlers, at most for `stopTimeoutMs`. */
  stop(): Promise<void>;
  /** Rejects new clients, sends the others away over time, and stops; how many were left. Default 10000 ms. */
  drain(timeoutMs?: number): Promise<number>;
  /** Starts, serves until SIGINT or SIGTERM, lets the clients leave, and stops: a whole program. */
  run(options?: { drainTimeoutMs?: number }): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
  /** Lets the process end though the server runs. */
  unref(): this;
  /** Keeps the process alive as long as the server runs; so it is by default. */
  ref(): this;
  /** Lets new clients in, or turns them away with 503 for a while. */
  admit(isAdmitting: boolean): void;
  get state(): "new" | "running" | "stopped";
  get address(): Address;
  get opsAddress(): Address | undefined;
  /** Where clients of this machine connect. */
  get url(): string;
  /**
   * Registers the handler of a type of messages; or of `connect`, `disconnect` or `snapshotRequest`; or of `*`, all other
   * types. Later messages of a connection wait for the promise that its handler returns.
   */
  on(type: string, handler: Handler): this;
  /** Registers the handler of a type of requests, or of `*`. What it returns is the reply. */
  handle(type: string, handler: Handler): this;
  /** What happens, in batches, until the server has stopped and everything was received. */
  batches(): AsyncIterableIterator<Batch>;
  [Symbol.asyncIterator](): AsyncIterator<Message>;
  /** Publishes to a topic: every subscriber gets it. Throws a `BusyError` if there is no room. */
  publish(topic: string, payload: unknown, options?: PublishOptions): Published;
  /** Publishes several payloads to one topic, in their order; how many were new. */
  publishMany(
    topic: string,
    payloads: Iterable<unknown>,
    options?: TypeAndPriority & { waitMs?: number },
  ): Promise<number>;
  /** Sends to every connection of a user. */
  sendToUser(user: string, payload: unknown, options?: TypeAndPriority): void;
  /** Sends to every connection. */
  broadcast(payload: unknown, options?: TypeAndPriority): void;
  /** Sends to every connection as it is: a string as text, bytes as binary. */
  broadcastRaw(data: string | Bytes): void;
  /** Sends pairs of a connection, or a message for the connection it came from, and data, as they are. */
  sendRawMany(pairs: Iterable<readonly [Connection | Message, string | Bytes | Message]>): void;
  subscribeUser(user: string, topic: string): void;
  unsubscribeUser(user: string, topic: string): void;
  disconnectUser(user: string, code?: number, reason?: string): void;
  /** Ends the connection with this id. */
  disconnect(id: string, code?: number, reason?: string): void;
  /** Calls `action` again as long as it throws a `BusyError`, at most for `waitMs`. Default 1000. */
  whenFree<T>(action: () => T, options?: { waitMs?: number }): Promise<T>;
  /** How many connections there are. */
  get connections(): number;
  /** The counters of the server, by name. */
  statistics(): Record<string, any>;
  handlerStatistics(): HandlerStatistics;
  /** Some connections: all of a user, or all of a topic, or all; `after` is the last `connection` of the page before. */
  listConnections(query?: { user?: string; topic?: string; after?: string; limit?: number }): Record<string, any>[];
  /** Some topics and patterns that have subscribers, in the order of their names. */
  listTopics(query?: { prefix?: string; after?: string; limit?: number }): Record<string, any>[];
  /** What a topic keeps: its position, and some of its publications. */
  history(topic: string, query?: { since?: number; limit?: number; newestFirst?: boolean }): HistoryPage;
  /** Forgets what a topic keeps; false if there was nothing. */
  forgetHistory(topic: string): boolean;
  /** Who is on a topic: how many, and some of them. */
  presence(topic: string, query?: { limit?: number }): TopicPresence;
}

export interface LoadProgress {
  /** Seconds since the sending began. */
  elapsedS: number;
  /** Successful requests a second, over the last second. */
  ratePerS: number;
  succeeded: number;
  failed: number;
  /** Connections that are open now. */
  connected: number;
}

/** The options of a load: the flags of `tidewire load` (docs/load.md), in camelCase. */
export interface LoadOptions {
  abortAfterS?: number;
  binary?: boolean;
  body?: string;
  ca?: string;
  cert?: string;
  compressed?: boolean;
  confidence?: string;
  connectTimeoutMs?: number;
  connectionStages?: string;
  /** Connections in all. Default 50. */
  connections?: number;
  cookies?: Record<string, string>;
  deflate?: boolean;
  drainMs?: number;
  /** How long to send. Default 10, unless `requests` is given. */
  durationS?: number;
  /** What is expected of the figures, such as `p99<20ms`. */
  expect?: Texts;
  expectBody?: string;
  expectLength?: number;
  expectStatus?: string;
  findLimit?: boolean;
  form?: Record<string, string>;
  fromPerS?: number;
  headers?: Record<string, string>;
  /** Requests under way on each connection. Default 1. */
  inFlight?: number;
  insecure?: boolean;
  jsonBody?: unknown;
  keepAlive?: boolean;
  key?: string;
  memory?: boolean;
  message?: string;
  messageFile?: string;
  messagesPerS?: number;
  method?: string;
  poisson?: boolean;
  profile?: "raw" | "v1";
  proxy?: string;
  rampPerS?: number;
  /** Requests a second over all connections, whatever the service does. */
  ratePerS?: number;
  redirects?: number;
  reply?: string;
  requests?: number;
  requestsPerConnection?: number;
  resolve?: Texts;
  scenario?: string;
  seed?: number;
  serverPid?: number;
  sni?: string;
  sourceAddress?: Texts;
  stages?: string;
  stepS?: number;
  subscribe?: Texts;
  /** Default half of the cores. */
  threads?: number;
  timeoutMs?: number;
  timestampField?: string;
  toPerS?: number;
  token?: string;
  unixSocket?: string;
  warmUpS?: number;
  /** Called about twenty times a second. */
  onProgress?: (figures: LoadProgress) => void;
  /** Ends the load early, with a result that is `interrupted`. */
  signal?: AbortSignal;
}

/** What came of a load. `report` has everything (docs/report-format.md). */
export class LoadResult {
  private constructor();
  readonly report: Record<string, any>;
  /** What `tidewire load` would end with: 0 as expected, 1 failed, 3 the generator was the limit, and more. */
  readonly exitCode: number;
  /** Successful requests or messages in a second. */
  get ratePerS(): number;
  get succeeded(): number;
  get failed(): number;
  /** Whole responses by status. */
  get statuses(): Record<string, number>;
  /** What went wrong, by name. */
  get errors(): Record<string, number>;
  /** Latency of the successes in milliseconds: `p50`, `p90`, `p99`, `min`, `mean`, `max` and more. */
  get latencyMs(): Record<string, number>;
  get verdict(): "valid" | "generator_bound" | "noisy" | "failed";
  /** Whether every expectation was kept. */
  get asExpected(): boolean;
  get interrupted(): boolean;
  get notes(): string[];
  /** The tables that `tidewire load` prints. */
  tables(): string;
  /** Writes report.json, report.html and report.md to a directory, which is made; the path of the page. */
  save(directory: string): string;
  toJSON(): Record<string, any>;
}

/** Loads an HTTP or WebSocket service. A service that refuses, lies or is not there is a result and no error. */
export function load(url: string | URL, options?: LoadOptions): Promise<LoadResult>;

/** A filter of payloads, compiled once: the documents that subscriptions take. */
export class Filter {
  constructor(document: unknown);
  matches(payload: unknown): boolean;
  select<T>(payloads: Iterable<T>): T[];
  /** The filter's document as JSON text, the same for equal documents. */
  get document(): string;
}

/** MessagePack with the value of JSON text. */
export function jsonToMsgpack(json: string): Buffer;
/** JSON text with the value of MessagePack. */
export function msgpackToJson(bytes: Buffer): string;
