import type { Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { SYMBOLS } from "../tools/publisher.js";
import { python, type Stage, startPythonStage } from "./support.js";

const program = python();

describe.skipIf(program === undefined)("the server in Python", () => {
  let stage: Stage;

  beforeAll(async () => {
    stage = await startPythonStage(program!);
  });

  afterAll(() => stage?.close());

  const has = (page: Page, selector: string, text: string) =>
    page.waitForFunction(
      ([where, wanted]) => document.querySelector(where!)?.textContent?.includes(wanted!) === true,
      [selector, text],
    );

  async function add(page: Page, text: string): Promise<void> {
    await page.fill("input", text);
    await page.click("button");
  }

  test("keeps the chat and its members", { timeout: 180_000 }, async () => {
    const ada = await stage.open("chat", { name: "Ada" });
    const bob = await stage.open("chat", { name: "Bob" });
    await has(ada, ".members", "Bob");
    await add(bob, "from Python");
    await has(ada, ".lines", "Bob from Python");
    await ada.close();
    await bob.close();
  });

  test("publishes the prices", { timeout: 180_000 }, async () => {
    const page = await stage.open("prices");
    await page.waitForFunction(
      (rows) => document.querySelectorAll("td:nth-child(3):not(:empty)").length === rows,
      SYMBOLS,
    );
    expect(await page.locator("tbody tr").count()).toBe(SYMBOLS);
    await page.close();
  });

  test("takes the entries of the form", { timeout: 180_000 }, async () => {
    const page = await stage.open("form");
    await add(page, "an entry");
    await has(page, ".entries", "an entry");
    await page.waitForSelector('.status[data-waiting="0"]');
    await page.close();
  });
});
