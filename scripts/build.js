// Builds each package: types and ES modules by tsc, CommonJS beside them, and one file for pages without a bundler.
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { build } from "esbuild";
import { DASHBOARD, dashboardFiles } from "./dashboard.js";
import { forPages } from "./packages-pages.js";

const only = process.argv.slice(2);
// The others build on the client.
const names = readdirSync("packages").filter((name) => existsSync(`packages/${name}/tsconfig.json`));
names.sort((a, b) => Number(b === "client") - Number(a === "client"));

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
  if (name === "client") plainMessages(`${dir}/dist/esm/message.d.ts`);
  await toCommonJs(dir);
  if (name !== "client") continue;
  forOldTools(dir);
  await forPages(dir);
}

/**
 * A message that an application has is plain data, so that its type is that of its fields: the mark of a private member
 * would make copies of it, such as those in a `ref` of Vue, another type.
 */
function plainMessages(path) {
  const text = readFileSync(path, "utf8");
  writeFileSync(path, text.replace("    #private;\n", ""));
}

/** The dashboard's files, which the engine embeds: they are committed, so that `cargo build` needs no npm. */
async function embed(dir, to) {
  for (const [name, contents] of await dashboardFiles(dir)) {
    // A new time of a file would have cargo compile the engine again.
    const path = `${to}/${name}`;
    if (!existsSync(path) || !Buffer.from(contents).equals(readFileSync(path))) writeFileSync(path, contents);
  }
}

/**
 * What tools find that do not read `exports` and `imports`, such as Parcel as it is installed and TypeScript with
 * `--module commonjs`: CommonJS that names its modules by paths alone (`browser` of the package replaces those that need
 * Node), and a folder for each part.
 */
function forOldTools(dir) {
  const { exports } = JSON.parse(readFileSync(`${dir}/package.json`, "utf8"));
  const [cjs, old] = [`${dir}/dist/cjs`, `${dir}/dist/old`];
  const ownPaths = { "#transport": "transport/default-node.cjs", "#development": "development/on.cjs" };
  cpSync(cjs, old, { recursive: true, filter: (path) => !path.endsWith(".d.cts") });
  for (const file of readdirSync(old, { recursive: true }).filter((file) => file.endsWith(".cjs"))) {
    const up = "../".repeat(file.split("/").length - 1) || "./";
    const text = readFileSync(`${old}/${file}`, "utf8");
    writeFileSync(
      `${old}/${file}`,
      text.replace(/require\("(#\w+)"\)/g, (_, name) => `require("${up}${ownPaths[name]}")`),
    );
  }
  for (const [part, { require, node }] of Object.entries(exports)) {
    const target = node?.require ?? require;
    if (!target || part === ".") continue;
    mkdirSync(`${dir}/${part}`, { recursive: true });
    const path = (to) => `.${to.default.replace("/cjs/", "/old/")}`;
    const stub = { main: path(target), types: `.${target.types}`, browser: node && path(require) };
    writeFileSync(`${dir}/${part}/package.json`, `${JSON.stringify(stub, null, 2)}\n`);
  }
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
