/** Bundles the pages and serves them. */

import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { bundlePages, pageDocument } from "../../shared/page-files.js";

export const PAGES = ["chat", "prices", "form"] as const;

const path = (relative: string) => fileURLToPath(new URL(relative, import.meta.url));

export interface Site {
  /** `http://127.0.0.1:PORT`; the pages are `/chat`, `/prices` and `/form`. */
  readonly origin: string;
  close(): Promise<void>;
}

/** Serves the pages on a port; 0 takes a free one. */
export async function serveSite(port = 0): Promise<Site> {
  const programs = PAGES.map((page) => path(`../src/${page}.tsx`));
  const files = await bundlePages(programs, path("../src/style.css"));
  for (const page of PAGES) files.set(`/${page}`, pageDocument(`Tidewire: ${page}`, `/${page}.js`));
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
