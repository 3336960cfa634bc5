/** A page without a server, as Electron loads it: its origin is `null`. */

import { copyFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Engine, startEngine } from "../node/engine.js";
import { makeProject, type Project } from "../packed.js";
import { type Chromium, launch } from "./page.js";

let project: Project;
let chromium: Chromium;
const engines: Engine[] = [];

beforeAll(async () => {
  project = makeProject();
  copyFileSync(`${project.target}/dist/tidewire.global.js`, `${project.folder}/tidewire.global.js`);
  chromium = await launch();
}, 120_000);

afterAll(async () => {
  await chromium?.close();
  for (const engine of engines) await engine.stop();
  project?.remove();
});

/** What a page at `file://` has as its title after a session with a server of these options. */
async function titleWith(...options: string[]): Promise<string> {
  const engine = await startEngine("--no-auth", "--topics-open", "--log-level", "error", ...options);
  engines.push(engine);
  const path = project.write(
    `page-${engines.length}.html`,
    `<!doctype html><script src="tidewire.global.js"></script><script>
      tidewire.open("ws://${engine.address}/ws", { reconnect: false }).then(async (client) => {
        const subscription = await client.subscribe("room").ready();
        const received = new Promise((resolve) => subscription.on("message", resolve));
        await client.publish("room", { text: "received" });
        document.title = (await received).payload.text;
      }).catch((error) => (document.title = error.code));
    </script>`,
  );
  const page = await chromium.context.newPage();
  try {
    await page.goto(pathToFileURL(path).href);
    await page.waitForFunction(() => document.title !== "");
    return await page.title();
  } finally {
    await page.close();
  }
}

test("a page at file:// has sessions where the origin null is allowed", async () => {
  expect(await titleWith("--origin", "null")).toBe("received");
});

test("a page at file:// has none where it is not", async () => {
  expect(await titleWith()).toBe("CONNECT_FAILED");
});
