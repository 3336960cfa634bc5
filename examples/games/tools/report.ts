/** The lines of `npm run load`. */

import type { LoadResult } from "./lab.js";

const LINE = 18;

/** A report in lines of text. */
export function reportLines(result: LoadResult, isWeighed: boolean): string[] {
  const { connecting, requests, received, duration_s: seconds, assessment } = result;
  const line = (name: string, text: string) => `${name.padEnd(LINE)}${text}`;
  const rate = (count: number) => `${count} (${(count / seconds).toFixed(1)}/s)`;
  const latency = ({ min, mean, p50, p95, p99, max }: typeof connecting.latency_us) =>
    `min ${ms(min)}  mean ${ms(mean)}  p50 ${ms(p50)}  p95 ${ms(p95)}  p99 ${ms(p99)}  max ${ms(max)}`;
  const lines = [
    line("connected", `${connecting.opened}`),
    line("failed", `${connecting.failed}`),
    line("peak active", `${connecting.peak}`),
    line("connect latency", latency(connecting.latency_us)),
    line("sent", rate(requests.sent)),
    line("answered", `${rate(requests.succeeded)}, ${requests.failed} failed`),
    line("answer latency", latency(result.latency_us)),
    line("received", rate(received.messages)),
  ];
  if (isWeighed) lines.push(...memoryLines(result).map(([name, text]) => line(name, text)));
  lines.push(line("assessment", assessment.word));
  if (result.verdict !== "valid") lines.push(line("verdict", [result.verdict, ...result.notes].join(": ")));
  return lines;
}

function memoryLines({ memory, resources_over_time: samples = [] }: LoadResult): [string, string][] {
  const own = samples.flatMap(({ client_rss_bytes: bytes }) => (bytes === undefined ? [] : [bytes]));
  const lines: [string, string][] = [];
  if (own.length > 0 && memory?.client_per_connection_bytes !== undefined)
    lines.push([
      "memory, client",
      memoryText(Math.min(...own), Math.max(...own), memory.client_per_connection_bytes),
    ]);
  const { server_rss_min_bytes: min, server_rss_peak_bytes: max, per_connection_bytes: each } = memory ?? {};
  if (min !== undefined && max !== undefined && each !== undefined)
    lines.push(["memory, server", memoryText(min, max, each)]);
  return lines;
}

function memoryText(min: number, max: number, each: number): string {
  return `min ${mib(min)}  max ${mib(max)}  ${(each / 1024).toFixed(1)} KiB for each connection`;
}

export function ms(us: number): string {
  return `${(us / 1000).toFixed(2)} ms`;
}

function mib(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}
