/** The program as tests run it: built from the sources, with the client's code in it. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const source = (path: string) => fileURLToPath(new URL(path, import.meta.url));

/** A folder with the program in it. */
export async function buildProgram(): Promise<string> {
  const outdir = await mkdtemp(join(tmpdir(), "tidewire-bench-ts-"));
  await build({
    entryPoints: ["main", "worker"].map((name) => source(`../src/${name}.ts`)),
    bundle: true,
    platform: "node",
    target: "node20",
    format: "esm",
    outdir,
    alias: { "@tidewire/client/node": source("../../client/src/node.ts") },
    logLevel: "warning",
  });
  return outdir;
}

/** Removes that folder with everything that tests have put into it. */
export async function removeProgram(folder: string): Promise<void> {
  await rm(folder, { recursive: true, force: true });
}
