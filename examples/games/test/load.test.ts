/** `npm run load` against a server on the package `tidewire`. */

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type LoadResult, program } from "../tools/lab.js";
import { reportLines } from "../tools/report.js";
import { TestServer, tidewire } from "./support.js";

/** Whether there is a `tidewire` program to load with. */
function hasProgram(): boolean {
  try {
    program();
    return true;
  } catch (error) {
    console.warn(`no tests of npm run load: ${(error as Error).message}`);
    return false;
  }
}

function load(...args: string[]): Promise<{ code: unknown; stdout: string; stderr: string }> {
  const run = fileURLToPath(new URL("../run.js", import.meta.url));
  return new Promise((resolve) => {
    execFile(process.execPath, [run, "load", ...args], (error, stdout, stderr) =>
      resolve({ code: error?.code ?? 0, stdout, stderr }),
    );
  });
}

describe.skipIf(!tidewire || !hasProgram())("npm run load", () => {
  let server: TestServer;

  beforeAll(async () => {
    server = await TestServer.start();
  });

  afterAll(async () => {
    await server?.stop();
  });

  test("connects spectators, and prints what became of them", async () => {
    const numbers = [
      "--connections",
      "10",
      "--ramp-per-s",
      "20",
      "--messages-per-s",
      "2",
      "--duration-s",
      "2",
    ];
    const { code, stdout, stderr } = await load(
      ...numbers,
      "--memory",
      "--server",
      server.running.site.origin,
    );
    expect(stderr).toBe("");
    const [title, ...lines] = stdout.trimEnd().split("\n");
    expect(title).toBe(`spectators of room 1 on ${server.running.url}`);
    const report = new Map(lines.map((line) => [line.slice(0, 18).trim(), line.slice(18)]));
    const times = ["min", "mean", "p50", "p95", "p99", "max"]
      .map((name) => `${name} \\d+\\.\\d\\d ms`)
      .join("  ");
    expect(report.get("connected")).toBe("10");
    expect(report.get("failed")).toBe("0");
    expect(report.get("peak active")).toBe("10");
    expect(report.get("connect latency")).toMatch(new RegExp(`^${times}$`));
    expect(report.get("answer latency")).toMatch(new RegExp(`^${times}$`));
    expect(report.get("sent")).toMatch(/^[1-9]\d* \([\d.]+\/s\)$/);
    expect(report.get("answered")).toMatch(/^[1-9]\d* \([\d.]+\/s\), 0 failed$/);
    expect(report.get("received")).toMatch(/^\d+ \([\d.]+\/s\)$/);
    expect(report.get("assessment")).toMatch(/^\w/);
    expect(code).toBe(0);
  });

  test("says what is wrong, and ends with 2", async () => {
    const closed = await load("--server", "http://127.0.0.1:1");
    expect(closed.code).toBe(2);
    expect(closed.stderr).toContain("no game server answers on http://127.0.0.1:1; start one: npm start");
    const none = await load("--connections", "0", "--server", server.running.site.origin);
    expect([none.code, none.stderr]).toEqual([2, "games: --connections must be a number above 0, not 0\n"]);
  });
});

const latency = { min: 120, mean: 340.5, p50: 300, p95: 900, p99: 1_000, max: 12_345 };
const MIB = 2 ** 20;

const RESULT: LoadResult = {
  connected: 10,
  failed: 0,
  duration_s: 2,
  latency_us: latency,
  requests: { sent: 41, succeeded: 40, failed: 1 },
  connecting: { opened: 10, failed: 0, peak: 9, latency_us: latency },
  received: { messages: 55, per_s: 27.5 },
  assessment: { word: "good" },
  cpu: { client_s: 0.1 },
  memory: {
    server_rss_min_bytes: 50 * MIB,
    server_rss_peak_bytes: 51 * MIB,
    per_connection_bytes: 8_704,
    client_per_connection_bytes: 1_024,
  },
  resources_over_time: [{ client_rss_bytes: 4 * MIB }, {}, { client_rss_bytes: 5.5 * MIB }],
  verdict: "valid",
  notes: [],
};

test("the report has a line for each figure, and those of memory on request", () => {
  const times = "min 0.12 ms  mean 0.34 ms  p50 0.30 ms  p95 0.90 ms  p99 1.00 ms  max 12.35 ms";
  const lines = [
    "connected         10",
    "failed            0",
    "peak active       9",
    `connect latency   ${times}`,
    "sent              41 (20.5/s)",
    "answered          40 (20.0/s), 1 failed",
    `answer latency    ${times}`,
    "received          55 (27.5/s)",
    "assessment        good",
  ];
  expect(reportLines(RESULT, false)).toEqual(lines);
  const memory = [
    "memory, client    min 4.0 MiB  max 5.5 MiB  1.0 KiB for each connection",
    "memory, server    min 50.0 MiB  max 51.0 MiB  8.5 KiB for each connection",
  ];
  expect(reportLines(RESULT, true)).toEqual([...lines.slice(0, -1), ...memory, "assessment        good"]);
  const bound = { ...RESULT, verdict: "generator_bound", notes: ["one core"] };
  expect(reportLines(bound, false).at(-1)).toBe("verdict           generator_bound: one core");
  // What was not measured has no line.
  expect(reportLines({ ...RESULT, memory: {} }, true)).toEqual(lines);
});
