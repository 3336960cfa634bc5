import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cases } from "../queue-cases.js";
import { type Chromium, launch, makeProfile, type Site, serve } from "./page.js";
import type { Tab } from "./queue.page.js";

// What the page has as globals.
declare const tab: Tab;
declare function runCase(name: string, database: string): Promise<void>;
declare function loseConnections(): void;

let site: Site;
let chromium: Chromium;

beforeAll(async () => {
  [site, chromium] = await Promise.all([serve("queue.page.ts"), launch()]);
}, 60_000);

afterAll(async () => {
  await chromium?.close();
  await site?.close();
});

async function openPage(browser: Chromium = chromium, url = site.url): Promise<Page> {
  const page = await browser.context.newPage();
  await page.goto(url);
  return page;
}

/** A tab whose queue is open. */
async function openTab(name: string, browser: Chromium = chromium): Promise<Page> {
  const page = await openPage(browser);
  await page.evaluate((name) => tab.open(name), name);
  return page;
}

const isOwner = (page: Page) => page.evaluate(() => tab.queue.producerId !== undefined);
const outcomes = (page: Page) => page.evaluate(() => tab.outcomes);
const send = (page: Page, last = 0) => page.evaluate((last) => tab.send(last), last);

/** Ends the process of a page, as a crash does. */
async function crash(page: Page): Promise<void> {
  const crashed = page.waitForEvent("crash");
  void page.goto("chrome://crash").catch(() => {});
  await crashed;
}

describe("queue in IndexedDB", { timeout: 120_000 }, () => {
  let page: Page;
  beforeAll(async () => {
    page = await openPage();
  });

  test.each(Object.keys(cases))("%s", async (name) => {
    await page.evaluate((name) => runCase(name, name), name);
  });

  test("a connection that the browser has lost is opened again", async () => {
    const lossy = await openPage();
    await lossy.evaluate(() => loseConnections());
    await lossy.evaluate(() =>
      runCase("after a restart messages, numbers and producer are as they were", "lossy"),
    );
    await lossy.close();
  });

  test("a database that is deleted is made anew", async () => {
    const deleted = await openTab("deleted");
    await deleted.evaluate(() => tab.add("a"));
    await deleted.evaluate(
      () =>
        new Promise((resolve, reject) => {
          const request = indexedDB.deleteDatabase("deleted");
          request.onsuccess = resolve;
          request.onerror = reject;
        }),
    );
    await deleted.evaluate(() => tab.add("b"));
    expect(await send(deleted)).toEqual(["1b"]);
    await deleted.close();
  });

  test("a database of a later version is left alone, and memory is reported", async () => {
    const later = await openPage();
    await later.evaluate(
      () =>
        new Promise<void>((resolve) => {
          const request = indexedDB.open("later", 99);
          request.onsuccess = () => {
            request.result.close();
            resolve();
          };
        }),
    );
    await later.evaluate(() => tab.open("later"));
    expect(await later.evaluate(() => tab.reports)).toEqual([expect.stringContaining("queue_in_memory")]);
    await later.evaluate(() => tab.add("a"));
    expect(await send(later)).toEqual(["1a"]);
    await later.close();
  });

  test("a page of plain http keeps messages in memory, and says so", async () => {
    const plain = await openPage(chromium, site.plainUrl);
    await plain.evaluate(() => tab.open("plain"));
    expect(await plain.evaluate(() => tab.reports)).toEqual([expect.stringContaining("no Web Locks")]);
    await plain.evaluate(() => tab.add("a"));
    expect(await send(plain)).toEqual(["1a"]);
    await plain.close();
  });
});

