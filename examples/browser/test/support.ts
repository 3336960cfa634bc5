/** The pages in a browser, against an engine: what the tests of all three share. */

import type { Page } from "playwright-core";
import { type Chromium, launch } from "../../../packages/client/test/browser/page.js";
import { type Engine, startEngine } from "../../../packages/client/test/node/engine.js";
import { type Site, serveSite } from "../tools/site.js";

export interface Stage {
  readonly site: Site;
  readonly chromium: Chromium;
  readonly engine: Engine;
  /** The address of the engine's WebSocket. */
  readonly server: string;
  /** Opens a page in a tab of its own and waits until it is connected. */
  open(page: string, query?: Record<string, string>): Promise<Page>;
  close(): Promise<void>;
}

/** Starts the engine with these options, the site and the browser. */
export async function startStage(...options: string[]): Promise<Stage> {
  const [site, chromium] = await Promise.all([serveSite(), launch()]);
  const engine = await startEngine("--no-auth", "--app", "sink", "--topics-open", "--origin", site.origin, ...options);
  const server = `ws://${engine.address}/ws`;
  return {
    site,
    chromium,
    engine,
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
