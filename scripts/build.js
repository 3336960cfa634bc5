// Builds each package: types and ES modules by tsc, CommonJS beside them, and one file for pages without a bundler.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const only = process.argv.slice(2);
// React builds on the client, and the bench on both.
const order = ["client", "react", "bench"];
const names = readdirSync("packages").filter((name) => existsSync(`packages/${name}/tsconfig.json`));
names.sort((a, b) => order.indexOf(a) - order.indexOf(b));

for (const name of names) {
  if (only.length && !only.includes(name)) continue;
  const dir = `packages/${name}`;
  rmSync(`${dir}/dist`, { recursive: true, force: true });
  const tsc = (...args) =>
    execFileSync("node_modules/.bin/tsc", ["-p", dir, ...args], { stdio: ["ignore", "inherit", "inherit"] });
  tsc();
  if (name === "bench") continue;
  mkdirSync(`${dir}/dist/cjs`, { recursive: true });
  writeFileSync(`${dir}/dist/cjs/package.json`, `${JSON.stringify(commonJsPackage(dir), undefined, 2)}\n`);
  await toCommonJs(dir);
  if (name === "client") await forPages(dir);
}

/** The description of the CommonJS files: the nearest one counts, so that it repeats the imports of the package's. */
function commonJsPackage(dir) {
  const { imports } = JSON.parse(readFileSync(`${dir}/package.json`, "utf8"));
  const own = Object.entries(imports ?? {}).map(([name, conditions]) => [
    name,
    Object.fromEntries(
      Object.entries(conditions).map(([condition, { require: path }]) => [
        condition,
        path.replace("dist/cjs/", ""),
      ]),
    ),
  ]);
  return { type: "commonjs", ...(own.length ? { imports: Object.fromEntries(own) } : {}) };
}

/** CommonJS beside the ES modules, file by file, so that all entry points share their modules. */
async function toCommonJs(dir) {
  const entryPoints = readdirSync(`${dir}/dist/esm`, { recursive: true }).filter((file) =>
    file.endsWith(".js"),
  );
  await build({
    entryPoints: entryPoints.map((file) => `${dir}/dist/esm/${file}`),
    outdir: `${dir}/dist/cjs`,
    outbase: `${dir}/dist/esm`,
    format: "cjs",
    target: "es2022",
    platform: "neutral",
    logLevel: "warning",
  });
  execFileSync("sh", [
    "-c",
    `cd ${dir}/dist/esm && find . -name '*.d.ts' | cpio --quiet -pdm ../cjs 2>/dev/null || (cd ../esm && find . -name '*.d.ts' -exec cp --parents {} ../cjs \\;)`,
  ]);
}

/** One minified ES module for `<script type="module">`. */
async function forPages(dir) {
  await build({
    entryPoints: [`${dir}/dist/esm/index.js`],
    outfile: `${dir}/dist/tidewire.min.js`,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    conditions: ["browser"],
    logLevel: "warning",
  });
}
