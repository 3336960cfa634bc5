/** The program as tests run it: a process with its output, its report and everything that it has started. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { program } from "../../client/test/node/engine.js";

export interface Running {
  readonly process: ChildProcess;
  /** The output on standard error so far. */
  errors(): string;
  /** Resolves at its end. */
  readonly end: Promise<Ended>;
  /** Processes that it has started and that live, without itself. */
  children(): number[];
}

export interface Ended {
  code: number | null;
  output: string;
  errors: string;
  /** The report, if there is one. */
  // biome-ignore lint/suspicious/noExplicitAny: tests look into the report as its readers do
  report: any;
  reportFile: string;
}

let folder = "";

/** Names the folder of the program; see {@link buildProgram}. */
export function useProgram(built: string): void {
  folder = built;
}

/** Starts the program with these options and a folder of its own for the report. */
export function start(...options: string[]): Running {
  const out = mkdtempSync(join(folder, "report-"));
  const child = spawn(process.execPath, [join(folder, "main.js"), "--out", out, ...options], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, TIDEWIRE_PROGRAM: program() },
  });
  let output = "";
  let errors = "";
  child.stdout.on("data", (bytes: Buffer) => {
    output += bytes.toString();
  });
  child.stderr.on("data", (bytes: Buffer) => {
    errors += bytes.toString();
  });
  const reportFile = join(out, "report.json");
  const end = new Promise<Ended>((resolve) => {
    child.once("close", (code) => {
      const report = existsSync(reportFile) ? JSON.parse(readFileSync(reportFile, "utf8")) : undefined;
      resolve({ code, output, errors, report, reportFile });
    });
  });
  const children = () => descendants(child.pid!).filter(isAlive);
  return { process: child, errors: () => errors, end, children };
}

/** Everything that a process has started, and what that has started. */
function descendants(root: number): number[] {
  const parents = new Map<number, number>();
  for (const name of readdirSync("/proc").filter((one) => /^[0-9]+$/.test(one))) {
    parents.set(Number(name), parentOf(name));
  }
  const found = [root];
  for (const pid of found)
    found.push(...[...parents].filter(([, one]) => one === pid).map(([child]) => child));
  return found.slice(1);
}

function parentOf(pid: string): number {
  try {
    return Number(/^PPid:\s+([0-9]+)/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1] ?? 0);
  } catch {
    return 0;
  }
}

/** Runs the program to its end. */
export function run(...options: string[]): Promise<Ended> {
  return start(...options).end;
}

/** Whether a process runs; one that has ended and was not waited for does not. */
export function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"));
  } catch {
    return false;
  }
}

/** Waits until a condition holds, without a limit but that of the test. */
export async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 5));
}
