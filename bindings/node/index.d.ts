// The types of the package; index.d.mts has the same for `import`.

import type { IncomingMessage } from "node:http";
import * as jwt from "./jwt.js";
import type { EngineOptions, TopicRule } from "./server-options.js";
import type { Position } from "./utilities.js";

export type { EngineOptions, TopicRule };
export * from "./load.js";
export * from "./utilities.js";
export { jwt };

/** The version of the package. */
export const version: string;

/** The party that has to act on an error: this program, the other end, the server, or nobody (try later). */
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
export type Kind = "message" | "request" | "publication" | "snapshotRequest" | "connect" | "disconnect";

export interface TypeAndPriority {
  /** The type of the message. Default `message`. */
  type?: string;
  priority?: Priority;
}

export interface Volatile {
  /** Whether clients that lag do not get the message at all. Default false. */
  volatile?: boolean;
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
  send(payload: unknown, options?: TypeAndPriority & Volatile): void;
  /** Sends a string as a text message, bytes as a binary one, and a received message as it came. */
  sendRaw(data: string | Bytes | Message): void;
  /** Ends the connection. Codes: 1000 to 1003, 1007 to 1014, 3000 to 4999; your own are 4000 to 4299. */
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
  /** The payload; a Buffer if it is binary. */
  get payload(): any;
  /** The type, such as `chat`. */
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
  /** Answers a `request` with an error, or refuses a `publication`; false if it was answered before, or too late. */
  fail(code: string, message: string): boolean;
  /** Replaces the payload of a `publication`: subscribers get this one. */
  replace(payload: unknown): void;
  /** Answers a `snapshotRequest` for one of its topics. */
  replySnapshot(topic: string, payload: unknown, options?: { type?: string }): void;
}

/** A message of the kind `publication`: what a client wants to publish. */
export type Publication<Payload = any> = Omit<Message, "payload" | "topic"> & {
  readonly payload: Payload;
  readonly topic: string;
};

/** Messages of one turn of the engine, in the order in which they arrived. */
export class Batch implements Iterable<Message> {
  private constructor();
  readonly length: number;
  at(index: number): Message | undefined;
  entries(): IterableIterator<[number, Message]>;
  [Symbol.iterator](): IterableIterator<Message>;
}

/** The options of the handlers. `null` is the default of each. */
export interface HandlerOptions {
  /** Handlers that may wait at once; at the limit nothing more is received. Default 256. */
  handlersMax?: number | null;
  /** Messages that may wait for an earlier one of their connection. Default 1024. */
  waitingMax?: number | null;
  /** The same in bytes of these messages. Default 16 MiB. */
  waitingBytesMax?: number | null;
  /** A handler that takes longer is given up, and its client receives an error. By default there is no limit. */
  handlerTimeoutMs?: number | null;
  /** With `false` messages of one connection are handled at once, too. Default true. */
  keepOrder?: boolean | null;
  /** A handler that blocks the event loop for this long is logged; 0 for never. Default 250. */
  blockedWarningMs?: number | null;
  /** How long handlers have to end after the server has stopped. Default 5000. */
  stopTimeoutMs?: number | null;
  /** Where errors of handlers and the lines of the engine go. Default the console. */
  log?: ((level: "error" | "warn" | "info" | "debug" | "trace", message: string, error?: unknown) => void) | null;
  /** The lowest level of what is logged. Default `warn`. The engine's lines go to the server that was started last. */
  logLevel?: "off" | "error" | "warn" | "info" | "debug" | "trace" | null;
}

/** The options of a server: those of the engine, and those of its handlers. */
export interface ServerOptions extends EngineOptions, HandlerOptions {}

export interface Published {
  /** Its number in its topic, from 1; `undefined` if the topic keeps no history. */
  offset: number | undefined;
  /** The life of the topic that the number is of. */
  epoch: string | undefined;
  /** Whether it repeats the `id` of an earlier one, and was delivered to nobody. */
  duplicate: boolean;
}

/** Connections that do not receive a message. */
export type Excluded = Connection | Iterable<Connection>;

/** The options of a message to many. */
export interface MessageOptions extends TypeAndPriority, Volatile {
  /** Everybody but this connection, or these, at most 1000. */
  exclude?: Excluded;
}

export interface PublishOptions extends MessageOptions {
  /** A publication with the id of an earlier one is dropped. */
  id?: string;
  /** The key by which a lagging subscription conflates. */
  key?: string;
  ttlMs?: number;
  /** A snapshot of the topic instead of an update. */
  snapshot?: boolean;
}

/** A publication in the history of a topic. */
export interface TopicPublication {
  /** The type of the publication. */
  type: string;
  payload: any;
  topic: string | undefined;
  /** Its place in the history: the life of the topic, and the number in it. */
  position: Position | undefined;
  /** The id that its publisher gave it, by which repetitions are recognised. */
  id: string | undefined;
  /** `snapshot` if it replaces the publications before it. */
  category: "update" | "snapshot";
}

