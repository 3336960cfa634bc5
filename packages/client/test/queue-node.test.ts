import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdtemp, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { queue } from "../src/queue/node.js";
import { cases, codeOf, open, take } from "./queue-cases.js";

/** Where `packages/run` installs other versions of Node; beside the workspace, so that nothing else runs on them. */
const nodeFolder = fileURLToPath(new URL("nodes/node_modules/", import.meta.url));

/**
 * Each Node here that has `node:sqlite`: this one, one that `NODE_WITH_SQLITE` names, and those
 * that npm has installed.
 */
const nodes = [
  process.getBuiltinModule?.("node:sqlite") ? process.execPath : "",
  process.env.NODE_WITH_SQLITE ?? "",
  join(nodeFolder, "node-22/bin/node"),
  join(nodeFolder, "node-24/bin/node"),
].filter((path) => path !== "" && existsSync(path));

let folder: string;
let program: string;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tidewire-queue-"));
  const bundled = await build({
    entryPoints: [fileURLToPath(new URL("queue-program.ts", import.meta.url))],
    bundle: true,
    write: false,
    format: "esm",
    platform: "node",
    target: "node20",
  });
  program = join(folder, "program.mjs");
  await writeFile(program, bundled.outputFiles[0]!.contents);
});

afterAll(() => rm(folder, { recursive: true, force: true }));

/** A program with a queue, which answers each line that it is sent. */
class Program {
  readonly #child: ChildProcessByStdio<Writable, Readable, null>;
  readonly #lines: AsyncIterator<string>;

  constructor(node: string) {
    const args = ["--disable-warning=ExperimentalWarning", program];
    this.#child = spawn(node, args, { stdio: ["pipe", "pipe", "inherit"] });
    this.#lines = createInterface({ input: this.#child.stdout })[Symbol.asyncIterator]();
  }

  async call(...command: unknown[]): Promise<unknown> {
    this.#child.stdin.write(`${JSON.stringify(command)}\n`);
    return this.next();
  }

  /** The next line of what it says. */
  async next(): Promise<unknown> {
    const { value } = await this.#lines.next();
    if (value === undefined) throw new Error("the program has ended");
    const { result, error } = JSON.parse(value);
    if (error !== undefined) throw new Error(error);
    return result;
  }

