import { afterAll, beforeAll, expect, test } from "vitest";
import { type Publisher, publishPrices, SYMBOLS } from "../tools/publisher.js";
import { watchTable } from "../tools/watch.js";
import { type Stage, startStage } from "./support.js";

let stage: Stage;
let publisher: Publisher;

beforeAll(async () => {
  stage = await startStage();
  // Some for each frame, and fewer than a busy machine can show; tools/measure.ts has the full rate.
  publisher = await publishPrices(stage.server, 2 * SYMBOLS);
});

afterAll(async () => {
  await publisher?.close();
  await stage?.close();
});

test("the table shows all rows and changes at most once per frame", async () => {
  const page = await stage.open("prices");
  const isFull = (rows: number) => document.querySelectorAll("td:nth-child(3):not(:empty)").length === rows;
  await page.waitForFunction(isFull, SYMBOLS, { timeout: 50_000 });
  const { frames, renders, doubled, newest } = await page.evaluate(watchTable, 2);
  expect(frames).toBeGreaterThan(0);
  expect(renders).toBeGreaterThan(0);
  expect(doubled).toBe(0);
  expect(newest[1]).toBeGreaterThan(newest[0]);
  await page.close();
});
