/** Builds the program once for all tests, as its processes are real ones. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildBench } from "../build.js";

/** Where the tests find the program. */
export const PROGRAM_VARIABLE = "TIDEWIRE_BENCH_TS_BUILT";

export default async function setup(): Promise<() => void> {
  const folder = mkdtempSync(join(tmpdir(), "tidewire-bench-ts-"));
  await buildBench(folder, true);
  process.env[PROGRAM_VARIABLE] = folder;
  return () => rmSync(folder, { recursive: true });
}
