/** The page in Chromium against the game server on the package `tidewire`. */

import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Chromium, launch } from "../../../../packages/client/test/browser/page.js";
import { pageFiles } from "../../src/server/page-files.js";
import { TestServer, tidewire } from "../support.js";

const SCHOLARS_MATE = ["e2e4", "e7e5", "d1h5", "b8c6", "f1c4", "g8f6", "h5f7"];
/** White's pawn takes the knight on the last rank. */
const TO_PROMOTION = ["h2h4", "g7g5", "h4g5", "h7h6", "g5h6", "a7a6", "h6h7", "a6a5", "h7g8"];

describe.skipIf(!tidewire)("the page", () => {
  let server: TestServer;
  let chromium: Chromium;

  beforeAll(async () => {
    [server, chromium] = await Promise.all([TestServer.start({}, undefined, await pageFiles()), launch()]);
  });

  afterAll(async () => {
    await chromium?.close();
    await server?.stop();
  });

  /** Opens a window of a player. */
  async function open(name: string, hash = ""): Promise<Page> {
    const page = await chromium.context.newPage();
    page.setDefaultTimeout(60_000);
    page.on("pageerror", (error) => console.error(`the page of ${name}:`, error));
    await page.goto(`${server.running.site.origin}/?name=${name}${hash}`);
    await page.waitForSelector('.status[data-state="open"]');
    return page;
  }

  async function move(page: Page, text: string): Promise<void> {
    await page.click(`[data-square="${text.slice(0, 2)}"]`);
    await page.click(`[data-square="${text.slice(2, 4)}"]`);
  }

  const plies = (page: Page, count: number) => page.waitForSelector(`.room[data-plies="${count}"]`);
  const fen = async (page: Page) => (await page.getAttribute(".board", "data-fen")) ?? "";
  const hashOf = (page: Page) => new URL(page.url()).hash;

  test("two windows play to mate, a third watches, and one that is closed comes back", {
    timeout: 180_000,
  }, async () => {
    const ada = await open("Ada");
    await ada.click(".new-room button");
    await ada.waitForSelector('.room[data-status="waiting"]');
    const room = hashOf(ada);
    expect(room).toMatch(/^#\/rooms\/\d+$/);

    // Bob finds the room in the lobby.
    let bob = await open("Bob");
    await bob.click(`.rooms a[href="${room}"]`);
    await bob.click(".sit");
    await bob.waitForSelector('.room[data-status="playing"]');
    const cleo = await open("Cleo", room);
    await cleo.waitForSelector('.room[data-status="playing"]');
    expect(await cleo.locator(".actions").count()).toBe(0);

    for (const [index, text] of SCHOLARS_MATE.entries()) {
      if (index === 3) {
        // Bob's window is closed in the middle of the game; it comes back as the same player, in
        // the same position.
        const before = await fen(ada);
        await bob.close();
        bob = await open("Bob", room);
        await plies(bob, index);
        expect(await fen(bob)).toBe(before);
      }
      await move(index % 2 === 0 ? ada : bob, text);
      await Promise.all([ada, bob, cleo].map((page) => plies(page, index + 1)));
      expect(await fen(cleo)).toBe(await fen(ada));
    }
    for (const page of [ada, bob, cleo]) {
      await page.waitForSelector('.room[data-status="over"]');
      expect(await page.textContent(".result")).toBe("White wins: checkmate");
    }
    for (const page of [ada, bob, cleo]) await page.close();
  });

  test("shows why a move is refused, and the chat with a mute", { timeout: 180_000 }, async () => {
    const ada = await open("Ada");
    await ada.selectOption('[name="against"]', "0");
    await ada.click(".new-room button");
    await ada.waitForSelector('.room[data-status="playing"]');
    await move(ada, "e2e5");
    await ada.waitForSelector('[role="alert"]:has-text("not legal")');
    await move(ada, "e2e4");
    // The machine answers.
    await plies(ada, 2);

    const bob = await open("Bob", hashOf(ada));
    await bob.fill('.chat [name="text"]', "hello from Bob");
    await bob.click(".chat form button");
    await ada.click('.chat li:has-text("hello from Bob") button');
    await ada.waitForSelector('.chat li button:has-text("unmute")');
    await bob.fill('.chat [name="text"]', "again");
    await bob.click(".chat form button");
    await bob.waitForSelector('[role="alert"]:has-text("muted")');
    await ada.click('.actions button:has-text("Resign")');
    await bob.waitForSelector('.room[data-status="over"]');
    await ada.close();
    await bob.close();
  });

  test("marks where a piece may go, and asks what a pawn becomes", { timeout: 180_000 }, async () => {
    const ada = await open("Ada");
    await ada.click(".new-room button");
    await ada.waitForSelector('.room[data-status="waiting"]');
    const bob = await open("Bob", hashOf(ada));
    await bob.click(".sit");
    await ada.waitForSelector('.room[data-status="playing"]');
    await ada.click('[data-square="g1"]');
    const targets = await ada
      .locator(".target")
      .evaluateAll((squares) => squares.map((square) => (square as HTMLElement).dataset.square).sort());
    expect(targets).toEqual(["f3", "h3"]);
    for (const [index, text] of TO_PROMOTION.entries()) {
      await move(index % 2 === 0 ? ada : bob, text);
      if (index === TO_PROMOTION.length - 1) await ada.click('.promotion [aria-label="knight"]');
      await Promise.all([ada, bob].map((page) => plies(page, index + 1)));
    }
    expect(await bob.getAttribute('[data-square="g8"]', "aria-label")).toBe("g8, white knight");
    expect(await bob.textContent(".moves .newest")).toBe("hxg8=N");
    await bob.click(".turn");
    expect(await bob.getAttribute(".square:first-child", "data-square")).toBe("a8");
    await ada.close();
    await bob.close();
  });

  test("fits a phone", { timeout: 180_000 }, async () => {
    const ada = await open("Ada");
    await ada.setViewportSize({ width: 360, height: 640 });
    const fits = async () =>
      expect(await ada.evaluate(() => document.documentElement.scrollWidth)).toBeLessThanOrEqual(360);
    await ada.waitForSelector(".lobby");
    await fits();
    await ada.selectOption('[name="against"]', "0");
    await ada.click(".new-room button");
    await ada.waitForSelector('.room[data-status="playing"]');
    await fits();
    await ada.click("header a");
    await ada.fill('.new-tournament [name="name"]', "A".repeat(60));
    await ada.click(".new-tournament button");
    await ada.click(".fill");
    await ada.waitForSelector('.tournament[data-status="running"]');
    await fits();
    await ada.close();
  });

  test("comes back by itself after a restart of the server", { timeout: 180_000 }, async () => {
    const ada = await open("Ada");
    await ada.selectOption('[name="against"]', "0");
    await ada.click(".new-room button");
    await ada.waitForSelector('.room[data-status="playing"]');
    await move(ada, "d2d4");
    await plies(ada, 2);
    const before = await fen(ada);
    await server.restart(async () => {
      await ada.waitForSelector('.status:not([data-state="open"])');
    });
    await ada.waitForSelector('.status[data-state="open"]');
    expect(await fen(ada)).toBe(before);
    await move(ada, "c2c3");
    await plies(ada, 4);
    await ada.close();
  });

  test("shows a tournament with its table", { timeout: 180_000 }, async () => {
    const ada = await open("Ada");
    await ada.fill('.new-tournament [name="name"]', "Spring");
    await ada.click(".new-tournament button");
    await ada.waitForSelector('.tournament[data-status="open"]');
    await ada.click(".register");
    await ada.waitForSelector(".register:has-text('Withdraw')");
    await ada.click(".fill");
    await ada.waitForSelector('.tournament[data-status="running"]');
    expect(await ada.locator("tbody tr").count()).toBe(8);
    await ada.click('li a:has-text("Ada")');
    await ada.waitForSelector('.room[data-status="playing"]');
    await ada.close();
  });
});
