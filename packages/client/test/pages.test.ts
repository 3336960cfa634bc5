/** The modules for pages without a bundler: the one file of the core, and parts of `dist/min` beside it. */

import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import type * as core from "../src/index.js";
import { nodeTransport } from "../src/node.js";
import { type Engine, startEngine } from "./node/engine.js";

const root = fileURLToPath(new URL("../../../", import.meta.url));
let engine: Engine;

beforeAll(async () => {
  if (!existsSync(`${root}packages/client/dist/min`))
    execFileSync("npm", ["run", "build", "--", "client"], { cwd: root });
  engine = await startEngine(
    "--no-auth",
    "--topics-open",
    "--encryption",
    "optional",
    "--log-level",
    "error",
  );
}, 120_000);

afterAll(async () => await engine?.stop());

/** A built module, loaded as a page loads it: by its address. */
async function load<T>(path: string): Promise<T> {
  return (await import(/* @vite-ignore */ pathToFileURL(`${root}packages/client/dist/${path}`).href)) as T;
}

test("the file of the core works with each part that travels, and they share their classes", async () => {
  const { open, TidewireError, Message } = await load<typeof core>("tidewire.min.js");
  const { encrypt } = await load<typeof import("../src/encrypt.js")>("min/encrypt.js");
  const { compress } = await load<typeof import("../src/compress.js")>("min/compress.js");
  const { msgpack } = await load<typeof import("../src/msgpack.js")>("min/msgpack.js");
  const { endpoints } = await load<typeof import("../src/endpoints.js")>("min/endpoints.js");

  const servers = endpoints([`ws://${engine.address}/ws`]);
  const client = await open(servers, {
    transport: nodeTransport(),
    encryption: encrypt(),
    compression: compress(),
    format: msgpack(),
  });
  const subscription = await client.subscribe<{ text: string }>("mixed").ready();
  const received = new Promise((resolve) => subscription.on("message", resolve));
  const text = "long enough to be compressed ".repeat(100);
  await client.publish("mixed", { text });
  expect(await received).toMatchObject({ topic: "mixed", payload: { text } });
  expect(await received).toBeInstanceOf(Message);
  await client.close();

  expect(() => encrypt({ serverKey: "short" })).toThrow(TidewireError);
  expect(() => msgpack().payload(1n << 70n)).toThrow(TidewireError);
  expect(() => endpoints([])).toThrow(TidewireError);
});

test("the queue works with the file of the core", async () => {
  const { open } = await load<typeof core>("tidewire.min.js");
  const { queue } = await load<typeof import("../src/queue.js")>("min/queue.js");
  const outbox = queue();
  const client = await open(`ws://${engine.address}/ws`, { transport: nodeTransport(), queue: outbox });
  const subscription = await client.subscribe("queued").ready();
  const received = new Promise<{ payload: unknown }>((resolve) => subscription.on("message", resolve));
  await outbox.publish("queued", { text: "once" });
  expect((await received).payload).toEqual({ text: "once" });
  await client.close();
});

test("all entries that a bundler sees lead to one core", async () => {
  const main = await load<typeof core>("min/index.js");
  const file = await load<typeof core>("tidewire.min.js");
  expect(main.TidewireError).toBe(file.TidewireError);
  expect(Object.keys(main).filter((name) => name.startsWith("_"))).toEqual([]);
});
