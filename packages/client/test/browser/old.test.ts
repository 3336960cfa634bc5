/** The packed package in pages that old tools make: Parcel as it is installed, and a classic `<script>`. */

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Engine, startEngine } from "../node/engine.js";
import { makeProject, type Project } from "../packed.js";
import { serveFiles } from "./files.js";
import { type Chromium, launch } from "./page.js";

const parcel = fileURLToPath(new URL("../old/node_modules/parcel/lib/bin.js", import.meta.url));
let project: Project;
let engine: Engine;
let chromium: Chromium;
let site: Awaited<ReturnType<typeof serveFiles>>;

beforeAll(async () => {
  project = makeProject();
  engine = await startEngine("--no-auth", "--topics-open", "--origin", "any", "--log-level", "error");
  site = await serveFiles(project.folder);
  chromium = await launch();
}, 120_000);

afterAll(async () => {
  await chromium?.close();
  await site?.close();
  await engine?.stop();
  project?.remove();
});

/** A session with MessagePack, whose result is the page's title. */
const session = (names: string) => `
  (async () => {
    const { open, msgpack, queue } = ${names};
    const client = await open("ws://${engine.address}/ws", { format: msgpack(), queue: queue({ name: "old" }) });
    const subscription = await client.subscribe("room").ready();
    const received = new Promise((resolve) => subscription.on("message", resolve));
    await client.publish("room", { text: "received" });
    document.title = (await received).payload.text;
    await client.close();
  })().catch((error) => (document.title = String(error && error.stack)));
`;

async function titleOf(path: string): Promise<string> {
  const page = await chromium.context.newPage();
  try {
    page.on("pageerror", (error) => console.error(error));
    await page.goto(site.url + path);
    await page.waitForFunction(() => document.title !== "");
    return await page.title();
  } finally {
    await page.close();
  }
}

test.skipIf(!existsSync(parcel))("a bundle of Parcel, which reads neither exports nor imports", async () => {
  project.write("package.json", '{ "name": "page", "private": true }');
  project.write("page.html", '<!doctype html><script type="module" src="./page.js"></script>');
  const imports = `
    import * as core from "@tidewire/client";
    import * as format from "@tidewire/client/msgpack";
    import * as outbox from "@tidewire/client/queue";
  `;
  project.write("page.js", imports + session("{ ...core, ...format, ...outbox }"));
  const args = [
    "build",
    "page.html",
    "--no-cache",
    "--no-source-maps",
    "--no-autoinstall",
    "--public-url",
    "./",
    "--dist-dir",
    "built",
    "--log-level",
    "error",
  ];
  execFileSync(process.execPath, [parcel, ...args], {
    cwd: project.folder,
    encoding: "utf8",
  });
  expect(await titleOf("built/page.html")).toBe("received");
});

test("a classic script, whose global has every part", async () => {
  const src = "node_modules/@tidewire/client/dist/tidewire.all.global.js";
  project.write(
    "all.html",
    `<!doctype html><script src="${src}"></script><script>${session("tidewire")}</script>`,
  );
  expect(await titleOf("all.html")).toBe("received");
});

test("a classic script, whose global has the core", async () => {
  const src = "node_modules/@tidewire/client/dist/tidewire.global.js";
  const names = "{ ...tidewire, msgpack: () => undefined, queue: () => undefined }";
  project.write(
    "core.html",
    `<!doctype html><script src="${src}"></script><script>${session(names)}</script>`,
  );
  expect(await titleOf("core.html")).toBe("received");
});
