/** The test server: a Tidewire server in memory, for tests of applications that use the client. */

import { fromBase64 } from "../core/bytes.js";
import { compilePattern } from "../core/topics.js";
import { utf8Decoder } from "../core/utf8.js";
import { Message } from "../message.js";
import type { CloseInfo, OpenOptions, Socket, SocketHandler, Transport } from "../transport.js";
import {
  type Action,
  type ConnectionHost,
  inner,
  isName,
  TestConnection,
  type TestMessage,
  type TestPublication,
  type TestRequest,
} from "./connection.js";
import { CallError } from "./errors.js";
import {
  type DropOptions,
  type Effect,
  type FaultOptions,
  type FaultPoint,
  Faults,
  type RefuseOptions,
} from "./faults.js";
import { Producers } from "./producers.js";
import { type Member, type TopicSettings, Topics } from "./topics.js";

/** The data of a client's connection request. */
export interface Handshake {
  /** The address, with its query. */
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  /** The token, wherever it travels. */
  readonly token: string | undefined;
}

export interface TestServerOptions extends TopicSettings {
  /**
   * Who a client is. `undefined` is a client without a name; an error that it throws refuses the client, as a token that the
   * server does not accept. Default: the `sub` of the token, whose signature nobody checks.
   */
  user?: (handshake: Handshake) => string | undefined | Promise<string | undefined>;
  /** Whether a client may do something with a topic. Default: it may. */
  access?: (request: { action: Action; topic: string; user: string | undefined }) => boolean;
  /** Receives errors of handlers that are no refusals. Default `console.error`. */
  log?: (error: unknown) => void;
}

export interface TestPublishOptions {
  /** The type of the publication. Default `message`. */
  type?: string;
  /** The idempotency key. Default none. */
  id?: string;
  /** 1, 3, 5, 8 or 10. Default 5. */
  priority?: 1 | 3 | 5 | 8 | 10;
  /** How long the publication is of use, in milliseconds. Default: always. */
  ttlMs?: number;
  /** Whether it is the state of something, in place of a change. Default false. */
  isSnapshot?: boolean;
  /** Everybody but this connection, or these. Default: nobody is left out. */
  exclude?: TestConnection | Iterable<TestConnection>;
}

/** The options of a message to many connections. */
export type TestMessageOptions = Pick<TestPublishOptions, "type" | "exclude">;

/** How a server goes away. */
export interface StopOptions {
  /** The close code; 1006 for connections that are lost. Default 1012: the server restarts. */
  code?: number;
  reason?: string;
  /** When the clients connect again, in milliseconds: the server sends it. Default 0; `false` leaves it to them. */
  comeBackMs?: number | false;
}

type Handler<T = never> = (message: TestMessage<T>) => unknown;
type Decider = (message: TestPublication) => unknown;

/** What happens to connections, as `on` names it. */
interface ConnectionEvents {
  connect: { connection: TestConnection };
  disconnect: { connection: TestConnection };
}

/**
 * A server in memory. Give its `transport` to a client: `connect(server.url, { transport: server.transport })`. The client
 * runs as in production, and the server does what a Tidewire server does, without a socket, a process or the wire. A test of
 * this package runs the same list of behaviours against this server and the real one.
 */
export class TestServer {
  /** An address for clients of this server. Any other will do. */
  readonly url = "ws://tidewire.test/ws";
  /** Leads clients to this server. */
  readonly transport: Transport;
  /** What clients have asked for, in order. */
  readonly requests: TestRequest[] = [];
  readonly #options: TestServerOptions;
  readonly #topics: Topics;
  readonly #producers = new Producers();
  readonly #faults = new Faults();
  readonly #connections = new Set<TestConnection>();
  readonly #handlers = new Map<string, Handler>();
  readonly #listeners = new Map<string, Handler>();
  readonly #deciders: { matches: (topic: string) => boolean; handler: Decider }[] = [];
  readonly #events: { [Name in keyof ConnectionEvents]?: (event: ConnectionEvents[Name]) => void } = {};
  readonly #host: ConnectionHost;
  #count = 0;
  #isStopped = false;

  constructor(options: TestServerOptions = {}) {
    this.#options = options;
    this.#topics = new Topics(options);
    this.#host = this.#connectionHost();
    this.transport = {
      canSendHeaders: true,
      canSendAnyCode: true,
      prefersBatches: false,
      open: (open, handler) => this.#open(open, handler),
    };
  }

