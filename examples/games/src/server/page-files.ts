/** The files of the page, bundled when the server starts. */

import { readFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build, stop } from "esbuild";

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

const HTML = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Tidewire games</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/style.css">
<div id="root"></div>
<script type="module" src="/page.js"></script>
`;

/** The files by their path. */
export async function pageFiles(): Promise<Map<string, [type: string, body: string | Uint8Array]>> {
  const { outputFiles } = await build({
    entryPoints: [path("../page/page.tsx")],
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    define: { "process.env.NODE_ENV": '"production"' },
    // The sources of the packages, so that the page needs no build of them.
    alias: {
      "@tidewire/client": path("../../../../packages/client/src"),
      "@tidewire/react": path("../../../../packages/react/src/index.ts"),
      "#transport": path("../../../../packages/client/src/transport/default-browser.ts"),
    },
  });
  // Its process would stay as long as the server runs.
  await stop();
  return new Map<string, [type: string, body: string | Uint8Array]>([
    ["/", ["text/html; charset=utf-8", HTML]],
    ["/page.js", ["text/javascript", outputFiles[0]?.contents ?? ""]],
    ["/style.css", ["text/css", await readFile(path("../page/style.css"))]],
  ]);
}
