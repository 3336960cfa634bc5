/** Processor time of the generator and of the server, as shares of what each could have had. */

/** Processor time of one side. */
export interface Side {
  /** Seconds of the thread that was busiest: others that idle do not help it. */
  busiestS: number;
  /** Seconds of all threads. */
  totalS: number;
  /** Cores that it may use. */
  cores: number;
}

/** Processor time of both sides in one test. */
export interface Usage {
  durationS: number;
  client: Side;
  /** `undefined` when the server is elsewhere or cannot be seen. */
  server: Side | undefined;
  /** Cores that both may use. */
  sharedCores: number;
}

export type Bottleneck = "server" | "client" | "both" | "none";

/** The share from which a side counts as saturated: the last tenth is left for the ramps at both ends of a test. */
export const SATURATED_SHARE = 0.9;

/** Of one core by the busiest thread, or of all cores by all threads, whichever is more. */
function shareOf(side: Side, durationS: number): number {
  if (durationS <= 0) return 0;
  return Math.max(side.busiestS / durationS, side.totalS / (durationS * Math.max(1, side.cores)));
}

export function clientShare(usage: Usage): number {
  return shareOf(usage.client, usage.durationS);
}

export function serverShare(usage: Usage): number | undefined {
  return usage.server === undefined ? undefined : shareOf(usage.server, usage.durationS);
}

/** Which side was saturated. Two sides that share cores and fill them together are both the limit. */
export function bottleneckOf(usage: Usage): Bottleneck {
  const client = clientShare(usage) >= SATURATED_SHARE;
  const server = (serverShare(usage) ?? 0) >= SATURATED_SHARE;
  if (client && server) return "both";
  if (client) return "client";
  if (server) return "server";
  return jointShare(usage) >= SATURATED_SHARE ? "both" : "none";
}

function jointShare(usage: Usage): number {
  const { client, server, sharedCores, durationS } = usage;
  if (server === undefined || sharedCores <= 0 || durationS <= 0) return 0;
  const cores = client.cores + server.cores - sharedCores;
  return cores > 0 ? (client.totalS + server.totalS) / (cores * durationS) : 0;
}
