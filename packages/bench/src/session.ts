/** A connection of the tests: opened until it is ready, with pings that prove what the server has read. */

import { randomFillSync } from "node:crypto";
import {
  type CloseInfo,
  type Frame,
  type NodeSocket,
  type NodeTransport,
  type NodeTransportOptions,
  nodeTransport,
  type OutgoingFrame,
} from "@tidewire/client/node";
import { clockNs, NS_PER_S } from "./clock.js";
import type { Begin } from "./contract.js";

const SWEEP_MS = 100;
/** The category of the protocol's own messages. */
const SYSTEM = "WSE";
const MESSAGE_BYTES_MAX = 16 * 1024 * 1024;
/** Bytes of a ping's token, which cannot be guessed. */
const TOKEN_BYTES = 8;

/** The events of its connections that a test observes. */
export interface SessionEvents {
  /** A message of the application, or a publication. */
  onMessage?(message: Envelope): void;
  /** The server refused messages. */
  onRefused?(code: string, messages: number): void;
  /** The connection is over, and nobody here has closed it. */
  onBroken?(reason: string): void;
  /** A pong that answers no open ping. */
  onStrangePong?(): void;
}

/** A message as the server writes it. */
export interface Envelope {
  c?: string;
  t?: string;
  tp?: string;
  o?: number;
  p?: Record<string, unknown> | null;
}

interface OpenPing {
  token: Buffer;
  sentNs: number;
  settle: (answeredNs: number | undefined) => void;
}

/** Connections whose pings may become too old. */
const withOpenPings = new Set<Session>();
let isSweeping = false;

const tokens = Buffer.allocUnsafeSlow(TOKEN_BYTES * 1024);
let tokenAt = tokens.length;

/** An open connection. */
export class Session {
  readonly #socket: NodeSocket;
  readonly #pings: OpenPing[] = [];
  #isOver = false;
  #close: () => void = () => {};
  events: SessionEvents = {};
  /** Resolves when the connection is gone. */
  readonly closed = new Promise<void>((resolve) => {
    this.#close = resolve;
  });
  /** How long a ping may be unanswered. */
  readonly pingTimeoutNs: number;
  /** The version of the server. */
  readonly version: string | undefined;
  /** Its number among all connections. */
  readonly number: number;

  constructor(socket: NodeSocket, number: number, version: string | undefined, pingTimeoutMs: number) {
    this.#socket = socket;
    this.number = number;
    this.pingTimeoutNs = (pingTimeoutMs / 1000) * NS_PER_S;
    this.version = version;
  }

  /** Whether the connection has ended. */
  get isOver(): boolean {
    return this.#isOver;
  }

  send(message: OutgoingFrame): void {
    this.#socket.send(message);
  }

