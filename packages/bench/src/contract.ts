/** The orders of the worker contract, as far as this worker reads them. `docs/worker-contract.md` describes them. */

export const CONTRACT = 1;

/** The terms of a test. */
export interface Begin {
  contract: number;
  zero_clock_ns: number;
  url: string;
  profile: "v1" | "raw";
  layer: string;
  cookie_name?: string;
  authorities_pem?: string;
  /** Addresses to connect from, in turn. */
  sources?: string[];
  seed: number;
  connect_timeout_ms: number;
  pong_timeout_ms: number;
  barrier_timeout_ms: number;
  close_timeout_ms: number;
}

/** Connections to open, or to open again and again. */
export interface Open {
  first: number;
  end: number;
  step: number;
  in_flight: number;
  encoding: Encoding;
  tokens?: string[];
  rounds?: number;
  longest_ms?: number;
}

/** How a message is written. */
export type Encoding = "json" | "msgpack" | "zlib";

/** The messages of an activity. */
export interface MessageKind {
  json_bytes: number;
  encoding: Encoding;
  content: "trade" | "trades";
}

/** An activity of the open connections. */
export interface Run {
  activity: "hold" | "pings" | "blast" | "paced" | "window" | "subscribe" | "fan_out";
  begin_ns: number;
  longest_ms?: number;
  members: number[];
  index: number;
  ping_every_ms: number;
  per_connection?: number;
  message: MessageKind;
  per_s?: number;
  poisson?: boolean;
  replies?: boolean;
  in_flight?: number;
  publisher: number;
  publishes: boolean;
  message_bytes: number;
  milestone_every: number;
}

/** Orders that a worker handles at any time. */
export interface Asides {
  clock(order: { id: number }): void;
  stop(): void;
  abandon(): void;
  progress(order: { received: number }): void;
  published(order: { publications: number }): void;
}
