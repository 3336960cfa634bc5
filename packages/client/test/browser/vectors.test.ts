/** The vectors of the protocol in Chromium, by the runners that have them in Node. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Dialogue } from "../dialogue-runner.js";
import { ofJson } from "../json-cases.js";
import { DIALOGUES, dialoguesOf, type MessageCase, vectors as vectorsOf } from "../vectors.js";
import { type Chromium, launch, type Site, serve } from "./page.js";
import type { Vectors } from "./vectors.page.js";

declare const vectors: Vectors;

let site: Site;
let chromium: Chromium;
let page: Page;

beforeAll(async () => {
  [site, chromium] = await Promise.all([serve("vectors.page.ts"), launch()]);
  page = await chromium.context.newPage();
  await page.goto(site.url);
}, 60_000);

afterAll(async () => {
  await chromium?.close();
  await site?.close();
});

const playInPage = (dialogues: Dialogue[]) => page.evaluate((all) => vectors.play(all), dialogues);
const readInPage = (cases: MessageCase[]) => page.evaluate((all) => vectors.readJson(all), cases);

test.each(DIALOGUES)("the dialogues of %s", async (file) => {
  const dialogues = dialoguesOf(file);
  expect(dialogues.length).toBeGreaterThan(0);
  expect(await playInPage(dialogues)).toEqual([]);
});

test.each(["envelopes", "malformed", "publications"])("the JSON messages of %s", async (file) => {
  const cases = ofJson(vectorsOf<MessageCase>(file));
  expect(cases.length).toBeGreaterThan(5);
  expect(await readInPage(cases)).toEqual([]);
});

test("what is wrong shows", async () => {
  const [dialogue] = dialoguesOf("client-dialogues").filter(({ steps }) => steps.some(({ event }) => event));
  const steps = dialogue!.steps.map((step) => (step.event ? { ...step, event: { unknown: {} } } : step));
  expect(await playInPage([{ ...dialogue!, steps }])).not.toEqual([]);
  const [one] = ofJson(vectorsOf<MessageCase>("publications"));
  const other = { ...one!, envelope: { ...one!.envelope, t: "other" } };
  expect(await readInPage([other])).not.toEqual([]);
});
