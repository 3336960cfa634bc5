// The types of loads.

import type { LoadSettings } from "./load-options.js";

export type { LoadSettings };

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

/** The options of a load (docs/load-options.md). */
export interface LoadOptions extends LoadSettings {
  /** Called about twenty times a second. */
  onProgress?: (figures: LoadProgress) => void;
  /** Ends the load early, with a result that is `interrupted`. */
  signal?: AbortSignal;
}

/** The result of a load. `report` has everything (docs/report-format.md). */
export class LoadResult {
  private constructor();
  readonly report: Record<string, any>;
  /** The exit code of `tidewire load`: 0 as expected, 1 failed, 3 the generator was the limit, and more. */
  readonly exitCode: number;
  /** Successful requests or messages in a second. */
  get ratePerS(): number;
  get succeeded(): number;
  get failed(): number;
  /** Whole responses by status. */
  get statuses(): Record<string, number>;
  /** The errors, by name. */
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
