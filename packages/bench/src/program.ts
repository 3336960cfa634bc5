/** The program: reads the command line, runs the tests and writes the report. */

import { accessSync, constants, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { isIP } from "node:net";
import { networkInterfaces } from "node:os";
import { join } from "node:path";
import type { Run } from "./bench.js";
import { connectionsRoom, runTest } from "./cases.js";
import { commandLine, pingTimeoutOf, planOf, redacted, targetOf } from "./configuration.js";
import { Fleet } from "./fleet.js";
import { backlogMax, listenersOf, machine, openFilesMax, sourcePorts } from "./machine.js";
import { grouped } from "./number.js";
import { type Arguments, help, numberOf, parseArguments, UsageError } from "./options.js";
import { type Plan, type Target, TESTS, type TestName } from "./plan.js";
import { exitCodeOf, type Finding, type Report, tables } from "./report.js";
import { type OwnServer, Server, startServer } from "./server.js";

/** The version of the package. */
export const VERSION = "0.1.0";

const EXIT_FAILED = 1;
const EXIT_USAGE = 2;
const EXIT_INTERRUPTED = 130;
const SAME_SIGNAL_MS = 1000;
/** Tests that run with the first number of connections only. */
const ONCE: readonly TestName[] = ["connection-limit", "connect-latency"];

/** Runs the program; the exit code. */
export async function main(words: readonly string[]): Promise<number> {
  try {
    const given = parseArguments(words);
    if (given.values.has("help")) return print(help(TESTS));
    if (given.values.has("version")) return print(`tidewire-bench-ts ${VERSION}\n`);
    return await bench(given, commandLine(words));
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`tidewire-bench-ts: ${error.message}\n`);
    return EXIT_USAGE;
  }
}

function print(words: string): number {
  process.stdout.write(words);
  return 0;
}

function say(words: string): void {
  process.stderr.write(`${words}\n`);
}

async function bench(given: Arguments, command: string): Promise<number> {
  const plan = planOf(given, connectionsRoom);
  const there = targetOf(given);
  // Before the run and not after it, so that no figure is lost for a mistyped folder.
  const out = given.values.get("out") ?? "tidewire-report";
  tryOut(out);
  const pingTimeoutS = pingTimeoutOf(given.values);
  const startedAt = new Date();
  const own = there === undefined ? await ownServer(given) : undefined;
  const target: Target = there ?? { url: own!.url, profile: "v1", jwtSecret: own!.jwtSecret, pingTimeoutS };
  const fleet = new Fleet(target, plan.processes);
  const stop = () => {
    fleet.stop();
    own?.stop();
  };
  const interruption = interruptible(stop);
  const findings = preflight(plan);
  for (const finding of findings)
    if (!finding.ok) say(`${finding.name}: ${finding.value}. ${finding.hint ?? ""}`);
  const run: Run = {
    plan,
    target,
    fleet,
    server: new Server(
      own === undefined ? rootsOf(given, target) : [own.pid],
      own?.statsUrl ?? given.values.get("stats-url"),
    ),
    results: [],
    serverName: undefined,
    say,
  };
  const reason = await runAll(run, own, interruption);
  stop();
  interruption.end();
  const report: Report = {
    schema: "tidewire-report/1",
    tool: { name: "tidewire", version: VERSION, language: "typescript" },
    started_at: startedAt.toISOString().replace(/\.[0-9]+Z$/, "Z"),
    partial: reason !== undefined,
    ...(reason === undefined ? {} : { partial_reason: reason }),
    machine: machine(),
    target: {
      url: redacted(target.url),
      ...(run.serverName === undefined ? {} : { server: run.serverName }),
      embedded: own !== undefined,
    },
    plan: writtenPlan(plan, target, command),
    preflight: findings,
    results: run.results,
  };
  return publish(report, out, given.values.has("json"), interruption.isInterrupted());
}

/** Runs test after test; why it ended early, if it did. */
async function runAll(
  run: Run,
  own: OwnServer | undefined,
  interruption: Interruption,
): Promise<string | undefined> {
  for (const test of run.plan.tests) {
    for (const connections of ONCE.includes(test) ? run.plan.tiers.slice(0, 1) : run.plan.tiers) {
      try {
        await runTest(run, test, connections);
      } catch (error) {
        if (interruption.isInterrupted()) return `the run was interrupted in ${test}`;
        const end = own?.end() ?? (error instanceof Error ? error.message : String(error));
        return `${end}, in ${test}`;
      }
      if (interruption.isInterrupted()) return `the run was interrupted in ${test}`;
      const end = own?.end();
      if (end !== undefined) return `${end}, in ${test}`;
    }
  }
  return undefined;
}

