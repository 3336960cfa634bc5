/** Options of a client: names, units, defaults, and the check that refuses unknown ones. */

import { checkClient, DEVELOPMENT } from "#development";
import { defaultReconnect, type ReconnectPolicy } from "./core/backoff.js";
import type { EndpointHealth } from "./core/endpoints.js";
import type { Compression, Encryption, Format, Signing } from "./core/layers.js";
import type { Quality } from "./core/quality.js";
import type { QueuePort } from "./core/queue-port.js";
import type { LayerSizes } from "./core/size.js";
import { TidewireError } from "./errors.js";
import type { ClientEvents } from "./events.js";
import type { Transport } from "./transport.js";

/** Several addresses of the service: `endpoints()` of `@tidewire/client/endpoints`. */
export interface EndpointList {
  /** The state of each address. */
  health(): EndpointHealth[];
  /** @internal */
  readonly urls: readonly string[];
  /** The address for the next attempt, or how long to wait for one. Those in `leftOut` are not chosen. @internal */
  choose(nowMs: number, leftOut: readonly number[]): { index: number } | { waitMs: number };
  /** A connection to an address is being opened (1), or is over (-1). @internal */
  count(index: number, step: number): void;
  /** A session was established, `connectMs` milliseconds after the start of the attempt. @internal */
  succeeded(index: number, connectMs: number): void;
  /** An attempt failed, or the server ended a session for a reason of its own. @internal */
  failed(index: number, nowMs: number): void;
  /** Milliseconds until an attempt may be made. @internal */
  waitMs(nowMs: number): number;
}

declare const made: unique symbol;

/** What measures a connection: `quality()` of `@tidewire/client/quality` makes it, and nothing else can. */
export interface QualityPort {
  /** No such member exists. It keeps other objects from having this type. */
  readonly [made]: "by quality()";
  /** Latency, jitter, loss, and a score of them. */
  get(): Quality;
  /** The connection is so bad that the client should ask for less. @internal */
  isPoor(): boolean;
  /** @internal */
  pingSent(nowMs: number): void;
  /** @internal */
  pongReceived(nowMs: number): void;
  /** @internal */
  disconnected(): void;
}

/** When a lost connection is opened again; times in milliseconds. */
export type ReconnectOptions = Partial<ReconnectPolicy>;

/** Where the token of a client travels. */
export type TokenPlacement =
  /** `Authorization: Bearer`; not in a browser. */
  | "header"
  /** A subprotocol: this prefix and the token. The server has to allow it. */
  | { subprotocol: string }
  /** A query parameter of this name. The server has to allow it, and it may end up in logs of proxies. */
  | { query: string };

export type LogLevel = "debug" | "info" | "warn" | "error";

/** What {@link connect} accepts beside the address. Times are in milliseconds, sizes in bytes. */
export interface ClientOptions {
  /**
   * The token, or a function that gives one: before each connection, and again before it expires. Without a function
   * the client ends when its token has expired. In a page, a cookie needs no option.
   */
  token?: string | (() => string | Promise<string>);
  /** Default: `header` in Node, `{ subprotocol: "token." }` in a page. */
  tokenPlacement?: TokenPlacement;
  /** Subprotocols of the application to offer. Default none. */
  protocols?: string[];
  /** Headers of the upgrade request; not in a browser. Default none. */
  headers?: Record<string, string>;
  /** When a lost connection is opened again; `false` for never. */
  reconnect?: ReconnectOptions | false;
  /** Maximum time of a connection until `server_hello`. Default 10,000. */
  connectTimeoutMs?: number;
  /** Maximum time until an answer. Default 10,000. */
  requestTimeoutMs?: number;
  /** After how much silence the server counts as lost; 0 for never. Default 60,000. */
  idleTimeoutMs?: number;
  /** The time between two pings of the client; 0 for what the server asks for. Default 0. */
  pingIntervalMs?: number;
  /** The largest message to accept. Default 16 MiB. */
  messageBytesMax?: number;
  /** What may wait to be sent; past it sends throw `BUSY`. Default 4 MiB. */
  outboxBytesMax?: number;
  /** Requests that may be open; one more is refused with `BUSY`. Default 10,000. */
  requestsMax?: number;
  /** How long a publication that arrives before its turn waits for those before it. Default 5,000. */
  reorderWindowMs?: number;
  /** Whether the client stays 10 % below the rate limit that the server announces. Default true. */
  rateLimit?: boolean;
  /**
   * Whether the client asks for less when the user saves data or the network is poor, as the browser or `quality`
   * reports it: half as many pings, half the rate of its own messages, and `conflate` for subscriptions without
   * `recover`. Checked for pings with each ping, for subscriptions when one is requested, for the rate with each
   * connection. Default true.
   */
  adapt?: boolean;
  /** What the client calls itself. Default `tidewire-ts/` and the version. */
  clientVersion?: string;
  /** The format of messages: JSON, or `msgpack()` of `@tidewire/client/msgpack`. */
  format?: Format;
  /** Compression: `compress()` of `@tidewire/client/compress`. Default none. */
  compression?: Compression;
  /** Encryption inside the WebSocket: `encrypt()` of `@tidewire/client/encrypt`. Default none. */
  encryption?: Encryption;
  /** Signatures: `sign()` of `@tidewire/client/sign`. Default none. */
  signing?: Signing;
  /** What measures the connection: `quality()` of `@tidewire/client/quality`. Default none. */
  quality?: QualityPort;
  /** The queue of acknowledged messages: `queue()` of `@tidewire/client/queue`. Default none. */
  queue?: QueuePort;
  /** One connection for all tabs of the origin: `shared()` of `@tidewire/client/shared`. Default one for each tab. */
  shared?: SharedPort;
  /** How connections are opened. Default: the browser's `WebSocket`, or the package's own in Node. */
  transport?: Transport;
  /** Listeners that are there before the first event, by the names of `client.on`. */
  on?: { [Name in keyof ClientEvents]?: (detail: ClientEvents[Name]) => void };
  /** Closes the client when it is aborted. */
  signal?: AbortSignal;
  /** Receives what the client logs. Default: nothing is logged. */
  log?: (level: LogLevel, message: string, details?: unknown) => void;
  /** Whether connects and recoveries leave marks for the performance panel of the browser. Default false. */
  marks?: boolean;
}

