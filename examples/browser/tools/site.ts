/** Bundles the pages and serves them. */

import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

export const PAGES = ["chat", "prices", "form"] as const;

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

export interface Site {
  /** `http://127.0.0.1:PORT`; the pages are `/chat`, `/prices` and `/form`. */
  readonly origin: string;
  close(): Promise<void>;
}

/** Serves the pages on a port; 0 takes a free one. */
export async function serveSite(port = 0): Promise<Site> {
  const { outputFiles } = await build({
    entryPoints: PAGES.map((page) => path(`../src/${page}.tsx`)),
    outdir: "/",
    bundle: true,
    minify: true,
    write: false,
    format: "esm",
    target: "es2022",
    jsx: "automatic",
    define: { "process.env.NODE_ENV": '"production"' },
    // The sources of the packages, so that the pages need no build of them.
    alias: {
      "@tidewire/client": path("../../../packages/client/src"),
      "@tidewire/react": path("../../../packages/react/src/index.ts"),
      "#transport": path("../../../packages/client/src/transport/default-browser.ts"),
    },
  });
  const files = new Map<string, [type: string, body: string | Uint8Array]>();
  for (const { path: name, contents } of outputFiles) files.set(name, ["text/javascript", contents]);
  files.set("/style.css", ["text/css", await readFile(path("../src/style.css"))]);
  for (const page of PAGES) files.set(`/${page}`, ["text/html; charset=utf-8", html(page)]);
  const links = PAGES.map((page) => `<li><a href="/${page}">${page}</a>`).join("");
  files.set("/", ["text/html; charset=utf-8", `<!doctype html><title>Tidewire</title><ul>${links}</ul>`]);

  const server = createServer((request, response) => {
    const file = files.get(new URL(request.url ?? "/", "http://localhost").pathname);
    if (file) response.setHeader("content-type", file[0]);
    else response.statusCode = 404;
    response.end(file?.[1]);
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

function html(page: string): string {
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Tidewire: ${page}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/style.css">
<div id="root"></div>
<script type="module" src="/${page}.js"></script>
`;
}
