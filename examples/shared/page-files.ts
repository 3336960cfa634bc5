/** The files of a page for the browser, bundled in memory. The examples serve them. */

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { build, stop } from "esbuild";

/** Files by their path on the site: the content type and the content. */
export type PageFiles = Map<string, [type: string, body: string | Uint8Array]>;

const require = createRequire(import.meta.url);

/** The folder of a package of this repository. */
const packageFolder = (name: string) => dirname(require.resolve(`${name}/package.json`));

/**
 * Bundles programs for the browser: `/NAME.js` for each, and `/style.css`. Imports of the packages of this repository mean
 * their sources, so that a page needs no build of them.
 */
export async function bundlePages(programs: string[], style: string): Promise<PageFiles> {
  const client = join(packageFolder("@tidewire/client"), "src");
  const { outputFiles } = await build({
    entryPoints: programs,
    outdir: "/",
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    define: { "process.env.NODE_ENV": '"production"' },
    alias: {
      "@tidewire/client": client,
      "@tidewire/react": join(packageFolder("@tidewire/react"), "src/index.ts"),
      "#transport": join(client, "transport/default-browser.ts"),
      "#development": join(client, "development/off.ts"),
    },
  });
  // The process of the bundler would stay as long as the site is served.
  await stop();
  const files: PageFiles = new Map();
  for (const { path, contents } of outputFiles) files.set(`/${basename(path)}`, ["text/javascript", contents]);
  files.set("/style.css", ["text/css", await readFile(style)]);
  return files;
}

/** The document that runs a bundled program. */
export function pageDocument(title: string, program: string): [type: string, body: string] {
  const html = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>${title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/style.css">
<div id="root"></div>
<script type="module" src="${program}"></script>
`;
  return ["text/html; charset=utf-8", html];
}
