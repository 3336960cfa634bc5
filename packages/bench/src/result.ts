/** One entry of a report's `results`, with the fields that this program writes (docs/report-format.md). */

import type { Tally } from "./account.js";
import type { Latency } from "./histogram.js";
import type { Bottleneck } from "./usage.js";
import type { Verdict } from "./verdict.js";

export interface Result {
  test: string;
  connections: number;
  connected?: number;
  failed?: number;
  duration_s?: number;
  format?: string;
  payload_bytes?: number;
  wire_bytes?: number;
  pace?: Record<string, string | number | boolean>;
  messages?: Record<string, number>;
  confirmed_by?: string[];
  refused_by?: Tally;
  pings?: { sent: number; lost: number; strange: number };
  rate_per_s?: number;
  ratio_to_json?: number;
  bytes_per_s?: number;
  rate_series?: number[];
  latency_us?: Latency;
  survival?: { survived: number; percent: number };
  limit?: { largest_stable: number; stopped_by: string };
  fan_out?: Record<string, unknown>;
  processes?: Processes;
  cpu?: Record<string, number>;
  memory?: Record<string, number>;
  generator?: Record<string, unknown>;
  bottleneck?: Bottleneck;
  verdict: Verdict;
  doubts?: string[];
  notes: string[];
}

/** How a rate is divided among the processes of the generator. */
export interface Processes {
  count: number;
  /** The rate of each; their sum is `rate_per_s`. */
  rates_per_s: number[];
  mean_per_s: number;
  /** The rate of one process alone, with its share of the connections. */
  alone_per_s?: number;
  /** The sum as a percentage of what as many processes would reach if each did as well as one alone. */
  scaling_percent?: number;
}

/** The fields of an object that are not `undefined`. */
export function known<Fields extends object>(
  fields: Fields,
): { [Name in keyof Fields]: Exclude<Fields[Name], undefined> } {
  const entries = Object.entries(fields).filter(([, value]) => value !== undefined);
  return Object.fromEntries(entries) as { [Name in keyof Fields]: Exclude<Fields[Name], undefined> };
}
