// Builds each package: types and ES modules by tsc, CommonJS beside them, and one file for pages without a bundler.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { DASHBOARD, dashboardFiles } from "./dashboard.js";

/** The parts of the client that a page can load beside the core. */
const PARTS = ["msgpack", "compress", "encrypt", "sign", "queue", "shared", "endpoints", "quality"];
/** What names begin with that the core exports for its parts alone. */
const INTERNAL = "_";

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
  for (const [name, contents] of await dashboardFiles(dir)) {
    // A new time of a file would have cargo compile the engine again.
    const path = `${to}/${name}`;
    if (!existsSync(path) || !Buffer.from(contents).equals(readFileSync(path))) writeFileSync(path, contents);
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

/**
 * The build for pages in production: minified, without explanations of errors and checks of options, and with short names
 * for members that are nobody else's. `tidewire.min.js` is the core as one module for `<script type="module">`. `dist/min`
 * has an entry for each part; what parts have in common with the core they import from `tidewire.min.js`, so that there is
 * one `Message`, one `TidewireError` and one set of short names, however a page loads them.
 */
async function forPages(dir) {
  const from = resolve(dir, "dist/esm");
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
  const core = await graphOf([`${from}/index.js`], common);
  const parts = await graphOf(
    PARTS.map((part) => `${from}/${part}.js`),
    common,
  );
  const shared = sharedNames(core, parts);
  const { mangleCache } = await build({
    ...common,
    stdin: { contents: coreEntry(from, shared), resolveDir: from },
    mangleCache: {},
    outfile: `${dir}/dist/tidewire.min.js`,
  });
  await build({
    ...common,
    entryPoints: PARTS.map((part) => `${from}/${part}.js`),
    outdir: `${dir}/dist/min`,
    splitting: true,
    mangleCache,
    plugins: [fromCore(shared)],
  });
  const main = await import(pathToFileURL(resolve(dir, "dist/tidewire.min.js")));
  const faces = Object.keys(main).filter((name) => !name.startsWith(INTERNAL));
  writeFileSync(`${dir}/dist/min/index.js`, `export { ${faces.join(", ")} } from "../tidewire.min.js";\n`);
}

/** The modules that entries reach, with what each imports: `path -> path -> names`. */
async function graphOf(entryPoints, common) {
  const { metafile } = await build({ ...common, entryPoints, outdir: "-", write: false, metafile: true });
  const graph = new Map();
  for (const path of Object.keys(metafile.inputs).map((path) => resolve(path))) {
    const imports = new Map();
    const text = readFileSync(path, "utf8");
    for (const [, list, target] of text.matchAll(
      /^(?:import|export) (?:\{([^}]*)\}|.*) from "(\.[^"]+)";/gm,
    )) {
      if (list === undefined) throw new Error(`${path}: import by names, so that parts can share modules`);
      const names = list.split(",").map((one) => one.trim().split(" as ")[0]);
      imports.set(resolve(path, "..", target), names.filter(Boolean));
    }
    graph.set(path, imports);
  }
  return graph;
}

/** What the parts import of the core's modules: `path -> names`. */
function sharedNames(core, parts) {
  const shared = new Map();
  for (const [path, imports] of parts) {
    if (core.has(path)) continue;
    for (const [target, names] of imports) {
      if (!core.has(target)) continue;
      if (!shared.has(target)) shared.set(target, new Set());
      for (const name of names) shared.get(target).add(name);
    }
  }
  return shared;
}

/** The public face of the core, and what the parts share with it under names that nobody else uses. */
function coreEntry(from, shared) {
  const lines = [`export * from "${from}/index.js";`];
  for (const [path, names] of shared) {
    const list = [...names].map((name) => `${name} as ${INTERNAL}${name}`);
    lines.push(`export { ${list.join(", ")} } from "${path}";`);
  }
  return lines.join("\n");
}

/** Takes modules of the core from `tidewire.min.js`. */
function fromCore(shared) {
  return {
    name: "from-core",
    setup(own) {
      own.onLoad({ filter: /\.js$/ }, ({ path }) => {
        const names = shared.get(path);
        if (!names) return undefined;
        const list = [...names].map((name) => `${INTERNAL}${name} as ${name}`);
        return { contents: `export { ${list.join(", ")} } from "../tidewire.min.js";` };
      });
      own.onResolve({ filter: /tidewire\.min\.js$/ }, ({ path }) => ({ path, external: true }));
    },
  };
}