  /** Connections that are open, the oldest first. */
  get connections(): TestConnection[] {
    return [...this.#connections];
  }

  // Handlers

  /** Handles messages of a type, and `connect` and `disconnect` of connections; `*` is for all other types. */
  on<Name extends keyof ConnectionEvents>(
    name: Name,
    listener: (event: ConnectionEvents[Name]) => void,
  ): this;
  on<T = unknown>(type: string, handler: (message: TestMessage<T>) => unknown): this;
  on(name: string, handler: (message: never) => unknown): this {
    if (name === "connect" || name === "disconnect") this.#events[name] = handler as never;
    else this.#listeners.set(name, handler as Handler);
    return this;
  }

  /**
   * Handles requests of a type; `*` is for all other types. What it returns is the answer. To refuse, throw a
   * {@link CallError}.
   */
  handle<T = unknown>(type: string, handler: (message: TestMessage<T>) => unknown): this {
    this.#handlers.set(type, handler as Handler);
    return this;
  }

  /**
   * Handles what clients want to publish to a topic or pattern, once they may: when it ends, the publication goes on, with the
   * payload of `message.replace` if it has called that. To refuse, throw a {@link CallError}. The first pattern that fits
   * decides. Messages of the client wait meanwhile.
   */
  onPublish<T = unknown>(topic: string, handler: (message: TestPublication<T>) => unknown): this {
    if (!isName(topic, true)) throw new Error(`${JSON.stringify(topic)} is no name of a topic or pattern`);
    this.#deciders.push({ matches: compilePattern(topic), handler: handler as Decider });
    return this;
  }

  // Topics

  /** Publishes to a topic. */
  publish(topic: string, payload: unknown, options: TestPublishOptions = {}) {
    if (!isName(topic, false)) throw new Error(`${JSON.stringify(topic)} is no name of a topic`);
    const { type = "message", id, priority, ttlMs, isSnapshot, exclude } = options;
    const category = isSnapshot ? "S" : "U";
    const draft = { type, ...inner(payload), category, priority, id, ttlMs };
    return this.#topics.publish(topic, draft, excluded(exclude));
  }

  /** The publications that a topic keeps, the oldest first. */
  history<T = unknown>(topic: string): Message<T>[] {
    const { publications } = this.#topics.page(topic, undefined, Infinity, false);
    return publications.map((one) => Message.read(JSON.parse(JSON.stringify(one))) as Message<T>);
  }

  /** Who is on a topic with presence. */
  presence(topic: string): Record<string, Member> {
    return this.#topics.members(topic);
  }

  /** How many connections receive publications of a topic. */
  subscribers(topic: string): number {
    return this.#topics.subscribers(topic);
  }

  // Connections

  /** Sends a message to each connection of a user. */
  sendToUser(user: string, payload: unknown, options: TestMessageOptions = {}): void {
    this.#sendTo(this.#connectionsOf(user), payload, options);
  }

  /** Sends a message to each connection. */
  broadcast(payload: unknown, options: TestMessageOptions = {}): void {
    this.#sendTo(this.connections, payload, options);
  }

  #sendTo(
    connections: TestConnection[],
    payload: unknown,
    { exclude, ...options }: TestMessageOptions,
  ): void {
    const others = new Set(excluded(exclude));
    for (const connection of connections) if (!others.has(connection)) connection.send(payload, options);
  }

