/**
 * Pages in a real browser for tests. `serve` bundles a page's script and serves it from 127.0.0.1;
 * `launch` starts Debian's Chromium with a profile of its own, as a process that a test may kill.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build, type Plugin } from "esbuild";
import { type Browser, type BrowserContext, chromium } from "playwright-core";
import { CHROMIUM } from "./chromium.js";

/** A server with one page. */
export interface Site {
  readonly port: number;
  /** `http://127.0.0.1:PORT/`: a secure context, with Web Locks and WebCrypto. */
  readonly url: string;
  /** `http://plain.test:PORT/`: the same page where the browser has neither. */
  readonly plainUrl: string;
  close(): Promise<void>;
}

/** A running browser. */
export interface Chromium {
  readonly browser: Browser;
  /** The context of the profile; its pages are tabs that share storage, locks and channels. */
  readonly context: BrowserContext;
  /** Its process, and the leader of the group with all others. */
  readonly process: ChildProcess;
  /** Ends all its processes by SIGKILL, as a crash does. */
  kill(): Promise<void>;
  close(): Promise<void>;
}

/** The sources, and not what is built of them, are what a page gets. */
const browserTransport: Plugin = {
  name: "browser-transport",
  setup(build) {
    const path = fileURLToPath(new URL("../../src/transport/default-browser.ts", import.meta.url));
    build.onResolve({ filter: /^#transport$/ }, () => ({ path }));
    const development = fileURLToPath(new URL("../../src/development/on.ts", import.meta.url));
    build.onResolve({ filter: /^#development$/ }, () => ({ path: development }));
  },
};

/** Bundles `entry`, a module in this directory, and serves a page that loads it. */
export async function serve(entry: string, plugins: Plugin[] = []): Promise<Site> {
  const bundled = await build({
    entryPoints: [fileURLToPath(new URL(entry, import.meta.url))],
    bundle: true,
    write: false,
    format: "esm",
    target: "es2022",
    sourcemap: "inline",
    plugins: [browserTransport, ...plugins],
  });
  const script = bundled.outputFiles[0]!.contents;
  const server = createServer((request, response) => {
    const isScript = request.url === "/page.js";
    response.setHeader("content-type", isScript ? "text/javascript" : "text/html; charset=utf-8");
    response.end(
      isScript ? script : '<!doctype html><title>test</title><script type="module" src="/page.js"></script>',
    );
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    port,
    url: `http://127.0.0.1:${port}/`,
    plainUrl: `http://plain.test:${port}/`,
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/** A new directory for a profile, for tests that start a browser with it twice. */
export async function makeProfile(): Promise<{ path: string; remove(): Promise<void> }> {
  const path = await mkdtemp(join(tmpdir(), "tidewire-profile-"));
  return { path, remove: () => rm(path, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 }) };
}

/**
 * Starts Chromium, without a window, on the profile at `path` or on one that it removes at the end.
 */
export async function launch(path?: string, args: string[] = []): Promise<Chromium> {
  const own = path === undefined ? await makeProfile() : undefined;
  const profile = path ?? own!.path;
  const portFile = join(profile, "DevToolsActivePort");
  await rm(portFile, { force: true });
  const fixed = [
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    // Each window would load two pages for an address bar that nobody sees, which costs more than its own page.
    "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
  ];
  const paths = [`--user-data-dir=${profile}`, "--remote-debugging-port=0", "--remote-debugging-pipe"];
  const hosts = "--host-resolver-rules=MAP *.test 127.0.0.1";
  const child = spawn(CHROMIUM ?? "chromium", [...fixed, ...paths, hosts, ...args, "about:blank"], {
    // A group of its own, so that it can be killed with its children.
    detached: true,
    // The browser ends when this end of the pipes is gone, so that it does not outlive a test that
    // is killed itself.
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
  });
  const exited = once(child, "exit");
  const kill = async () => {
    try {
      process.kill(-child.pid!, "SIGKILL");
    } catch {
      // All of them have ended.
    }
    await exited;
    await own?.remove();
  };
  try {
    const browser = await chromium.connectOverCDP(await endpoint(portFile, child));
    // A machine that is busy with other things takes its time.
    browser.contexts()[0]!.setDefaultTimeout(60_000);
    const close = async () => {
      await browser.close().catch(() => {});
      await kill();
    };
    return { browser, context: browser.contexts()[0]!, process: child, kill, close };
  } catch (error) {
    await kill();
    throw error;
  }
}

/** Where the browser listens for DevTools: it writes its port into a file when it does. */
async function endpoint(file: string, child: ChildProcess): Promise<string> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`${CHROMIUM} has ended with ${child.exitCode}`);
    const text = await readFile(file, "utf8").catch(() => "");
    const [port, path] = text.split("\n");
    if (port && path) return `ws://127.0.0.1:${port}${path}`;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}
