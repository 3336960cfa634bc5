// Builds each package: types and ES modules by tsc, CommonJS beside them, and one file for pages without a bundler.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";
import { DASHBOARD, dashboardFiles } from "./dashboard.js";

/** The parts of the client that a page can load. */
const PARTS = ["index", "msgpack", "compress", "encrypt", "sign", "queue", "shared", "endpoints"];

const only = process.argv.slice(2);
// React builds on the client, and the bench on both.
const order = ["client", "react", "bench"];
const names = readdirSync("packages").filter((name) => existsSync(`packages/${name}/tsconfig.json`));
names.sort((a, b) => order.indexOf(a) - order.indexOf(b));

for (const name of names) {
  if (only.length && !only.includes(name)) continue;
  const dir = `packages/${name}`;
  if (name === "dashboard") {
    await embed(dir, DASHBOARD);
    continue;
  }
  rmSync(`${dir}/dist`, { recursive: true, force: true });
  const tsc = (...args) =>
    execFileSync("node_modules/.bin/tsc", ["-p", dir, ...args], { stdio: ["ignore", "inherit", "inherit"] });
  tsc();
  if (name === "bench") continue;
  await toCommonJs(dir);
  if (name === "client") await forPages(dir);
}

/** The dashboard's files, which the engine embeds: they are committed, so that `cargo build` needs no npm. */
async function embed(dir, to) {
  for (const [name, contents] of await dashboardFiles(dir)) writeFileSync(`${to}/${name}`, contents);
}

/** CommonJS beside the ES modules, file by file, so that all entry points share their modules. */
async function toCommonJs(dir) {
  const from = `${dir}/dist/esm`;
  const to = `${dir}/dist/cjs`;
  const files = readdirSync(from, { recursive: true });
  await build({
    entryPoints: files.filter((file) => file.endsWith(".js")).map((file) => `${from}/${file}`),
    outdir: to,
    outbase: from,
    format: "cjs",
    target: "es2022",
    platform: "neutral",
    outExtension: { ".js": ".cjs" },
    logLevel: "warning",
  });
  const renamed = (text, call) => text.replace(call, (path) => path.replace(/\.js(?=["'])/, ".cjs"));
  for (const file of readdirSync(to, { recursive: true }).filter((file) => file.endsWith(".cjs"))) {
    const text = readFileSync(`${to}/${file}`, "utf8");
    writeFileSync(`${to}/${file}`, renamed(text, /(?:require|import)\("\.[^"]+\.js"\)/g));
  }
  for (const file of files.filter((file) => file.endsWith(".d.ts"))) {
    const text = readFileSync(`${from}/${file}`, "utf8");
    const own = renamed(text, /(?:from |import\()"\.[^"]+\.js"/g);
    writeFileSync(`${to}/${file.replace(/\.d\.ts$/, ".d.cts")}`, own);
  }
}

/**
 * The build for pages in production: minified, without explanations of errors and checks of options, and with short names
 * for members that are nobody else's. `dist/min` has an entry for each part and what they share, for bundlers;
 * `tidewire.min.js` is one module for `<script type="module">`.
 */
async function forPages(dir) {
  const { names } = JSON.parse(readFileSync(`${dir}/mangle.json`, "utf8"));
  const common = {
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    conditions: ["browser"],
    mangleProps: new RegExp(`^(?:${names.join("|")})$`),
    logLevel: "warning",
  };
  await build({
    ...common,
    entryPoints: PARTS.map((part) => `${dir}/dist/esm/${part}.js`),
    outdir: `${dir}/dist/min`,
    splitting: true,
  });
  await build({
    ...common,
    entryPoints: [`${dir}/dist/esm/index.js`],
    outfile: `${dir}/dist/tidewire.min.js`,
  });
}