  /** When the server has answered, having read everything before; `undefined` if it did not in time. */
  ping(): Promise<number | undefined> {
    if (this.#isOver) return Promise.resolve(undefined);
    return new Promise((settle) => {
      const token = nextToken();
      this.#pings.push({ token, sentNs: clockNs(), settle });
      this.#socket.ping(token);
      watch(this);
    });
  }

  /** Ends the connection; it is no longer a figure of the test. */
  close(): void {
    this.events = {};
    this.#socket.close(1000, "");
    this.#end();
  }

  /** Ends it at once. */
  terminate(): void {
    this.events = {};
    this.#socket.terminate();
    this.#end();
  }

  /** @internal */
  takeMessages(frames: readonly Frame[]): void {
    for (const frame of frames) {
      if (typeof frame !== "string" || this.#isOver) continue;
      const message = parsed(frame);
      if (message === undefined) {
        this.events.onBroken?.("the server sent a text that is not a JSON object");
        this.terminate();
      } else {
        this.#take(message);
      }
    }
  }

  /** @internal Handles a pong. It also answers the pings before its own (RFC 6455, section 5.5.3). */
  takePong(payload: Uint8Array): void {
    // A heartbeat without a payload answers nothing.
    if (payload.length === 0) return;
    const index = this.#pings.findIndex((ping) => ping.token.equals(payload));
    if (index < 0) {
      this.events.onStrangePong?.();
      return;
    }
    const nowNs = clockNs();
    for (const ping of this.#pings.splice(0, index + 1)) ping.settle(nowNs);
    if (this.#pings.length === 0) withOpenPings.delete(this);
  }

  /** @internal */
  takeClose(info: CloseInfo): void {
    this.#close();
    if (this.#isOver) return;
    this.events.onBroken?.(`closed with ${info.code}${info.reason === "" ? "" : `: ${info.reason}`}`);
    this.#end();
  }

  /** @internal Gives up pings that are too old. */
  sweep(nowNs: number): void {
    while (this.#pings.length > 0 && nowNs - this.#pings[0]!.sentNs > this.pingTimeoutNs) {
      this.#pings.shift()!.settle(undefined);
    }
    if (this.#pings.length === 0) withOpenPings.delete(this);
  }

  #take(message: Envelope): void {
    const payload = message.p ?? {};
    if (message.t === "error") {
      const refused = payload.refused;
      this.events.onRefused?.(String(payload.code), typeof refused === "number" ? refused : 1);
    } else if (message.t === "ping" && message.c !== "U") {
      const sent = payload.timestamp;
      const pong = { client_timestamp: Date.now(), server_timestamp: sent ?? null, latency: 0 };
      this.#socket.send(JSON.stringify({ c: "WSE", t: "PONG", p: pong }));
    } else if (message.c !== SYSTEM || message.t === "subscription_update") {
      // A message of the session itself, such as a `server_hello` that is late, answers nothing of a test.
      this.events.onMessage?.(message);
    }
  }

  #end(): void {
    this.#isOver = true;
    withOpenPings.delete(this);
    for (const ping of this.#pings.splice(0)) ping.settle(undefined);
  }
}

/** Opens connections to one server. */
export class Opener {
  readonly #terms: Begin;
  /** One for each address to connect from. */
  readonly #transports: NodeTransport[];

  constructor(terms: Begin, caFile: string | undefined) {
    this.#terms = terms;
    const options: NodeTransportOptions = caFile === undefined ? {} : { caFile };
    if (terms.layer === "deflate") Object.assign(options, { deflate: true, deflateBytesMin: 0 });
    const sources = terms.sources ?? [];
    this.#transports = sources.map((localAddress) => nodeTransport({ ...options, localAddress }));
    if (sources.length === 0) this.#transports.push(nodeTransport(options));
  }

  /** Opens a connection. Resolves when `server_ready` has arrived or, with the profile raw, after the upgrade. */
  open(number: number, token: string | undefined): Promise<Session> {
    return new Promise((resolve, reject) => {
      let session: Session | undefined;
      const { url, layer, profile, pong_timeout_ms, connect_timeout_ms } = this.#terms;
      const isRaw = profile === "raw";
      const become = (version: string | undefined) => {
        clearTimeout(patience);
        session = new Session(socket, number, version, pong_timeout_ms);
        resolve(session);
      };
      const socket = this.#transports[number % this.#transports.length]!.open(
        { url, protocols: [], headers: this.#headers(token), messageBytesMax: MESSAGE_BYTES_MAX },
        {
          onOpen: () => {
            if (layer === "deflate" && socket.extensions === "") {
              reject(new Error("the server has not accepted permessage-deflate"));
              socket.terminate();
            } else if (isRaw) become(socket.server);
          },
          onMessages: (frames) => {
            if (session !== undefined) {
              session.takeMessages(frames);
              return;
            }
            const [first, ...rest] = frames;
            const ready = readyOf(first!);
            if (ready === undefined) {
              reject(new Error("the first message is not server_ready"));
              socket.terminate();
              return;
            }
            socket.send(CLIENT_HELLO);
            become(ready.version);
            session!.takeMessages(rest);
          },
          onDrain() {},
          onPong: (payload) => session?.takePong(payload),
          onClose: (info) => {
            clearTimeout(patience);
            if (session === undefined) reject(new Error(info.reason));
            else session.takeClose(info);
          },
        },
      );
      const patience = setTimeout(() => {
        reject(new Error("timed out"));
        socket.terminate();
      }, connect_timeout_ms);
    });
  }

  #headers(token: string | undefined): Record<string, string> {
    const { cookie_name } = this.#terms;
    if (token === undefined) return {};
    return cookie_name === undefined
      ? { Authorization: `Bearer ${token}` }
      : { Cookie: `${cookie_name}=${token}` };
  }
}

const CLIENT_HELLO = JSON.stringify({
  c: "WSE",
  t: "client_hello",
  p: { client_version: "tidewire-worker-ts/0.1.0", protocol_version: 1 },
});

/** The content of `server_ready`; `undefined` for another message. */
function readyOf(frame: Frame): { version: string | undefined } | undefined {
  if (typeof frame !== "string") return undefined;
  const message = parsed(frame);
  if (message?.t !== "server_ready") return undefined;
  const details = message.p?.details as { version?: unknown } | undefined;
  const version = details?.version;
  return { version: typeof version === "string" ? version : undefined };
}

/** A text as an object; `undefined` if it is none. */
function parsed(text: string): Envelope | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Envelope) : undefined;
  } catch {
    return undefined;
  }
}

function nextToken(): Buffer {
  if (tokenAt === tokens.length) {
    randomFillSync(tokens);
    tokenAt = 0;
  }
  const token = Buffer.from(tokens.subarray(tokenAt, tokenAt + TOKEN_BYTES));
  tokenAt += TOKEN_BYTES;
  return token;
}

function watch(session: Session): void {
  withOpenPings.add(session);
  if (isSweeping) return;
  isSweeping = true;
  setInterval(() => {
    const nowNs = clockNs();
    for (const one of withOpenPings) one.sweep(nowNs);
  }, SWEEP_MS).unref();
}
