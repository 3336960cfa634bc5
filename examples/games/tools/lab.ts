/** Runs `tidewire load` and reads its report. */

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** Times in microseconds. */
export interface Latency {
  min: number;
  mean: number;
  p50: number;
  p95: number;
  p99: number;
  max: number;
}

/** The part of a report that is used here (docs/report-format.md). */
export interface LoadResult {
  connected: number;
  failed: number;
  duration_s: number;
  latency_us: Latency;
  requests: { sent: number; succeeded: number; failed: number };
  connecting: { opened: number; failed: number; peak: number; latency_us: Latency };
  received: { messages: number; per_s: number };
  assessment: { word: string };
  cpu: { client_s: number; server_s?: number };
  memory?: {
    server_rss_bytes?: number;
    server_rss_min_bytes?: number;
    server_rss_peak_bytes?: number;
    per_connection_bytes?: number;
    client_rss_bytes?: number;
    client_per_connection_bytes?: number;
  };
  resources_over_time?: { client_rss_bytes?: number; server_rss_bytes?: number }[];
  verdict: string;
  notes: string[];
}

/** The program: `TIDEWIRE_PROGRAM`, or that of this repository; throws if there is none. */
export function program(): string {
  const own = (profile: string) =>
    fileURLToPath(new URL(`../../../target/${profile}/tidewire`, import.meta.url));
  const places = [process.env.TIDEWIRE_PROGRAM, own("release")];
  const found = places.find((place) => place !== undefined && existsSync(place));
  if (found === undefined)
    throw new Error("there is no tidewire program; build it: cargo build --release -p tidewire-cli");
  return found;
}

/** Runs a load; `prefix` is a command before it, such as `taskset -c 1`. */
export async function runLoad(args: string[], prefix: string[] = []): Promise<LoadResult> {
  const [command, ...rest] = [...prefix, program(), "load", ...args, "--quiet", "--json"];
  const child = spawn(command ?? "", rest, { stdio: ["ignore", "pipe", "pipe"] });
  let output = "";
  let problems = "";
  child.stdout.on("data", (bytes: Buffer) => {
    output += bytes.toString();
  });
  child.stderr.on("data", (bytes: Buffer) => {
    problems += bytes.toString();
  });
  await new Promise<void>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", () => resolve());
  });
  let report: { results: LoadResult[] };
  try {
    report = JSON.parse(output) as typeof report;
  } catch {
    throw new Error(`tidewire load has failed: ${problems || output}`);
  }
  const result = report.results[0];
  if (!result) throw new Error(`tidewire load has no result: ${problems}`);
  return result;
}

/** The arguments of spectators, who watch topics and ask for a room now and then. */
export function spectators(options: {
  url: string;
  token: string;
  connections: number;
  rampPerS: number;
  messagesPerS: number;
  durationS: number;
  /** The topic, or a template of it. */
  topic: string;
  room: string;
  serverPid?: number;
}): string[] {
  const subscription = { t: "subscription_update", p: { action: "subscribe", topics: [options.topic] } };
  const question = {
    t: "call_request",
    cid: "{{uuid}}",
    p: { type: "room", payload: { room: options.room } },
  };
  return [
    options.url,
    ...["--connections", String(options.connections)],
    ...(options.rampPerS > 0 ? ["--ramp-per-s", String(options.rampPerS)] : []),
    ...["--messages-per-s", String(options.messagesPerS)],
    ...["--duration-s", String(options.durationS)],
    ...["--header", `Authorization: Bearer ${options.token}`],
    ...["--subscribe", JSON.stringify(subscription)],
    ...["--message", JSON.stringify(question)],
    ...["--reply", "field:cid"],
    "--memory",
    ...(options.serverPid === undefined ? [] : ["--server-pid", String(options.serverPid)]),
  ];
}
