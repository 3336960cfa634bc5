/** A server with a dashboard, and pages in a real browser. */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, connect } from "@tidewire/client";
import type { Page } from "playwright-core";
import { type Chromium, launch } from "../../../client/test/browser/page.js";
import { type Engine, startEngine } from "../../../client/test/node/engine.js";

/** A key with all rights. */
export const KEY = "0123456789abcdef";

/** A key that may read only. */
export const VIEWER = "viewer-0123456789";

/** A key that may publish only. */
export const SHOP = "shop-0123456789ab";

export interface Dashboard {
  readonly engine: Engine;
  readonly chromium: Chromium;
  readonly client: Client;
  url(path?: string): string;
  /** A page without a login. */
  fresh(): Promise<Page>;
  loggedIn(key?: string): Promise<Page>;
  close(): Promise<void>;
}

export async function startDashboard(...options: string[]): Promise<Dashboard> {
  const folder = await mkdtemp(join(tmpdir(), "tidewire-dashboard-"));
  const keys = join(folder, "keys");
  await writeFile(keys, `viewer read ${VIEWER}\nshop publish ${SHOP}\n`, { mode: 0o600 });
  const engine = await startEngine(
    ...["--no-auth", "--topics-open", "--history", "kept.>=100", "--presence", "kept.>"],
    ...["--ops-listen", "127.0.0.1:0", "--api-key", KEY, "--api-keys-file", keys, "--log-level", "error"],
    ...options,
  );
  const chromium = await launch();
  const client = connect(`ws://${engine.address}/ws`);
  const url = (path = "") => `http://${engine.opsAddress}/dashboard${path}`;
  const fresh = async () => {
    const page = await chromium.context.newPage();
    await chromium.context.clearCookies();
    await page.goto(url());
    return page;
  };
  return {
    engine,
    chromium,
    client,
    url,
    fresh,
    async loggedIn(key = KEY) {
      const page = await fresh();
      await page.getByLabel("Key of the HTTP API").fill(key);
      await page.getByRole("button", { name: "Log in" }).click();
      await page.getByRole("link", { name: "Overview" }).waitFor();
      return page;
    },
    async close() {
      await client.close();
      await chromium.close();
      await engine.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
