/** Options of a client: names, units, defaults, and the check that refuses unknown ones. */

import { defaultReconnect, type ReconnectPolicy } from "./core/backoff.js";
import { type BreakerOptions, defaultBreaker } from "./core/breaker.js";
import type { Compression, Encryption, Format, Signing } from "./core/layers.js";
import type { QueuePort } from "./core/queue-port.js";
import { TidewireError } from "./errors.js";
import type { ClientEvents } from "./events.js";
import type { Transport } from "./transport.js";

/** One address of the service. */
export interface Endpoint {
  /** Such as `wss://a.example.com/ws`. In a page it may be relative to the page. */
  url: string;
  /** How much of the load it gets, relative to the others. Default 1. */
  weight?: number;
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
  /** How the next of several endpoints is chosen. Default `weighted`, by weight and health. */
  choice?: "weighted" | "least_connections" | "round_robin";
  /** The circuit breaker of each endpoint. Default 5 failures, open for 30,000 ms, 1 trial. */
  breaker?: Partial<BreakerOptions>;
  /** When a lost connection is opened again; `false` for never. */
  reconnect?: ReconnectOptions | false;
  /** How long a connection may take until `server_hello`. Default 10,000. */
  connectTimeoutMs?: number;
  /** How long an answer may take. Default 10,000. */
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
  /** How long a publication that comes before its turn waits for those before it. Default 5,000. */
  reorderWindowMs?: number;
  /** Whether the client stays 10 % below the rate limit that the server announces. Default true. */
  rateLimit?: boolean;
  /**
   * Whether the client asks for less when the network is poor or the user saves data: half as many pings, half the rate
   * of its own messages, and `conflate` for subscriptions without `recover`. Looked at for each connection. Default true.
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
  /** The client has a connection of its own, and why: it is told by the event `degraded`. */
  degraded(reason: string): void;
}

/** One connection for several clients of an origin. */
export interface SharedPort {
  /**
   * A transport that leads to the shared connection; `base` opens that connection. Layers that only the shared connection
   * has are taken out of `options`.
   */
  transport(base: Transport, options: ResolvedOptions, host: SharedHost): Transport;
}

type Optional =
  | "on"
  | "format"
  | "compression"
  | "encryption"
  | "signing"
  | "queue"
  | "shared"
  | "transport"
  | "signal"
  | "log"
  | "token"
  | "tokenPlacement";

/** Options with their defaults. */
export type ResolvedOptions = Required<Omit<ClientOptions, Optional | "reconnect" | "breaker">> &
  Pick<ClientOptions, Optional> & {
    endpoints: Required<Endpoint>[];
    reconnect: ReconnectPolicy | undefined;
    breaker: BreakerOptions;
  };

/** The defaults of options that have one. `options/client.json` of the repository has them too. */
export const defaults = {
  protocols: [] as string[],
  headers: {} as Record<string, string>,
  choice: "weighted" as const,
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

/** Options without a default. */
export const optional: readonly Optional[] = [
  "on",
  "format",
  "compression",
  "encryption",
  "signing",
  "queue",
  "shared",
  "transport",
  "signal",
  "log",
  "token",
  "tokenPlacement",
];

/** Where clients connect: one address, or several. */
export type Target = string | URL | Endpoint | readonly (string | URL | Endpoint)[];

/** Fills in the defaults. Throws `INVALID_OPTION` for an unknown name or a wrong value. */
export function resolveOptions(target: Target, options: ClientOptions): ResolvedOptions {
  checkNames("", options, [...Object.keys(defaults), ...optional, "reconnect", "breaker"]);
  const { reconnect, breaker = {}, ...rest } = options;
  checkNames("breaker.", breaker, Object.keys(defaultBreaker));
  if (reconnect) checkNames("reconnect.", reconnect, Object.keys(defaultReconnect));
  const targets = Array.isArray(target) ? target : [target];
  if (!targets.length) throw invalid("there must be at least one endpoint");
  const resolved: ResolvedOptions = {
    ...defaults,
    ...withoutUndefined(rest),
    endpoints: targets.map(resolveEndpoint),
    reconnect:
      reconnect === false ? undefined : { ...defaultReconnect, ...withoutUndefined(reconnect ?? {}) },
    breaker: { ...defaultBreaker, ...withoutUndefined(breaker) },
  };
  for (const [name, value] of [
    ...Object.entries(resolved),
    ...Object.entries(resolved.reconnect ?? {}),
    ...Object.entries(resolved.breaker),
  ]) {
    if (/(Ms|Max)$/.test(name) && !(typeof value === "number" && value >= 0)) {
      throw invalid(`${name} must be a number from 0 on, not ${String(value)}`);
    }
  }
  // With one endpoint there is no other to go to: the back-off alone says how often to try.
  if (resolved.endpoints.length === 1 && resolved.reconnect) {
    resolved.breaker.openMs = Math.min(resolved.breaker.openMs, resolved.reconnect.maxMs);
  }
  return resolved;
}

function resolveEndpoint(target: string | URL | Endpoint): Required<Endpoint> {
  const { url: address, weight = 1 } =
    typeof target === "string" || target instanceof URL ? { url: String(target) } : target;
  let url: URL;
  try {
    url = new URL(address, globalThis.location?.href);
  } catch {
    throw invalid(`${JSON.stringify(address)} is not an address such as "wss://example.org/ws"`);
  }
  url.protocol = url.protocol.replace("http", "ws");
  if (!/^wss?:$/.test(url.protocol)) throw invalid(`${address} must begin with ws:// or wss://`);
  if (!(weight >= 1)) throw invalid(`the weight of ${address} must be at least 1`);
  url.hash = "";
  return { url: url.href, weight };
}

/** Refuses a name that is not among `known`, and names the nearest one. */
export function checkNames(prefix: string, value: object, known: readonly string[]): void {
  for (const name of Object.keys(value)) {
    if (known.includes(name)) continue;
    const nearest = known.reduce((best, other) =>
      distance(name, other) < distance(name, best) ? other : best,
    );
    const hint = distance(name, nearest) <= 1 + name.length / 3 ? `; did you mean ${prefix}${nearest}?` : "";
    throw invalid(`there is no option ${prefix}${name}${hint}`);
  }
}

function invalid(message: string): TidewireError {
  return new TidewireError("INVALID_OPTION", message, { fault: "application" });
}

function withoutUndefined<T extends object>(value: T): { [K in keyof T]: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, field]) => field !== undefined)) as never;
}

/** The Levenshtein distance of two names, in lower case. */
function distance(left: string, right: string): number {
  const [a, b] = [left.toLowerCase(), right.toLowerCase()];
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length]!;
}