  async kill(): Promise<void> {
    const exited = once(this.#child, "exit");
    this.#child.kill("SIGKILL");
    await exited;
  }
}

describe.each(nodes)("queue in a file: %s", { timeout: 60_000 }, (node) => {
  const file = (name: string | number) => join(folder, `${nodes.indexOf(node)}-${name}.db`);
  let shared: Program;
  beforeAll(() => {
    shared = new Program(node);
  });
  afterAll(() => shared.kill());

  test.each(Object.keys(cases))("%s", async (name) => {
    await shared.call("case", name, file(Object.keys(cases).indexOf(name)));
  });

  test("a killed program leaves what was stored, with the numbers that were given out", async () => {
    const path = file("killed");
    const first = new Program(node);
    await first.call("open", path);
    await first.call("add", "a", "b", "c", "d");
    expect(await first.call("send", 0, 2)).toEqual(["1a", "2b"]);
    const producer = await first.call("producer");
    await first.kill();
    const second = new Program(node);
    expect(await second.call("open", path)).toEqual({ depth: 4, reports: [] });
    expect(await second.call("producer")).toBe(producer);
    expect(await second.call("send", 1, 10)).toEqual(["2b", "3c", "4d"]);
    await second.kill();
  });

  test("whatever it was told is stored is there after a kill in the middle of storing", async () => {
    for (const count of [1, 40, 200]) {
      const path = file(`flood-${count}`);
      const first = new Program(node);
      await first.call("open", path);
      const stored: unknown[] = [await first.call("flood")];
      while (stored.length < count) stored.push(await first.next());
      await first.kill();
      const second = new Program(node);
      await second.call("open", path);
      const found = (await second.call("send", 0, 100_000)) as string[];
      expect(found.slice(0, count)).toEqual(stored.map((text, index) => `${index + 1}${text}`));
      await second.kill();
    }
  });

  test("one client at a time uses a file, in one program and in several", async () => {
    const path = file("used");
    const [first, second] = [new Program(node), new Program(node)];
    await first.call("open", path);
    await expect(first.call("open", path)).rejects.toThrow("QUEUE_FAILED");
    await expect(second.call("open", path)).rejects.toThrow("in use by another client");
    await first.kill();
    await second.call("open", path);
    await second.kill();
  });

  test("the file is that of the other clients: tables, versions and epochs", async () => {
    const path = file("tables");
    await shared.call("sql", path, [
      `CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
       CREATE TABLE messages (row INTEGER PRIMARY KEY AUTOINCREMENT, level INTEGER NOT NULL, number INTEGER, topic TEXT,
         type TEXT NOT NULL, payload BLOB NOT NULL, key TEXT, expires_ms INTEGER);
       CREATE INDEX waiting ON messages (level DESC, row) WHERE number IS NULL;
       CREATE INDEX expiring ON messages (expires_ms) WHERE number IS NULL;
       CREATE UNIQUE INDEX numbered ON messages (number) WHERE number IS NOT NULL;
       PRAGMA user_version = 1;
       INSERT INTO meta VALUES ('producer', 'old'), ('epoch', '7');
       INSERT INTO messages (level, number, type, payload) VALUES (5, 3, 'count', x'223122');
       INSERT INTO messages (level, type, payload) VALUES (5, 'count', x'223222');`,
    ]);
    const one = new Program(node);
    expect(await one.call("open", path)).toEqual({ depth: 2, reports: [] });
    expect(await one.call("producer")).toBe("old");
    expect(await one.call("send", 2, 10, "00000007")).toEqual(["31", "42"]);
    expect(await one.call("send", 0, 10, "0000000a")).toEqual([]);
    await one.kill();
    const two = new Program(node);
    const found = (await two.call("open", path)) as { depth: number; reports: unknown[] };
    expect(found).toMatchObject({ depth: 2, reports: [{ type: "uncertain", resent: false }] });
    await two.kill();
    const sql = ["PRAGMA user_version", "SELECT value FROM meta WHERE name = 'epoch'"];
    expect(await shared.call("sql", path, sql)).toEqual([[{ user_version: 2 }], [{ value: "10" }]]);
  });

  test("a file becomes one that older programs cannot read with its first binary payload, not before", async () => {
    const path = file("binary");
    const version = async () => (await shared.call("sql", path, ["PRAGMA user_version"])) as unknown;
    const one = new Program(node);
    await one.call("open", path);
    await one.call("add", "a");
    await one.kill();
    expect(await version()).toEqual([[{ user_version: 2 }]]);
    const two = new Program(node);
    await two.call("open", path);
    await two.call("addBinary", "AAH/");
    await two.call("add", "b");
    await two.kill();
    expect(await version()).toEqual([[{ user_version: 3 }]]);
    const sql = ["SELECT CAST(payload AS TEXT) AS payload, binary FROM messages ORDER BY row"];
    const rows = [
      { payload: '"a"', binary: 0 },
      { payload: '"AAH/"', binary: 1 },
      { payload: '"b"', binary: 0 },
    ];
    expect(await shared.call("sql", path, sql)).toEqual([rows]);
    const three = new Program(node);
    expect(await three.call("open", path)).toMatchObject({ depth: 3 });
    expect(await three.call("send", 0, 10)).toEqual(["1a", "2AAH/", "3b"]);
    await three.kill();
  });

  test("only the owner of the file may read it and what is beside it", async () => {
    const folder = await mkdtemp(join(tmpdir(), "tidewire-private-"));
    const path = join(folder, "queue.db");
    const modes = async () => {
      const names = (await readdir(folder)).sort();
      return Promise.all(
        names.map(async (name) => [name, ((await stat(join(folder, name))).mode & 0o777).toString(8)]),
      );
    };
    const expected = [
      ["queue.db", "600"],
      ["queue.db-wal", "600"],
    ];
    for (let round = 0; round < 2; round += 1) {
      const one = new Program(node);
      await one.call("open", path);
      expect(await modes()).toEqual(expected);
      await one.kill();
      // As an older version has left them.
      for (const [name] of await modes()) await chmod(join(folder, name!), 0o644);
    }
    await rm(folder, { recursive: true });
  });

  test("a file of a later version is refused", async () => {
    const path = file("later");
    await shared.call("sql", path, ["PRAGMA user_version = 4"]);
    const one = new Program(node);
    await expect(one.call("open", path)).rejects.toThrow("has version 4 of the queue");
    await one.kill();
  });
});

describe("queue in Node", () => {
  test("an option that it does not have is named", () => {
    expect(() => queue({ maxMessages: 5 } as never)).toThrow(
      "no option maxMessages; it has name, path, messagesMax",
    );
  });

  test("without a path it is memory, without a word", async () => {
    const opened = await open({ isPersistent: false, make: (limits = {}) => queue(limits) });
    expect(opened.reports).toEqual([]);
    expect(await codeOf(opened.queue.add({ type: "a", payload: "1", priority: 5 }))).toBe("none");
    await opened.queue.resume({ epoch: "00000001", last: 0 });
    expect(await take(opened.queue)).toEqual(["11"]);
    const { producerId } = opened.queue;
    await opened.queue.close();
    // Another client may go on with it.
    await opened.queue.open({ wake() {}, report() {} });
    expect([opened.queue.producerId, opened.queue.depth]).toEqual([producerId, 1]);
    await opened.queue.close();
  });

  test.skipIf(process.getBuiltinModule?.("node:sqlite"))("a Node without node:sqlite says so", async () => {
    const path = join(tmpdir(), "tidewire-never-made.db");
    const opened = await open({ isPersistent: false, make: (limits = {}) => queue({ path, ...limits }) });
    expect(opened.reports).toMatchObject([
      { type: "queue_in_memory", reason: expect.stringContaining("node:sqlite") },
    ]);
    expect(existsSync(path)).toBe(false);
    await opened.queue.close();
  });
});
