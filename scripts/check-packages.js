// Checks the built packages as their users meet them: API reports, sizes, `exports`, and types in every kind of project.
// `--write` writes the API reports anew.
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";
import { DASHBOARD, dashboardFiles } from "./dashboard.js";

const write = process.argv.includes("--write");
const packages = readdirSync("packages").filter((name) => existsSync(`packages/${name}/dist/esm`));
/** Kilobytes, minified and gzipped: what nobody may exceed without a decision, and what is aimed at. */
const BUDGET_KB = { core: 18.5, all: 40.5 };
const TARGET_KB = { core: 13, all: 34 };
/** Modules whose declarations stand in the report because others mention them; no program gets their objects. */
const INTERNAL = /^core\/(layers|outbound|pipeline|producer|rate|session|size|subscriptions|topics?)\.d\.ts$/;
/** Modules that have no build for pages, and so no short names. */
const UNMINIFIED = /^testing\//;
/** All files of the dashboard, gzipped. */
const DASHBOARD_KB = 80;
let failures = 0;

for (const name of packages) {
  const dir = `packages/${name}`;
  const manifest = JSON.parse(readFileSync(`${dir}/package.json`, "utf8"));
  apiReport(dir, manifest);
  run(dir, "publint", ["--strict"]);
  if (manifest.exports) run(dir, "attw", ["--pack", "."]);
}
await dashboardIsCurrent();
await size("core", 'export { connect } from "@tidewire/client";');
const parts = ["msgpack", "compress", "encrypt", "sign", "queue", "shared", "endpoints", "quality"];
const all = ["", ...parts.map((part) => `/${part}`)];
await size("all", all.map((part) => `export * from "@tidewire/client${part}";`).join("\n"));
shortNamesAreInternal();
process.exit(failures ? 1 : 0);

/** The committed files of the dashboard are what its sources make, and small. */
async function dashboardIsCurrent() {
  const files = await dashboardFiles();
  for (const [name, contents] of files) {
    const path = `${DASHBOARD}/${name}`;
    if (!existsSync(path) || readFileSync(path, "utf8") !== contents)
      fail(`${path} is not what packages/dashboard makes: run npm run build`);
  }
  const kilobytes = [...files.values()].reduce((sum, text) => sum + gzipSync(text).length, 0) / 1024;
  console.log(`dashboard: ${kilobytes.toFixed(1)} kB gzipped, at most ${DASHBOARD_KB}`);
  if (kilobytes > DASHBOARD_KB) fail("the dashboard is too large");
}

/** Members with short names in the build for pages are none that a program can read. */
function shortNamesAreInternal() {
  const { names } = JSON.parse(readFileSync("packages/client/mangle.json", "utf8"));
  const report = readFileSync("packages/client/api.d.ts.txt", "utf8");
  let file = "";
  for (const line of report.split("\n")) {
    file = /^\/\/ (.+)$/.exec(line)?.[1] ?? file;
    const member = /^\s+(?:(?:readonly|get|set|static) )*(\w+)[?(<:]/.exec(line)?.[1];
    if (names.includes(member) && !INTERNAL.test(file) && !UNMINIFIED.test(file))
      fail(`packages/client/mangle.json has ${member}, which ${file} declares for everybody`);
  }
}

function fail(words) {
  console.error(words);
  failures++;
}

function run(dir, program, args) {
  try {
    execFileSync(resolve(`node_modules/.bin/${program}`), args, { cwd: dir, stdio: "pipe" });
    console.log(`${dir}: ${program} found nothing`);
  } catch (error) {
    fail(`${dir}: ${program}\n${error.stdout}${error.stderr}`);
  }
}

/** The declarations that an entry point reaches, without comments, so that a review sees each change of them. */
function apiReport(dir, manifest) {
  const seen = new Map();
  const visit = (file) => {
    if (seen.has(file)) return;
    const text = readFileSync(file, "utf8");
    seen.set(
      file,
      text
        .replace(/\/\*[\s\S]*?\*\//g, "")
        .replace(/[ \t]+$/gm, "")
        .replace(/^\n/gm, ""),
    );
    for (const [, path] of text.matchAll(/from "(\.[^"]+)\.js"/g))
      visit(resolve(dirname(file), `${path}.d.ts`));
  };
  for (const target of Object.values(manifest.exports ?? {})) {
    const types = target?.import?.types;
    if (types) visit(resolve(dir, types));
  }
  const root = resolve(dir, "dist/esm");
  const report = [...seen.keys()]
    .sort()
    .map((file) => `// ${file.slice(root.length + 1)}\n${seen.get(file)}`)
    .join("\n");
  const path = `${dir}/api.d.ts.txt`;
  if (write) {
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, report);
  } else if (!existsSync(path) || readFileSync(path, "utf8") !== report) {
    fail(`${path} is not current; run node scripts/check-packages.js --write and review the change`);
  }
}

async function size(what, contents) {
  const { outputFiles } = await build({
    stdin: { contents, resolveDir: "." },
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2022",
    conditions: ["browser"],
    external: ["node:*"],
    write: false,
    logLevel: "error",
  });
  const kb = gzipSync(outputFiles[0].contents, { level: 9 }).length / 1024;
  console.log(
    `size of ${what}: ${kb.toFixed(1)} KB minified and gzipped (budget ${BUDGET_KB[what]}, target ${TARGET_KB[what]})`,
  );
  if (kb > BUDGET_KB[what]) fail(`${what} is larger than its budget`);
}
