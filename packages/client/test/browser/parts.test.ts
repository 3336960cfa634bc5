import { afterAll, beforeAll, expect, test } from "vitest";
import { type Engine, startEngine } from "../node/engine.js";
import { type Chromium, launch, type Site, serve } from "./page.js";
import type { Parts } from "./parts.page.js";

declare const parts: Parts;

let site: Site;
let chromium: Chromium;
let engine: Engine;

beforeAll(async () => {
  site = await serve("parts.page.ts");
  const options = ["--no-auth", "--topics-open", "--history", "kept.>=1000", "--encryption", "optional"];
  [engine, chromium] = await Promise.all([
    startEngine(...options, "--origin", new URL(site.url).origin),
    launch(),
  ]);
}, 60_000);

afterAll(async () => {
  await chromium?.close();
  await site?.close();
  await engine?.stop();
});

test("the parts of the production build work together in a page", async () => {
  const page = await chromium.context.newPage();
  await page.goto(site.url);
  const seen = await page.evaluate((url) => parts.converse(url), `ws://${engine.address}/ws`);
  expect(seen).toEqual({
    received: [1, 2, 3],
    failure: "NOT_FOUND",
    history: [3, 2],
    breaker: "closed",
    closed: "CLOSED",
  });
  expect(await page.evaluate(() => parts.wrong()), "the code alone").toBe("TidewireError: INVALID_OPTION");
  await page.close();
});
