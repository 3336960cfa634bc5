/** Tabs of a real browser that share a queue, with the client and the real engine. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../src/index.js";
import { type Engine, startEngine } from "../node/engine.js";
import { until } from "../queue-cases.js";
import { type Chromium, launch, makeProfile, type Site, serve } from "./page.js";
import type { ClientTab } from "./queue-engine.page.js";

declare const tab: ClientTab;

let site: Site;
let engine: Engine;

beforeAll(async () => {
  const options = ["--no-auth", "--topics-open", "--history", "kept.>=10000", "--log-level", "error"];
  site = await serve("queue-engine.page.ts");
  engine = await startEngine(...options, "--origin", new URL(site.url).origin);
}, 60_000);

afterAll(async () => {
  await engine?.stop();
  await site?.close();
});

async function openTab(chromium: Chromium, name: string): Promise<Page> {
  const page = await chromium.context.newPage();
  await page.goto(site.url);
  await page.evaluate(([url, name]) => tab.open(url, name), [`ws://${engine.address}/ws`, name] as const);
  return page;
}

const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index);

function publish(page: Page, topic: string, values: number[]): Promise<void> {
  return page.evaluate(([topic, values]) => tab.publish(topic, values), [topic, values] as const);
}

/** What arrives on a topic, in its order. */
async function receive(topic: string): Promise<{ values: number[]; close(): Promise<void> }> {
  const reader = connect(`ws://${engine.address}/ws`);
  const subscription = reader.subscribe<number>(topic, { recover: true });
  const values: number[] = [];
  const reading = (async () => {
    for await (const { payload } of subscription) values.push(payload);
  })();
  await subscription.ready();
  return {
    values,
    async close() {
      await reader.close();
      await reading.catch(() => {});
    },
  };
}

test("what three tabs add arrives once, though two of them crash in the middle", {
  timeout: 240_000,
}, async () => {
  const chromium = await launch();
  const received = await receive("kept.tabs");
  try {
    const pages = [];
    for (let count = 0; count < 3; count += 1) pages.push(await openTab(chromium, "tabs"));
    for (const [index, page] of pages.entries()) {
      await publish(page, "kept.tabs", numbers(index * 100, index * 100 + 100));
    }
    for (const page of pages.slice(0, 2)) {
      const crashed = page.waitForEvent("crash");
      void page.goto("chrome://crash").catch(() => {});
      await crashed;
      const last = pages[2]!;
      await publish(
        last,
        "kept.tabs",
        numbers(1_000 + received.values.length, 1_001 + received.values.length),
      );
    }
    const last = pages[2]!;
    await last.waitForFunction(() => tab.depth() === 0);
    await until(() => new Set(received.values).size >= 300, "all that was stored arrives");
    const found = received.values.filter((value) => value < 300);
    expect(found.length, "each once").toBe(new Set(found).size);
    for (const first of [0, 100, 200]) {
      const own = found.filter((value) => value >= first && value < first + 100);
      expect(own, "the order of each tab").toEqual(numbers(first, first + 100));
    }
    expect(await last.evaluate(() => tab.errors)).toEqual([]);
  } finally {
    await received.close();
    await chromium.close();
  }
});

test("what was added while the server did not answer arrives after a kill of the browser", {
  timeout: 240_000,
}, async () => {
  const profile = await makeProfile();
  const received = await receive("kept.offline");
  let chromium = await launch(profile.path);
  try {
    const page = await openTab(chromium, "offline");
    await page.waitForFunction(() => tab.state() === "open");
    await publish(page, "kept.offline", [0]);
    await until(() => received.values.length === 1, "the first arrives");
    await engine.freeze();
    await publish(page, "kept.offline", numbers(1, 50));
    await page.waitForFunction(() => tab.depth() === 49);
    await chromium.kill();
    engine.process.kill("SIGCONT");
    chromium = await launch(profile.path);
    const again = await openTab(chromium, "offline");
    await again.waitForFunction(() => tab.state() === "open" && tab.depth() === 0);
    await until(() => received.values.length >= 50, "all arrive");
    expect(received.values).toEqual(numbers(0, 50));
  } finally {
    engine.process.kill("SIGCONT");
    await received.close();
    await chromium.kill();
    await profile.remove();
  }
});
