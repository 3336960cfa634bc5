/** The report (docs/report-format.md) and its tables. */

import { grouped } from "./number.js";
import type { Result } from "./result.js";
import type { Verdict } from "./verdict.js";

export interface Report {
  schema: "tidewire-report/1";
  tool: { name: string; version: string; language: string };
  started_at: string;
  partial: boolean;
  partial_reason?: string;
  machine: Record<string, string | number>;
  target: { url: string; server?: string; embedded: boolean };
  plan: Record<string, unknown>;
  preflight: Finding[];
  results: Result[];
}

/** A check before the run. */
export interface Finding {
  name: string;
  value: string;
  wanted: string;
  ok: boolean;
  hint?: string;
}

const EXIT_CODES: Record<Verdict, number> = { valid: 0, failed: 1, generator_bound: 3, noisy: 4 };
/** Of several exit codes the first one of these counts. */
const EXIT_ORDER = [130, 2, 1, 3, 4];

/** The exit code of a report. */
export function exitCodeOf(results: readonly Result[], isInterrupted: boolean): number {
  const codes = results.map((result) =>
    result.doubts?.includes("connections_impossible") ? 2 : EXIT_CODES[result.verdict],
  );
  if (isInterrupted) codes.push(130);
  else if (results.length === 0) codes.push(1);
  return EXIT_ORDER.find((code) => codes.includes(code)) ?? 0;
}

const COLUMNS = [
  "test",
  "connections",
  "format",
  "payload",
  "rate/s",
  "p50 µs",
  "p99 µs",
  "limit",
  "verdict",
];
const LEFT = new Set([0, 2, 7, 8]);

/** The results as a table, with what speaks against each below it. */
export function tables(report: Report): string {
  const rows = [COLUMNS, ...report.results.map(row)];
  const widths = COLUMNS.map((_, column) => Math.max(...rows.map((cells) => cells[column]!.length)));
  const lines = rows.map((cells) =>
    cells
      .map((cell, column) =>
        LEFT.has(column) ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!),
      )
      .join("  ")
      .trimEnd(),
  );
  const notes = report.results.flatMap((result) =>
    result.notes.map((note) => `${result.test}, ${result.connections} connections: ${note}`),
  );
  const partial = report.partial
    ? [`The report is partial: ${report.partial_reason ?? "it was ended early"}.`]
    : [];
  return [...lines, ...(notes.length > 0 ? ["", ...notes] : []), ...partial, ""].join("\n");
}

function row(result: Result): string[] {
  const rate = result.rate_per_s ?? result.limit?.largest_stable;
  return [
    result.test,
    grouped(result.connections),
    result.format ?? "",
    result.payload_bytes === undefined ? "" : `${grouped(result.payload_bytes)} B`,
    rate === undefined ? "" : result.limit === undefined ? grouped(rate) : `largest ${grouped(rate)}`,
    result.latency_us === undefined ? "" : grouped(result.latency_us.p50),
    result.latency_us === undefined ? "" : grouped(result.latency_us.p99),
    result.bottleneck ?? "",
    result.verdict,
  ];
}
