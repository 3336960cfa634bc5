/** Tabs of a real browser that share a connection to the real engine. */

import type { BrowserContext, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type Client, connect } from "../../src/index.js";
import { type Engine, startEngine } from "../node/engine.js";
import { type Chromium, launch, type Site, serve } from "./page.js";
import type { Tab } from "./shared.page.js";

// What the page has as a global.
declare const tab: Tab;

let site: Site;
let chromium: Chromium;
let engine: Engine;
let publisher: Client;
let context: BrowserContext;
let published = 0;

beforeAll(async () => {
  [site, chromium] = await Promise.all([serve("shared.page.ts"), launch()]);
}, 60_000);

afterAll(async () => {
  await chromium?.close();
  await site?.close();
});

beforeEach(async () => {
  engine = await startEngine(
    ...["--no-auth", "--topics-open", "--history", "kept.>=100000", "--log-level", "error"],
    ...["--ops-listen", "127.0.0.1:0", "--origin", "any", "--allow-host", "any"],
  );
  publisher = connect(`ws://${engine.address}/ws`);
  published = 0;
  context = await chromium.browser.newContext();
});

afterEach(async () => {
  await context.close();
  await publisher.close();
  await engine.stop();
});

/** Publishes N numbers, the next after those before. */
async function publish(count: number): Promise<void> {
  await Promise.all(Array.from({ length: count }, () => publisher.publish("kept.flow", published++)));
}

async function openTab(url = site.url): Promise<Page> {
  const page = await context.newPage();
  await page.goto(url);
  const options = { topics: ["kept.flow"] };
  await page.evaluate(([at, more]) => tab.start(at, more), [`ws://${engine.address}/ws`, options] as const);
  await page.waitForFunction(() => tab.state() === "open");
  return page;
}

/** Connections to the engine without the publisher's. */
async function connections(): Promise<number> {
  const answer = await fetch(`http://${engine.opsAddress}/stats`);
  const { total } = (await answer.json()) as { total: { connections_open: number } };
  return total.connections_open - 1;
}

async function until(condition: () => Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 30_000;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Ends the process of a page, as a crash does. */
async function crash(page: Page): Promise<void> {
  const crashed = page.waitForEvent("crash");
  void page.goto("chrome://crash").catch(() => {});
  await crashed;
  await page.close();
}

const got = (page: Page) => page.evaluate(() => tab.got["kept.flow"] as number[]);
const isLeader = (page: Page) => page.evaluate(() => tab.left().sockets > 0);

/** Whether the tab has each publication from its first to the last, once. */
async function expectAll(pages: Page[]): Promise<void> {
  for (const page of pages) {
    await page.waitForFunction((last) => tab.got["kept.flow"]!.at(-1) === last, published - 1);
    const numbers = await got(page);
    expect(numbers).toEqual(Array.from({ length: published - numbers[0]! }, (_, at) => at + numbers[0]!));
  }
}

test("tabs share one connection; the last one closes it", { timeout: 60_000 }, async () => {
  const pages = [await openTab(), await openTab(), await openTab()];
  expect(await connections()).toBe(1);
  await publish(30);
  await expectAll(pages);
  await Promise.all(pages.map((page) => page.evaluate(() => tab.client!.publish("kept.flow", -1))));
  for (const page of pages) await page.waitForFunction(() => tab.got["kept.flow"]!.length === 33);
  for (const page of pages) {
    await page.evaluate(() => tab.client!.close());
    // A browser reports the end of a socket only after the closing handshake.
    await page.waitForFunction(() => tab.left().sockets === 0);
  }
  await until(async () => (await connections()) === 0, "the connection is closed");
});

test("tabs end in every order while publications flow", { timeout: 120_000 }, async () => {
  let pages: Page[] = [];
  for (let count = 0; count < 3; count++) pages.push(await openTab());
  let isDone = false;
  const flow = (async () => {
    while (!isDone) {
      await publish(5);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  })();
  const ends: ((page: Page) => Promise<unknown>)[] = [
    crash,
    (page) => page.close(),
    (page) => page.goto("about:blank").then(() => page.close()),
    (page) => page.evaluate(() => tab.client!.close()).then(() => page.close()),
  ];
  for (const [round, end] of [...ends, crash].entries()) {
    const leads = await Promise.all(pages.map(isLeader));
    // The leading tab, and at last another one.
    const victim = pages[leads.indexOf(round < ends.length)] ?? pages[0]!;
    await end(victim);
    pages = pages.filter((page) => page !== victim);
    pages.push(await openTab());
  }
  isDone = true;
  await flow;
  await publish(1);
  await Promise.all(pages.map((page) => page.waitForFunction(() => tab.state() === "open")));
  await expectAll(pages);
  expect(await Promise.all(pages.map((page) => page.evaluate(() => tab.degraded)))).toEqual([[], [], []]);
  await until(async () => (await connections()) === 1, "one connection is left");
});

test("a leading page that hangs is no end for the others", { timeout: 120_000 }, async () => {
  const [first, second, third] = [await openTab(), await openTab(), await openTab()];
  await publish(5);
  await expectAll([first, second, third]);
  expect(await isLeader(first)).toBe(true);
  // Far longer than the others take; it ends by itself.
  await first.evaluate(() => tab.hang(20_000));
  let isOver = false;
  const over = first
    .evaluate(() => undefined)
    .then(() => {
      isOver = true;
    });
  await second.bringToFront();
  await publish(5);
  await expectAll([second, third]);
  expect(isOver, "they did not wait for its end").toBe(false);
  await over;
  await first.waitForFunction(() => tab.state() === "open");
  await publish(1);
  await expectAll([first, second, third]);
  await until(async () => (await connections()) === 1, "one connection is left");
});

test("a page on plain http has a connection of its own, and says so", { timeout: 60_000 }, async () => {
  const pages = [await openTab(site.plainUrl), await openTab(site.plainUrl)];
  expect(await connections()).toBe(2);
  await publish(3);
  await expectAll(pages);
  for (const page of pages) {
    const degraded = await page.evaluate(() => tab.degraded);
    expect(degraded).toEqual([expect.stringContaining("https")]);
  }
});
