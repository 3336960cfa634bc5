/** The packed package for those who do not read its `exports`, and what its minified files say of their sources. */

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeProject, type Project, root } from "./packed.js";

const tsc = fileURLToPath(new URL("./old/node_modules/typescript/bin/tsc", import.meta.url));
let project: Project;

beforeAll(() => {
  project = makeProject();
}, 120_000);

afterAll(() => project?.remove());

test.skipIf(!existsSync(tsc))("TypeScript that resolves as Node 10 did finds each part and its types", () => {
  const path = project.write(
    "old.ts",
    `
    import { connect, type Message } from "@tidewire/client";
    import { compress } from "@tidewire/client/compress";
    import { encrypt } from "@tidewire/client/encrypt";
    import { endpoints } from "@tidewire/client/endpoints";
    import { msgpack } from "@tidewire/client/msgpack";
    import { nodeTransport } from "@tidewire/client/node";
    import { quality } from "@tidewire/client/quality";
    import { queue } from "@tidewire/client/queue";
    import { shared } from "@tidewire/client/shared";
    import { sign } from "@tidewire/client/sign";
    import { FakeTransport } from "@tidewire/client/testing";
    export const parts = [compress, encrypt, endpoints, nodeTransport, quality, queue, shared, sign, FakeTransport];
    export function start(): Promise<number> {
      const client = connect("ws://a.example/ws", { format: msgpack() });
      client.subscribe<{ bid: number }>("a").on("message", (message: Message<{ bid: number }>) => {
        message.payload.bid.toFixed();
        // @ts-expect-error The types are the package's, and not any.
        message.payload.ask;
      });
      return client.request<number>("sum", [1, 2]);
    }
  `,
  );
  const types = ["--typeRoots", `${root}node_modules/@types`, "--types", "node"];
  const options = [
    "--strict",
    "--skipLibCheck",
    "--module",
    "commonjs",
    "--target",
    "es2022",
    "--lib",
    "es2023,dom",
    ...types,
  ];
  execFileSync(process.execPath, [tsc, ...options, path], { cwd: project.folder, encoding: "utf8" });
});

test("an error in a minified file names the source", () => {
  const path = project.write(
    "map.mjs",
    `
    import { connect } from "./node_modules/@tidewire/client/dist/tidewire.min.js";
    import { sign } from "./node_modules/@tidewire/client/dist/min/sign.js";
    for (const call of [() => connect("ftp://a.example"), () => sign({ secret: "short" })]) {
      try {
        call();
      } catch ({ stack }) {
        console.log(stack);
      }
    }
  `,
  );
  const output = execFileSync(process.execPath, ["--enable-source-maps", path], { encoding: "utf8" });
  for (const [name, words] of [
    ["options", "new TidewireError("],
    ["sign", "new TidewireError("],
  ]) {
    const line = new RegExp(`/dist/esm/${name}\\.js:(\\d+)`).exec(output)?.[1];
    expect(line, output).toBeDefined();
    const source = readFileSync(join(project.target, `dist/esm/${name}.js`), "utf8").split("\n");
    expect(source.slice(Number(line) - 1, Number(line) + 1).join("\n")).toContain(words);
  }
});
