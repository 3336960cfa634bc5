import { afterAll, beforeAll, expect, test } from "vitest";
import { type Chromium, launch, type Site, serve } from "./page.js";

declare function found(): { locks: boolean; subtle: boolean };

let site: Site;
let chromium: Chromium;

beforeAll(async () => {
  [site, chromium] = await Promise.all([serve("secure.page.ts"), launch()]);
}, 60_000);

afterAll(async () => {
  await chromium?.close();
  await site?.close();
});

test("pages are secure contexts or plain ones, as the tests need them", { timeout: 60_000 }, async () => {
  const page = await chromium.context.newPage();
  await page.goto(site.url);
  expect(await page.evaluate(() => found())).toEqual({ locks: true, subtle: true });
  await page.goto(site.plainUrl);
  expect(await page.evaluate(() => found())).toEqual({ locks: false, subtle: false });
});
