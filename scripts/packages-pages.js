// The builds of the client for pages: minified modules, and files with a global for a classic `<script>`.
import { readFileSync, writeFileSync } from "node:fs";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";

/** The parts of the client that a page can load beside the core. */
const PARTS = [
  "msgpack",
  "compress",
  "encrypt",
  "sign",
  "queue",
  "shared",
  "endpoints",
  "quality",
  "react-native",
  "stores",
];
/** What names begin with that the core exports for its parts alone. */
const INTERNAL = "_";
/** The global of the files for a classic `<script>`. */
const GLOBAL = "tidewire";

/**
 * The build for pages in production: minified, without explanations of errors and checks of options, and with short names
 * for members that are nobody else's. `tidewire.min.js` is the core as one module for `<script type="module">`. `dist/min`
 * has an entry for each part; what parts have in common with the core they import from `tidewire.min.js`, so that there is
 * one `Message`, one `TidewireError` and one set of short names, however a page loads them. Each file has a source map.
 */
export async function forPages(dir) {
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
    sourcemap: true,
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
  const everything = ["index", ...PARTS].map((part) => `export * from "${from}/${part}.js";`).join("\n");
  await withGlobal(`${dir}/dist/tidewire.global.js`, `export * from "${from}/index.js";`, from, common);
  await withGlobal(`${dir}/dist/tidewire.all.global.js`, everything, from, common);
}

/** A file for a classic `<script>`, which has what `contents` exports in a global. */
async function withGlobal(outfile, contents, resolveDir, common) {
  await build({ ...common, stdin: { contents, resolveDir }, format: "iife", globalName: GLOBAL, outfile });
}

/** The modules that entries reach, with what each imports: `path -> path -> names`. */
async function graphOf(entryPoints, common) {
  const { metafile } = await build({
    ...common,
    entryPoints,
    outdir: "-",
    write: false,
    metafile: true,
  });
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