/** What a client gives the port to its shared connection. */
export interface SharedHost {
  /** The client has a connection of its own, and why: the event `degraded` reports it. */
  degraded(reason: string): void;
}

/** One connection for several clients of an origin. */
export interface SharedPort {
  /**
   * A transport that leads to the shared connection; `base` opens that connection. Removes from `options` the
   * layers that only the shared connection has.
   */
  transport(base: Transport, options: ResolvedOptions, host: SharedHost): Transport;
}

type Optional =
  | "on"
  | "format"
  | "compression"
  | "encryption"
  | "signing"
  | "quality"
  | "queue"
  | "shared"
  | "transport"
  | "signal"
  | "log"
  | "token"
  | "tokenPlacement";

/** Options with their defaults. */
export type ResolvedOptions = Required<Omit<ClientOptions, Optional | "reconnect">> &
  Pick<ClientOptions, Optional> & {
    /** The addresses, of which there is one without `endpoints`. */
    urls: readonly string[];
    endpoints: EndpointList | undefined;
    /** What the layers add that a shared connection has in place of this client. */
    layerSizes?: LayerSizes;
    reconnect: ReconnectPolicy | undefined;
  };

/** The defaults of options that have one. `options/client.json` of the repository has them too. */
export const defaults = {
  protocols: [] as string[],
  headers: {} as Record<string, string>,
  connectTimeoutMs: 10_000,
  requestTimeoutMs: 10_000,
  idleTimeoutMs: 60_000,
  pingIntervalMs: 0,
  messageBytesMax: 16 * 1024 * 1024,
  outboxBytesMax: 4 * 1024 * 1024,
  requestsMax: 10_000,
  reorderWindowMs: 5_000,
  rateLimit: true,
  adapt: true,
  clientVersion: "tidewire-ts/0.1.0",
  marks: false,
};

/** Where clients connect: one address, or several by `endpoints()` of `@tidewire/client/endpoints`. */
export type Target = string | URL | EndpointList;

/** Fills in the defaults. Throws `INVALID_OPTION`, in development also for an unknown name or a wrong value. */
export function resolveOptions(target: Target, options: ClientOptions): ResolvedOptions {
  const { reconnect, ...rest } = options;
  const endpoints = typeof target === "object" && "urls" in target ? target : undefined;
  const resolved: ResolvedOptions = {
    ...defaults,
    ...given(rest),
    urls: endpoints?.urls ?? [addressOf(String(target))],
    endpoints,
    reconnect: reconnect === false ? undefined : { ...defaultReconnect, ...given(reconnect ?? {}) },
  };
  checkClient(options, resolved);
  return resolved;
}

/** The address of a WebSocket. */
export function addressOf(address: string): string {
  try {
    const text = webSocket(address);
    const { href } = new URL(text, globalThis.location && webSocket(location.href));
    // React Native's URL can be read alone, and puts a slash behind every path.
    if (/^ws/.test(href)) return href === `${text}/` ? text : href;
  } catch {}
  // A password of what cannot be read may contain anything.
  const shown = DEVELOPMENT && JSON.stringify(withoutSecrets(address.replace(/.*@/s, "***@")));
  throw invalid(DEVELOPMENT && `${shown} is not an address such as "wss://example.org/ws"`);
}

/** A text without the passwords and queries of addresses, which may be tokens, and without `secret`. */
export function withoutSecrets(text: string, secret?: string): string {
  return (secret ? text.replaceAll(secret, "***") : text).replace(
    /(\/\/)[^\s/]*(@)|(\?)[^\s"']*/g,
    "$1$3***$2",
  );
}

/** An address as a WebSocket has it: with its scheme, and without a fragment. */
function webSocket(address: string): string {
  return address.replace(/^http/i, "ws").replace(/#.*/, "");
}

export function invalid(message: string | false): TidewireError {
  return new TidewireError("INVALID_OPTION", message, "application");
}

/** The fields that are not undefined. */
export function given<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as never;
}
