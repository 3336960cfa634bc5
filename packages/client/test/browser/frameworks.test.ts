/** Applications of Vue and Svelte in Chromium, with the real server. */

import { readFile } from "node:fs/promises";
import type { Plugin } from "esbuild";
import { compile } from "svelte/compiler";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Client, connect } from "../../src/index.js";
import { type Engine, startEngine } from "../node/engine.js";
import type { Frameworks } from "./frameworks.page.js";
import { type Chromium, launch, type Site, serve } from "./page.js";

declare const frameworks: Frameworks;

const components: Plugin = {
  name: "svelte",
  setup(build) {
    build.onLoad({ filter: /\.svelte$/ }, async ({ path }) => ({
      contents: compile(await readFile(path, "utf8"), { filename: path, generate: "client" }).js.code,
    }));
  },
};

let site: Site;
let chromium: Chromium;
let engine: Engine;
let writer: Client;

beforeAll(async () => {
  site = await serve("frameworks.page.ts", [components]);
  const options = ["--no-auth", "--topics-open", "--history", "kept.>=1000", "--presence", "room.*"];
  [engine, chromium] = await Promise.all([
    startEngine(...options, "--origin", new URL(site.url).origin),
    launch(),
  ]);
  writer = connect(`ws://${engine.address}/ws`);
}, 60_000);

afterAll(async () => {
  await chromium?.close();
  await writer?.close();
  await site?.close();
  await engine?.stop();
});

test.each(["Vue", "Svelte"])(
  "%s shows a topic, a burst of it in few updates, and who is there",
  async (name) => {
    const page = await chromium.context.newPage();
    await page.goto(site.url);
    const start = [name.toLowerCase(), `ws://${engine.address}/ws`] as const;
    await page.evaluate(([which, url]) => frameworks.start(which, url), start);
    const before = name === "Vue" ? 0 : 200;
    const numbers = () => Array.from({ length: last - first }, (_, n) => n + first).join(",");
    // The replay gives the newest hundred.
    let [first, last] = [Math.max(0, before - 100), before];
    const shows = (text: string) => page.waitForFunction((wanted) => frameworks.text() === wanted, text);
    await shows(`open ${name} ${numbers()}`.trim());
    const changes = await page.evaluate(() => frameworks.changes);
    await Promise.all(Array.from({ length: 200 }, (_, n) => writer.publish("kept.chat", before + n)));
    last += 200;
    await shows(`open ${name} ${numbers()}`);
    expect(await page.evaluate(() => frameworks.changes)).toBeLessThan(changes + 200);
    await page.evaluate(() => frameworks.end());
    await shows("");
    await page.close();
  },
);