  /** Subscribes each connection of a user to a topic. */
  subscribeUser(user: string, topic: string): void {
    for (const connection of this.#connectionsOf(user)) connection.subscribe(topic);
  }

  /** Ends a subscription of each connection of a user. */
  unsubscribeUser(user: string, topic: string): void {
    for (const connection of this.#connectionsOf(user)) connection.unsubscribe(topic);
  }

  #connectionsOf(user: string): TestConnection[] {
    return this.connections.filter((connection) => connection.user === user);
  }

  // Faults

  /** Loses connections, of a user or of all: the clients connect again by themselves. */
  disconnect({ user, ...options }: StopOptions & { user?: string } = {}): void {
    const { code = 1006, reason = "", comeBackMs = 0 } = options;
    const connections = user === undefined ? this.connections : this.#connectionsOf(user);
    for (const connection of connections) connection.interrupt(code, reason, comeBackMs);
  }

  /** Stops: connections end, and no client can connect. What topics keep is kept. */
  stop(options: StopOptions = {}): void {
    this.#isStopped = true;
    this.disconnect({ code: 1012, reason: "the server restarts", ...options });
  }

  /** Accepts clients again. */
  start(): void {
    this.#isStopped = false;
  }

  /** Stops and starts, and forgets everything that topics kept, as a server without a broker does. */
  restart(options: StopOptions = {}): void {
    this.stop(options);
    this.forget();
    this.start();
  }

  /** Forgets the histories, and what the server knows of queues: each topic begins anew. */
  forget(): void {
    this.#topics.forget();
    this.#producers.clear();
  }

  /**
   * Loses what clients ask for, or publications on their way to a subscriber, which then learns of a gap. With `answerOnly`
   * the server does it, and its answer is lost. The result ends the fault.
   */
  drop(point: Exclude<FaultPoint, "connect">, options: DropOptions = {}): () => void {
    return this.#faults.add(point, { drops: options.answerOnly ? "answer" : "request" }, options);
  }

  /**
   * Makes the server do something later. What the same connection asks for behind it waits, too, but for requests of the
   * application, which run beside each other. The result ends the fault; what waits goes on waiting.
   */
  delay(point: FaultPoint, delayMs: number, options: FaultOptions = {}): () => void {
    return this.#faults.add(point, { delayMs }, options);
  }

  /**
   * Refuses what clients ask for: with a code of the protocol or the application, or with an HTTP status for `connect`. The
   * result ends the fault.
   */
  refuse(
    point: Exclude<FaultPoint, "publication">,
    code: string | number,
    { message = "the test has refused it", retryAfterMs, ...options }: RefuseOptions = {},
  ): () => void {
    return this.#faults.add(point, { refusal: { code, message, retryAfterMs } }, options);
  }

  /** Ends all faults. */
  heal(): void {
    this.#faults.clear();
    this.start();
  }

  // The transport

  #open(options: OpenOptions, handler: SocketHandler): Socket {
    let connection: TestConnection | undefined;
    let isOver = false;
    const over = (info: CloseInfo) => {
      if (isOver) return;
      isOver = true;
      handler.onClose(info);
    };
    const opening = async () => {
      await undefined;
      const { delayMs, refusal } = this.#faults.take("connect", "");
      if (delayMs !== undefined) await new Promise((resolve) => setTimeout(resolve, delayMs));
      if (isOver) return;
      if (this.#isStopped) return over({ code: 1006, reason: "the test server is stopped" });
      if (refusal) return over(refused(Number(refusal.code), refusal.message, refusal.retryAfterMs));
      const handshake = handshakeOf(options);
      let user: string | undefined;
      try {
        user = await (this.#options.user ?? userOf)(handshake);
      } catch (error) {
        return over(refused(401, error instanceof Error ? error.message : String(error)));
      }
      if (isOver) return;
      const { format, compression } = Object.fromEntries(handshake.url.searchParams);
      if (format || compression) {
        return over(refused(400, "the test server reads JSON alone: leave out the format and the layers"));
      }
      const own: SocketHandler = {
        onOpen: () => handler.onOpen(),
        onMessages: (frames) => handler.onMessages(frames),
        onDrain: () => handler.onDrain(),
        onClose: over,
      };
      connection = new TestConnection(this.#host, `test-${++this.#count}`, user, handshake.token, own);
      this.#connections.add(connection);
      connection.open();
      this.#events.connect?.({ connection });
    };
    opening().catch((error: unknown) => {
      this.#host.failed(error);
      over({ code: 1006, reason: String(error) });
    });
    return {
      bufferedBytes: 0,
      send: (frame) => connection?.receive(frame),
      close: (code, reason) =>
        connection ? connection.clientCloses(code, reason) : over({ code: 1006, reason: "" }),
      terminate: () =>
        connection ? connection.end({ code: 1006, reason: "" }) : over({ code: 1006, reason: "" }),
    };
  }

  #connectionHost(): ConnectionHost {
    const { access, log = console.error } = this.#options;
    return {
      topics: this.#topics,
      producers: this.#producers,
      allows: ({ user }, action, topic) => access?.({ action, topic, user }) ?? true,
      fault: (point, name): Effect => this.#faults.take(point, name),
      asked: (request) => void this.requests.push(request),
      call: (message) => {
        const handler = this.#handlers.get(message.type) ?? this.#handlers.get("*");
        if (!handler) throw new CallError(`nothing answers ${message.type}`, { code: "NOT_FOUND" });
        return handler(message as never);
      },
      decider: (topic) => this.#deciders.find(({ matches }) => matches(topic))?.handler,
      received: async (message) => {
        const handler = this.#listeners.get(message.type) ?? this.#listeners.get("*");
        await handler?.(message as never);
        return handler !== undefined;
      },
      failed: (error) => log(error),
      left: (connection) => {
        if (!this.#connections.delete(connection)) return;
        this.#topics.leave(connection);
        this.#events.disconnect?.({ connection });
      },
    };
  }
}

function excluded(exclude: TestPublishOptions["exclude"] = []): TestConnection[] {
  return exclude instanceof TestConnection ? [exclude] : [...exclude];
}

function refused(status: number, reason: string, retryAfterMs?: number): CloseInfo {
  return { code: 1006, reason, status, ...(retryAfterMs !== undefined && { retryAfterMs }) };
}

function handshakeOf({ url, protocols, headers }: OpenOptions): Handshake {
  const address = new URL(url);
  const bearer = /^Bearer (.+)$/.exec(headers.Authorization ?? "")?.[1];
  const isToken = (text: string) => /^eyJ[\w-]+\.[\w-]+\./.test(text);
  const subprotocol = protocols.find((one) => isToken(one.slice(one.indexOf(".") + 1)));
  const inQuery = [...address.searchParams.values()].find(isToken);
  const token = bearer ?? subprotocol?.slice(subprotocol.indexOf(".") + 1) ?? inQuery;
  return { url: address, headers, token };
}

/** The `sub` of a JSON Web Token; of any other token that text itself. */
function userOf({ token }: Handshake): string | undefined {
  if (token === undefined) return undefined;
  try {
    const part = token.split(".")[1]!.replaceAll("-", "+").replaceAll("_", "/");
    const { sub } = JSON.parse(utf8Decoder().decode(fromBase64(part)!)) as { sub?: unknown };
    return typeof sub === "string" ? sub : undefined;
  } catch {
    return token;
  }
}