export interface HistoryPage {
  /** The life of the topic that offsets belong to; `null` if the topic keeps no history. */
  epoch: string | null;
  /** The offset of the newest publication; 0 if there was none. */
  offset: number;
  /** The offset of the oldest publication that is kept. */
  oldest: number | null;
  publications: TopicPublication[];
  /** Whether there are more in this direction. */
  more: boolean;
}

/** A connection in a list. */
export interface ConnectionInfo {
  /** Its id, as in `Connection.id` and `server.disconnect`. */
  connection: string;
  /** The UUID that its client was told; none with the protocol `raw`. */
  id?: string;
  /** The user that its token names. */
  user?: string;
  /** The other end, as `address:port`. */
  address?: string;
  format: "json" | "msgpack";
  /** The number of topics and patterns that it is subscribed to. */
  topics: number;
  /** Bytes that wait to be sent to it. */
  queuedBytes: number;
  /** When it was opened, in milliseconds since 1970; none with the protocol `raw`. */
  connectedUnixMs?: number;
}

/** A topic or pattern that has subscribers. */
export interface TopicInfo {
  topic: string;
  /** Whether it is a pattern. */
  pattern: boolean;
  subscribers: number;
  /** Publications since it has had subscribers without a break. */
  publications: number;
  /** Publications per second since the last query, at least a second ago. */
  perS: number;
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
type PublicationHandler<Payload> = (message: Publication<Payload>) => unknown;
type CheckedHandler<Payload> = (message: Message, payload: Payload) => unknown;

/** A schema of Zod, Valibot, ArkType or another library of Standard Schema (https://standardschema.dev). */
export interface Schema<Payload> {
  readonly "~standard": {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => unknown;
    readonly types?: { readonly input: unknown; readonly output: Payload } | undefined;
  };
}

/** The payload of a topic by the map `Topics`; `unknown` for a topic that it does not have. */
export type PayloadOf<Topics, Name extends string> = Name extends keyof Topics ? Topics[Name] : unknown;

/** What `authorize` decides of a client that it lets in. */
export interface Admission {
  /** Who it is: `connection.user`. */
  user?: string | null;
  /** The topics that it may have; without them those of the server's options. */
  access?: AccessRules;
  /** Topics that it is subscribed to from the start, at most 1000. */
  subscriptions?: string[];
  /** When the connection ends: a `Date`, or seconds since 1970. */
  expiresAt?: Date | number;
  /** The application's own: `connection.attachment`. */
  attachment?: unknown;
}

/** `true` lets the token decide; `false` or nothing refuses the client. */
type Decision = Admission | boolean | null | undefined | "" | 0;

/**
 * Decides who may connect, by the request: its headers, cookies, query and address. `true` lets the token decide; `false` or
 * nothing refuses the client, with HTTP 403; so does a `CallError`, with its words. Another error is logged, and the client is
 * told to come back, with 503.
 */
export type Authorize = (request: IncomingMessage) => Decision | Promise<Decision>;

export interface AttachOptions {
  /** Decides who may connect at this HTTP server. Default: what `server.authorize` was called with, else the token. */
  authorize?: Authorize;
  /** Middleware in the form of Express that prepares the request for `authorize`, such as that of sessions. */
  use?: ((request: never, response: never, next: (error?: unknown) => void) => unknown)[];
  /** How long `authorize` and the middleware may take. Default 10000 ms. */
  authorizeTimeoutMs?: number;
}

/** A server of `node:http` or `node:https`, such as what `app.listen()` of Express returns. */
type HttpServer = Pick<import("node:http").Server, "address" | "listenerCount" | "off" | "on">;

/** `server.promises`: the calls of the same names, which hold up the event loop neither for a broker nor for the engine. */
export interface ServerPromises<Topics extends object = object> {
  /** Rejects with a `BusyError` if there is no room. Await one before the next if they must be in order. */
  publish<Name extends string>(
    topic: Name,
    payload: PayloadOf<Topics, Name>,
    options?: PublishOptions,
  ): Promise<Published>;
  publishMany(
    topic: string,
    payloads: Iterable<unknown>,
    options?: TypeAndPriority & { waitMs?: number },
  ): Promise<number>;
  subscribeUser(user: string, topic: string): Promise<void>;
  unsubscribeUser(user: string, topic: string): Promise<void>;
  disconnectUser(user: string, code?: number, reason?: string): Promise<void>;
  disconnect(id: string, code?: number, reason?: string): Promise<void>;
  listConnections(query?: {
    user?: string;
    topic?: string;
    after?: string;
    limit?: number;
  }): Promise<ConnectionInfo[]>;
  listTopics(query?: { prefix?: string; after?: string; limit?: number }): Promise<TopicInfo[]>;
  history(topic: string, query?: { since?: number; limit?: number; newestFirst?: boolean }): Promise<HistoryPage>;
  forgetHistory(topic: string): Promise<boolean>;
  presence(topic: string, query?: { limit?: number }): Promise<TopicPresence>;
}

/**
 * A WebSocket server. It runs on threads of its own; what clients do is received in batches. `Topics` maps topics to the types of
 * their payloads, as for `connect<Topics>()` of the client.
 */
export class Server<Topics extends object = object> implements AsyncIterable<Message> {
  constructor(options?: ServerOptions);
  /** The names of all options. */
  static optionNames(): string[];
  /**
   * Serves the WebSockets of an HTTP server, at its port. Without `host`, `port` and `listen` the server then has no port of its
   * own. Call it before `start()`.
   */
  attach(httpServer: HttpServer, options?: AttachOptions): this;
  /**
   * Decides who may connect, by the request: at the port of the server's own, and at HTTP servers that are attached without an
   * `authorize` of their own. Call it before `start()`.
   */
  authorize(authorize: Authorize, options?: Omit<AttachOptions, "authorize">): this;
  /** Starts to listen, and to call the handlers. */
  start(): Promise<this>;
  /** Ends every connection at once, also during a drain, and waits for the handlers, at most for `stopTimeoutMs`. */
  stop(): Promise<void>;
  /** Rejects new clients, sends the others away over time, and stops; how many were left. Default 10000 ms. */
  drain(timeoutMs?: number): Promise<number>;
  /**
   * Starts, serves until SIGINT or SIGTERM, lets the clients leave, and stops: a whole program. A second signal ends the
   * connections at once, with the exit code 130.
   */
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
  /** The same for payloads of a shape: others are refused with `INVALID_PAYLOAD`, in words that name the fault. */
  on<Payload>(type: string, schema: Schema<Payload>, handler: CheckedHandler<Payload>): this;
  /** Registers the handler of a type of requests, or of `*`. What it returns is the reply. */
  handle(type: string, handler: Handler): this;
  handle<Payload>(type: string, schema: Schema<Payload>, handler: CheckedHandler<Payload>): this;
  /**
   * Registers the handler that decides about what clients publish to a topic or pattern, once the access rules allow it. When it
   * ends, the publication goes on, with the payload of `message.replace()` if it has called that. When it throws, the publication
   * is refused: by a `CallError` in its words. The first pattern that fits a topic decides. Messages of the client wait for it:
   * do not ask the same client something meanwhile.
   */
  onPublish<Name extends string>(topic: Name, handler: PublicationHandler<PayloadOf<Topics, Name>>): this;
  /** The same for payloads of a shape: others are refused with `INVALID_PAYLOAD`, in words that name the fault. */
  onPublish<Payload>(topic: string, schema: Schema<Payload>, handler: CheckedHandler<Payload>): this;
  /** Puts a function around every handler of messages, requests and publications; the first one is the outermost. `next` calls the handler. */
  use(middleware: (message: Message, next: () => unknown) => unknown): this;
  /** The events, in batches, until the server has stopped and everything was received. */
  batches(): AsyncIterableIterator<Batch>;
  [Symbol.asyncIterator](): AsyncIterator<Message>;
  /**
   * The calls that may wait for the broker of a cluster, as promises: the event loop runs meanwhile. On a server with a
   * broker `publish`, `history`, `forgetHistory`, `presence` and the calls for all connections of a user hold it up.
   */
  get promises(): ServerPromises<Topics>;
  /** Publishes to a topic: every subscriber gets it. Throws a `BusyError` if there is no room. */
  publish<Name extends string>(
    topic: Name,
    payload: PayloadOf<Topics, Name>,
    options?: PublishOptions,
  ): Published;
  /** Publishes several payloads to one topic, in their order; how many were new. */
  publishMany(
    topic: string,
    payloads: Iterable<unknown>,
    options?: TypeAndPriority & { waitMs?: number },
  ): Promise<number>;
  /** Sends to every connection of a user. */
  sendToUser(user: string, payload: unknown, options?: MessageOptions): void;
  /** Sends to every connection. */
  broadcast(payload: unknown, options?: MessageOptions): void;
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
  whenFree<T>(action: () => T, options?: { waitMs?: number }): Promise<Awaited<T>>;
  /** How many connections there are. */
  get connections(): number;
  /** The counters of the server, by name. */
  statistics(): Record<string, number>;
  handlerStatistics(): HandlerStatistics;
  /** Some connections: all of a user, or all of a topic, or all; `after` is the last `connection` of the page before. */
  listConnections(query?: { user?: string; topic?: string; after?: string; limit?: number }): ConnectionInfo[];
  /** Some topics and patterns that have subscribers, in the order of their names. */
  listTopics(query?: { prefix?: string; after?: string; limit?: number }): TopicInfo[];
  /** The history of a topic: its position, and some of its publications. */
  history(topic: string, query?: { since?: number; limit?: number; newestFirst?: boolean }): HistoryPage;
  /** Forgets what a topic keeps; false if there was nothing. */
  forgetHistory(topic: string): boolean;
  /** The users on a topic: how many, and some of them. */
  presence(topic: string, query?: { limit?: number }): TopicPresence;
}
