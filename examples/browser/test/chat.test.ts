import { connect, debug } from "@tidewire/client";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Stage, startStage } from "./support.js";

let stage: Stage;

beforeAll(async () => {
  stage = await startStage("--history", "chat.*=100", "--presence", "chat.*");
});

afterAll(() => stage?.close());

const lines = (page: Page) => page.locator(".lines li");
const members = (page: Page) => page.locator(".members li");

async function say(page: Page, text: string): Promise<void> {
  await page.fill("input", text);
  await page.click("button");
}

/** Waits until a list has these entries, in this order. */
async function shows(page: Page, selector: string, wanted: string[]): Promise<void> {
  await page.waitForFunction(
    ([where, list]) => {
      const found = [...document.querySelectorAll(where as string)].map((entry) => entry.textContent);
      return JSON.stringify(found) === JSON.stringify(list);
    },
    [selector, wanted] as const,
  );
}

test("who is here is live, and what is said reaches all", { timeout: 180_000 }, async () => {
  const ada = await stage.open("chat", { name: "Ada" });
  await shows(ada, ".members li", ["Ada"]);
  const bob = await stage.open("chat", { name: "Bob" });
  await shows(ada, ".members li", ["Ada", "Bob"]);
  await bob.waitForFunction(() => document.querySelectorAll(".members li").length === 2);
  expect((await members(bob).allTextContents()).sort()).toEqual(["Ada", "Bob"]);
  await say(ada, "hello");
  await say(bob, "good morning");
  await shows(ada, ".lines li", ["Ada hello", "Bob good morning"]);
  await shows(bob, ".lines li", ["Ada hello", "Bob good morning"]);
  await bob.close();
  await shows(ada, ".members li", ["Ada"]);
  await ada.close();
});

test("what is said while the connection is lost is there afterwards", { timeout: 180_000 }, async () => {
  const ada = await stage.open("chat", { name: "Ada" });
  await shows(ada, ".members li", ["Ada"]);
  const before = await lines(ada).count();
  await ada.context().setOffline(true);
  await ada.waitForFunction(() => document.querySelector(".status")?.getAttribute("data-state") !== "open");
  const other = connect(stage.server);
  await other.publish("chat.lobby", { name: "Bob", text: "are you there?" });
  await ada.context().setOffline(false);
  await ada.waitForFunction((count) => document.querySelectorAll(".lines li").length > count, before);
  expect(await lines(ada).last().textContent()).toBe("Bob are you there?");
  await other.close();
  await ada.close();
});

test("a newcomer reads what was said before", { timeout: 180_000 }, async (context) => {
  const client = await connect(stage.server).connected();
  await client.publish("chat.lobby", { name: "Cleo", text: "this is old" });
  const features = debug(client)["features"] as Record<string, unknown>;
  await client.close();
  if (!features["history"]) return context.skip("the engine gives newcomers no history");
  const late = await stage.open("chat", { name: "Late" });
  await late.waitForFunction(() => document.querySelector(".lines")?.textContent?.includes("this is old"));
  await late.close();
});
