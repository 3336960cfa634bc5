/** The package as its users get it: packed, installed elsewhere, and used by each kind of project. */

import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "vite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Engine, startEngine } from "./node/engine.js";
import { makeProject, type Project, root } from "./packed.js";

let project: Project;
let folder: string;
let engine: Engine;

beforeAll(async () => {
  project = makeProject();
  folder = project.folder;
  engine = await startEngine("--no-auth", "--topics-open", "--log-level", "error");
}, 120_000);

afterAll(async () => {
  await engine?.stop();
  project?.remove();
});

const BODY = `
  const client = await open(process.argv[2], { format: msgpack() });
  const subscription = await client.subscribe("a").ready();
  const loop = (async () => {
    for await (const { payload } of subscription) return payload;
  })();
  await client.publish("a", { text: "packed" });
  console.log(JSON.stringify(await loop));
  await client.close();
`;

function write(name: string, text: string): string {
  return project.write(name, text);
}

function run(path: string): string {
  return execFileSync("node", [path, `ws://${engine.address}/ws`], {
    encoding: "utf8",
    timeout: 30_000,
  }).trim();
}

test("an ES module of plain Node", () => {
  const imports =
    'import { open } from "@tidewire/client";\nimport { msgpack } from "@tidewire/client/msgpack";\n';
  expect(run(write("esm.mjs", imports + BODY))).toBe('{"text":"packed"}');
});

test("CommonJS of plain Node, whose entry points share one error class", () => {
  const head = `
    const { open, TidewireError } = require("@tidewire/client");
    const { msgpack } = require("@tidewire/client/msgpack");
    const { queue } = require("@tidewire/client/queue");
    try { msgpack().payload(1n << 70n); } catch (error) { if (!(error instanceof TidewireError)) throw error; }
    if (typeof queue !== "function") throw new Error("no queue");
  `;
  expect(run(write("cjs.cjs", `${head}(async () => {${BODY}})();`))).toBe('{"text":"packed"}');
});

test("TypeScript, as an ES module and as CommonJS", () => {
  const text = `
    import { connect, type Message, type Subscription } from "@tidewire/client";
    import { queue } from "@tidewire/client/queue";
    import { quality } from "@tidewire/client/quality";
    interface Price { bid: number }
    export async function start(): Promise<number> {
      const meter = quality();
      const client = connect("ws://a.example/ws", { queue: queue(), quality: meter });
      // @ts-expect-error Nothing but quality() makes what measures a connection.
      connect("ws://a.example/ws", { quality: { get: () => meter.get() } });
      const prices: Subscription<Price> = client.subscribe<Price>("prices.*", { recover: true });
      prices.on("message", (message: Message<Price>) => { message.payload.bid.toFixed(); });
      return client.request<number>("sum", [1, 2]);
    }
  `;
  const files = [write("esm.mts", text), write("cjs.cts", text)];
  const options = [
    "--noEmit",
    "--strict",
    "--module",
    "nodenext",
    "--target",
    "es2022",
    "--lib",
    "es2023,dom",
  ];
  execFileSync(`${root}node_modules/.bin/tsc`, [...options, "--types", "", ...files], {
    cwd: folder,
    stdio: "pipe",
  });
});

test("Vite, which takes the browser's transport and only what is imported", async () => {
  write("main.js", 'import { connect } from "@tidewire/client"; globalThis.connect = connect;');
  const output = await build({
    root: folder,
    logLevel: "error",
    build: { write: false, minify: false, lib: { entry: "main.js", formats: ["es"] } },
  });
  const [{ output: chunks }] = [output].flat() as unknown as [{ output: { code: string }[] }];
  const code = chunks.map((chunk) => chunk.code).join("");
  expect(code).toContain("WebSocket");
  for (const absent of ["node:net", "node:tls", "indexedDB", "BroadcastChannel", "subtle.deriveBits"]) {
    expect(code).not.toContain(absent);
  }
});

test("a page without a bundler loads one file without imports", () => {
  const code = readFileSync(join(folder, "node_modules/@tidewire/client/dist/tidewire.min.js"), "utf8");
  expect(code).not.toMatch(/(?:^|;)(?:import|export)[^;]*from"/);
  expect(code).toMatch(/export\s*\{/);
});

test("10,000 subscriptions take at most 1 KB of heap each, and leave nothing", () => {
  const text = `
    import { connect } from "@tidewire/client";
    import { FakeTransport } from "@tidewire/client/testing";
    const transport = new FakeTransport();
    transport.onConnect = (connection) => {
      connection.onMessage = ({ t, cid, p }) => {
        connection.sent.length = 0;
        if (t !== "subscription_update") return;
        const at = { epoch: "0000000a", offset: 1, recovered: false, count: 0 };
        const recovery = Object.fromEntries(p.topics.map((topic) => [topic, at]));
        const answer = { action: p.action, success_topics: p.topics, failed_topics: [], recovery };
        connection.send({ c: "WSE", t, cid, p: answer });
      };
      connection.accept({ features: { topics: true } });
    };
    const client = await connect("ws://fake.test/", { transport }).connected();
    const used = async () => {
      await new Promise((done) => setTimeout(done, 50));
      gc();
      gc();
      return process.memoryUsage().heapUsed;
    };
    const subscribe = (name) => client.subscribe(name + ".topic").ready();
    const all = (names) => Promise.all(names.map(subscribe));
    const end = (list) => Promise.all(list.map((one) => one.unsubscribe()));
    const names = (word) => Array.from({ length: 10_000 }, (_, index) => word + index);
    await end(await all(names("before").slice(0, 1_000)));
    const before = await used();
    let list = await all(names("measured"));
    const each = (await used() - before) / list.length;
    await end(list);
    list = undefined;
    const left = (await used() - before) / 10_000;
    console.log(JSON.stringify({ each, left }));
    await client.close();
  `;
  const path = write("heap.mjs", text);
  const output = execFileSync("node", ["--expose-gc", path], { encoding: "utf8", timeout: 55_000 });
  const { each, left } = JSON.parse(output) as { each: number; left: number };
  expect(each, "bytes of each").toBeLessThanOrEqual(1024);
  expect(left, "bytes that each leaves").toBeLessThan(64);
});
