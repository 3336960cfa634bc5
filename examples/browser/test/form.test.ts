import { connect } from "@tidewire/client";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type Stage, startStage } from "./support.js";

let stage: Stage;

beforeAll(async () => {
  stage = await startStage();
});

afterAll(() => stage?.close());

async function add(page: Page, ...texts: string[]): Promise<void> {
  for (const text of texts) {
    await page.fill("input", text);
    await page.click("button");
  }
}

const waits = (page: Page, count: number) =>
  page.waitForFunction((n) => document.querySelector(`.status[data-waiting="${n}"]`) !== null, count);

const is = (page: Page, state: string) =>
  page.waitForFunction((wanted) => document.querySelector(`.status[data-state="${wanted}"]`) !== null, state);

test("entries that are written without a network arrive when it is back, once and in order", {
  timeout: 240_000,
}, async () => {
  const arrived: string[] = [];
  const reader = connect(stage.server);
  const entries = reader.subscribe<{ text: string }>("entries");
  entries.on("message", ({ payload }) => arrived.push(payload.text));
  await entries.ready();

  const page = await stage.open("form");
  await is(page, "open");
  await add(page, "one");
  await vi.waitUntil(() => arrived.length === 1, { timeout: 60_000 });
  await page.context().setOffline(true);
  await page.waitForFunction(() => !document.querySelector('.status[data-state="open"]'));
  await add(page, "two", "three", "four");
  await waits(page, 3);
  expect(arrived).toEqual(["one"]);
  await page.context().setOffline(false);
  await vi.waitUntil(() => arrived.length >= 4, { timeout: 60_000 });
  await waits(page, 0);
  expect(arrived).toEqual(["one", "two", "three", "four"]);

  // A page that is closed without a network leaves its entries to the next one.
  await page.context().setOffline(true);
  await page.waitForFunction(() => !document.querySelector('.status[data-state="open"]'));
  await add(page, "five");
  await waits(page, 1);
  await page.close();
  await stage.chromium.context.setOffline(false);
  const next = await stage.open("form");
  await vi.waitUntil(() => arrived.length >= 5, { timeout: 60_000 });
  expect(arrived).toEqual(["one", "two", "three", "four", "five"]);
  await waits(next, 0);
  await next.close();
  await reader.close();
});
