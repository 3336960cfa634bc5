// Runs a program: `node run.js server|load|bench [OPTIONS]`. TypeScript is bundled first, with the sources
// of the client, so that nothing else has to be built; other packages stay outside.
import { rmSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build, stop } from "esbuild";

const programs = { server: "src/server/main.ts", load: "tools/load.ts", bench: "tools/bench.ts" };
const here = fileURLToPath(new URL(".", import.meta.url));
const client = fileURLToPath(new URL("../../packages/client/src/", import.meta.url));
const name = process.argv[2];
if (!Object.hasOwn(programs, name)) {
  console.error(`games: there is no program ${name}; there are ${Object.keys(programs).join(", ")}`);
  process.exit(2);
}
const outfile = `${here}dist/${name}-${process.pid}.js`;
await build({
  entryPoints: [`${here}${programs[name]}`],
  outfile,
  bundle: true,
  platform: "node",
  target: "node20",
  format: "esm",
  packages: "external",
  alias: {
    "@tidewire/client": `${client}index.ts`,
    "#transport": `${client}transport/default-node.ts`,
    "#development": `${client}development/on.ts`,
  },
  // Paths of the program count from its source, not from the bundle.
  define: { "import.meta.url": JSON.stringify(pathToFileURL(`${here}${programs[name]}`).href) },
});
// Its process would stay as long as the program runs.
await stop();
const remove = () => rmSync(outfile, { force: true });
process.on("exit", remove);
await import(outfile);
remove();
