// Builds the program into dist/, or into another folder with the client's code in it:
//
//   node build.js [OUTDIR --with-client]

import { chmodSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));

/** Builds the entry points; with `withClient` the result runs without any package. */
export async function buildBench(outdir, withClient) {
  await build({
    entryPoints: [join(here, "src/main.ts"), join(here, "src/worker.ts"), join(here, "src/serving.ts")],
    bundle: true,
    platform: "node",
    target: "node20",
    format: "esm",
    outdir,
    logLevel: "warning",
    ...(withClient
      ? { alias: { "@tidewire/client/node": join(here, "../client/src/node.ts") } }
      : { external: ["@tidewire/client/*"] }),
  });
  chmodSync(join(outdir, "main.js"), 0o755);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const withClient = process.argv.includes("--with-client");
  const outdir = process.argv.slice(2).find((word) => !word.startsWith("--")) ?? join(here, "dist");
  await buildBench(outdir, withClient);
}
