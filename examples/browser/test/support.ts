/** The pages in a browser, against a server: what the tests of all three share. */

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Page } from "playwright-core";
import { type Chromium, launch } from "../../../packages/client/test/browser/page.js";
import { type Engine, startEngine } from "../../../packages/client/test/node/engine.js";
import { type Site, serveSite } from "../tools/site.js";

export interface Stage {
  readonly site: Site;
  readonly chromium: Chromium;
  /** The address of the server's WebSocket. */
  readonly server: string;
  /** Opens a page in a tab of its own. */
  open(page: string, query?: Record<string, string>): Promise<Page>;
  close(): Promise<void>;
}

/** Starts the engine with these options, the site and the browser. */
export async function startStage(...options: string[]): Promise<Stage> {
  return stageWith((origin) =>
    startEngine("--no-auth", "--app", "sink", "--topics-open", "--origin", origin, ...options),
  );
}

/** The Python that has the package: `TIDEWIRE_PYTHON`, or that of the bindings; `undefined` if there is none. */
export function python(): string | undefined {
  const built = fileURLToPath(new URL("../../../bindings/python/.venv/bin/python", import.meta.url));
  const found = process.env["TIDEWIRE_PYTHON"] ?? built;
  return existsSync(found) ? found : undefined;
}

/** Starts the server of server.py, the site and the browser. */
export async function startPythonStage(program: string): Promise<Stage> {
  return stageWith((origin) => startPython(program, origin));
}

type Server = Pick<Engine, "address" | "stop">;

async function startPython(program: string, origin: string): Promise<Server> {
  const script = fileURLToPath(new URL("../server.py", import.meta.url));
  const child = spawn(program, [script, origin, "--port", "0"], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  let output = "";
  const address = await new Promise<string>((resolve, reject) => {
    child.stdout.on("data", (bytes: Buffer) => {
      output += bytes.toString();
      const found = output.match(/127\.0\.0\.1:\d+/);
      if (found) resolve(found[0]);
    });
    child.once("error", reject);
    child.once("close", () => reject(new Error(`server.py has ended: ${output}`)));
  });
  const stop = () => {
    child.kill("SIGKILL");
    return ended;
  };
  return { address, stop };
}

async function stageWith(start: (origin: string) => Promise<Server>): Promise<Stage> {
  const [site, chromium] = await Promise.all([serveSite(), launch()]);
  const engine = await start(site.origin);
  const server = `ws://${engine.address}/ws`;
  return {
    site,
    chromium,
    server,
    async open(name, query = {}) {
      const page = await chromium.context.newPage();
      page.setDefaultTimeout(60_000);
      await page.goto(`${site.origin}/${name}?${new URLSearchParams({ server, ...query })}`);
      return page;
    },
    async close() {
      await chromium.close();
      await engine.stop();
      await site.close();
    },
  };
}