interface Interruption {
  isInterrupted(): boolean;
  end(): void;
}

/**
 * Ctrl-C and SIGTERM end the run with what was complete; a second one, some time later, ends the program at once. Programs
 * such as `timeout` send the same signal twice.
 */
function interruptible(stop: () => void): Interruption {
  let interruptedMs: number | undefined;
  const onSignal = () => {
    stop();
    const nowMs = performance.now();
    if (interruptedMs !== undefined && nowMs - interruptedMs > SAME_SIGNAL_MS) process.exit(EXIT_INTERRUPTED);
    interruptedMs ??= nowMs;
  };
  process.on("SIGINT", onSignal);
  process.on("SIGTERM", onSignal);
  return {
    isInterrupted: () => interruptedMs !== undefined,
    end: () => {
      process.off("SIGINT", onSignal);
      process.off("SIGTERM", onSignal);
    },
  };
}

async function ownServer(given: Arguments): Promise<OwnServer> {
  const program = given.values.get("server-program") ?? process.env.TIDEWIRE_PROGRAM ?? "tidewire";
  const shards = given.values.get("server-shards");
  const count = shards === undefined ? undefined : numberOf("server-shards", shards, 1, 1024);
  try {
    return await startServer(program, count);
  } catch (error) {
    const words = error instanceof Error ? error.message : String(error);
    throw new UsageError(`${program}: ${words}; name the program with --server-program, or give a URL`);
  }
}

/** The processes of a server that is on this machine. */
function rootsOf(given: Arguments, target: Target): number[] {
  const pid = given.values.get("server-pid");
  if (pid !== undefined) return [numberOf("server-pid", pid, 1)];
  const url = new URL(target.url);
  const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
  const own = Object.values(networkInterfaces()).flatMap((list) => list?.map((one) => one.address) ?? []);
  const isHere =
    host === "localhost" || (isIP(host) !== 0 && (host.startsWith("127.") || own.includes(host)));
  const port = url.port === "" ? (url.protocol === "wss:" ? 443 : 80) : Number(url.port);
  return isHere ? listenersOf(port).filter((one) => one !== process.pid) : [];
}

function preflight(plan: Plan): Finding[] {
  const most = Math.max(...plan.tiers);
  const each = Math.ceil(most / plan.processes);
  const files = openFilesMax();
  const found = [finding("open files", files, each + 64, "Raise `ulimit -n`, or use --processes.")];
  found.push(finding("source ports", sourcePorts(), most, "Widen net.ipv4.ip_local_port_range."));
  const backlog = backlogMax();
  if (backlog !== undefined)
    found.push(finding("backlog", backlog, Math.min(most, 4096), "Raise net.core.somaxconn."));
  return found;
}

function finding(name: string, value: number, wanted: number, hint: string): Finding {
  const ok = value >= wanted;
  const shown = Number.isFinite(value) ? grouped(value) : "unlimited";
  return { name, value: shown, wanted: grouped(wanted), ok, ...(ok ? {} : { hint }) };
}

function writtenPlan(plan: Plan, target: Target, command: string): Record<string, unknown> {
  const pace =
    plan.ratePerS === undefined
      ? "as fast as the server takes it"
      : `${plan.ratePerS} messages a second, evenly`;
  return {
    profile: target.profile,
    tests: plan.tests,
    connection_tiers: plan.tiers,
    pace,
    duration_s: plan.durationS,
    hold_s: plan.holdS,
    pings_per_connection: plan.pings,
    threads: plan.processes,
    command,
  };
}

/** Makes sure that a report can be written to a folder. @throws {UsageError} */
function tryOut(out: string): void {
  try {
    mkdirSync(out, { recursive: true });
    accessSync(out, constants.W_OK);
  } catch (error) {
    throw new UsageError(`--out: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Prints the tables, or the report itself, and writes the file. */
function publish(report: Report, out: string, asJson: boolean, isInterrupted: boolean): number {
  const written = `${JSON.stringify(report, undefined, 2)}\n`;
  const shown = asJson ? process.stderr : process.stdout;
  // The measurements are printed first: they must not be lost because a disk is full.
  shown.write(`\n${tables(report)}`);
  if (asJson) process.stdout.write(written);
  const file = join(out, "report.json");
  try {
    writeFileSync(`${file}.new`, written);
    renameSync(`${file}.new`, file);
  } catch (error) {
    say(`tidewire-bench-ts: the report, which is printed above, cannot be saved: ${String(error)}`);
    return EXIT_FAILED;
  }
  shown.write(`report: ${file} (\`tidewire report\` shows it and makes pages of it)\n`);
  const code = exitCodeOf(report.results, isInterrupted);
  return report.partial && code === 0 ? EXIT_FAILED : code;
}
