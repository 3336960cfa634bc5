// Runs one of the programs in tools/: `node run.js NAME`. TypeScript is bundled first; packages stay outside.
import { rmSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const here = fileURLToPath(new URL(".", import.meta.url));
const [, , name] = process.argv;
const outfile = `${here}dist/${name}-${process.pid}.js`;
await build({
  entryPoints: [`${here}tools/${name}.ts`],
  outfile,
  bundle: true,
  platform: "node",
  target: "node20",
  format: "esm",
  packages: "external",
  define: { "import.meta.url": JSON.stringify(pathToFileURL(`${here}tools/${name}.ts`).href) },
});
process.on("exit", () => rmSync(outfile));
await import(outfile);