describe("tabs that share a queue", { timeout: 120_000 }, () => {
  test("one sends what all have added, and all learn what became of it", async () => {
    const owner = await openTab("shared");
    const other = await openTab("shared");
    expect([await isOwner(owner), await isOwner(other)]).toEqual([true, false]);
    const before = await owner.evaluate(() => tab.wakes);
    await other.evaluate(() => tab.add("from another", "refused"));
    await owner.waitForFunction((before) => tab.wakes > before, before);
    await owner.evaluate(() => tab.add("own"));
    expect(await send(owner)).toEqual(["1from another", "2refused", "3own"]);
    expect(await send(other)).toEqual([]);
    await owner.evaluate(() => {
      tab.queue.refused(2, { code: "TOPIC_FORBIDDEN", message: "no" } as never);
      tab.queue.acknowledge(3);
    });
    await other.waitForFunction(
      () => tab.outcomes["from another"] === "acknowledged" && tab.queue.depth === 0,
    );
    expect(await outcomes(other)).toEqual({ "from another": "acknowledged", refused: "TOPIC_FORBIDDEN" });
    expect(await outcomes(owner)).toEqual({ own: "acknowledged" });
    await Promise.all([owner.close(), other.close()]);
  });

  test.each(["closes", "crashes", "ends its client"])("another takes over when the owner %s", async (how) => {
    const name = `owner ${how}`;
    const owner = await openTab(name);
    const [second, third] = [await openTab(name), await openTab(name)];
    await owner.evaluate(() => tab.add("a", "b"));
    await second.evaluate(() => tab.add("c"));
    await third.evaluate(() => tab.add("d"));
    const producer = await owner.evaluate(() => tab.queue.producerId);
    expect(await send(owner)).toEqual(["1a", "2b", "3c", "4d"]);
    await owner.evaluate(() => tab.queue.acknowledge(1));
    if (how === "closes") await owner.close();
    else if (how === "crashes") await crash(owner);
    else await owner.evaluate(() => tab.queue.close());
    await Promise.any(
      [second, third].map((page) => page.waitForFunction(() => tab.queue.producerId !== undefined)),
    );
    const [next, last] = (await isOwner(second)) ? [second, third] : [third, second];
    expect(await isOwner(last)).toBe(false);
    expect(await next.evaluate(() => tab.queue.producerId)).toBe(producer);
    // The server has taken the second as well, and the numbers are those that they had.
    expect(await send(next, 2)).toEqual(["3c", "4d"]);
    await next.evaluate(() => tab.queue.acknowledge(4));
    await last.waitForFunction(() => Object.values(tab.outcomes).join() === "acknowledged");
    await next.waitForFunction(() => Object.values(tab.outcomes).join() === "acknowledged");
    for (const page of chromium.context.pages()) if (page.url() === site.url) await page.close();
  });

  test("a frozen page gives the queue to another, and learns what it has missed", async () => {
    const owner = await openTab("frozen");
    const other = await openTab("frozen");
    await owner.evaluate(() => tab.add("a", "b"));
    // What the browser tells a page that it freezes. It does not freeze pages that DevTools look
    // at.
    await owner.evaluate(() => document.dispatchEvent(new Event("freeze")));
    expect(await isOwner(owner)).toBe(false);
    await other.waitForFunction(() => tab.queue.producerId !== undefined);
    expect(await send(other)).toEqual(["1a", "2b"]);
    await other.evaluate(() => tab.queue.acknowledge(1));
    await other.waitForFunction(() => tab.queue.depth === 1);
    await owner.evaluate(() => document.dispatchEvent(new Event("resume")));
    await owner.waitForFunction(() => tab.outcomes.a === "CONNECTION_LOST");
    expect(await isOwner(owner)).toBe(false);
    await other.close();
    await owner.waitForFunction(() => tab.queue.producerId !== undefined);
    expect(await send(owner, 1)).toEqual(["2b"]);
    await owner.evaluate(() => tab.queue.acknowledge(2));
    await owner.waitForFunction(() => tab.outcomes.b === "acknowledged");
    await owner.close();
  });

  test("a page that goes into the back/forward cache gives the queue away and takes it again", async () => {
    const page = await openTab("cached");
    await page.evaluate(() => tab.add("a"));
    await page.evaluate(() => window.dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true })));
    expect(await isOwner(page)).toBe(false);
    await page.evaluate(() => window.dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
    await page.waitForFunction(() => tab.queue.producerId !== undefined);
    expect(await send(page)).toEqual(["1a"]);
    await page.close();
  });
});

describe("a browser that is killed", { timeout: 240_000 }, () => {
  test("has what was stored when it starts again, with the numbers that were given out", async () => {
    const profile = await makeProfile();
    let browser = await launch(profile.path);
    try {
      let page = await openTab("killed", browser);
      const texts = Array.from({ length: 300 }, (_, index) => `-${index}`);
      await page.evaluate((texts) => tab.add(...texts), texts);
      const producer = await page.evaluate(() => tab.queue.producerId);
      await page.evaluate(async () => {
        await tab.queue.resume({ epoch: "00000001", last: 0 });
        await tab.queue.take(100, 1e6);
      });
      // Another queue is written to at that moment.
      const flooded = await openTab("flooded", browser);
      await flooded.evaluate(() => void tab.flood());
      await flooded.waitForFunction(() => tab.stored.length >= 50);
      const stored = await flooded.evaluate(() => tab.stored);
      await browser.kill();
      browser = await launch(profile.path);
      const found = await send(await openTab("flooded", browser));
      expect(found.slice(0, stored.length)).toEqual(stored.map((text, index) => `${index + 1}${text}`));
      page = await openTab("killed", browser);
      expect(await page.evaluate(() => tab.queue.producerId)).toBe(producer);
      expect(await page.evaluate(() => tab.queue.depth)).toBe(300);
      const numbered = texts.map((text, index) => `${index + 1}${text}`);
      expect(await send(page, 40)).toEqual(numbered.slice(40));
    } finally {
      await browser.kill();
      await profile.remove();
    }
  });
});
