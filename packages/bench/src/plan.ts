/** Plan of a run: tests, numbers of connections and times. */

/** The tests, in the order in which they run. */
export const TESTS = [
  "connection-storm",
  "connect-latency",
  "ping-latency",
  "throughput",
  "size-matrix",
  "format-comparison",
  "sustained-hold",
  "connection-limit",
  "fan-out",
] as const;

export type TestName = (typeof TESTS)[number];

/** How a message is written. */
export type Format = "json" | "msgpack";

/** The messages of a session: Tidewire's protocol version 1, or nothing but WebSocket pings and messages. */
export type Profile = "v1" | "raw";

/** Which server, and how a connection to it is made. */
export interface Target {
  url: string;
  profile: Profile;
  token?: string;
  jwtSecret?: string;
  cookieName?: string;
  caFile?: string;
  /** How long a ping may be unanswered. */
  pingTimeoutS: number;
}

/** The requested plan. */
export interface Plan {
  tests: TestName[];
  tiers: number[];
  processes: number;
  durationS: number;
  holdS: number;
  holdPingEveryS: number;
  payloadBytes: number[];
  /** Whether messages are encoded once and not made each. */
  isPrepared: boolean;
  /** Publications ahead of the slowest subscriber; without it as many as 64 KiB hold. */
  inFlight: number | undefined;
  ratePerS: number | undefined;
  pings: number;
  rounds: number;
  connectionsMax: number;
  seed: number;
}

/** The part of `total` that one of `parts` gets, so that all together get all of it. */
export function share(total: number, parts: number, index: number): number {
  return Math.floor(total / parts) + (index < total % parts ? 1 : 0);
}

/** The numbers of connections to run with: the usual ones, as far as there is room. */
export function usualTiers(isQuick: boolean, room: number): number[] {
  if (isQuick) return [Math.min(10, room)];
  const usual = [100, 1000, 10_000].filter((tier) => tier <= room);
  return usual.length > 0 ? usual : [Math.max(1, room)];
}
