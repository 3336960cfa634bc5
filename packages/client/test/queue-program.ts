/** A program with a queue in a file, which a test drives by lines of JSON and may kill. */

import { createInterface } from "node:readline";
import type { QueuePort, QueueReport } from "../src/core/queue-port.js";
import { queue } from "../src/queue/node.js";
import type { Sqlite } from "../src/queue/sqlite.js";
import { addAll, cases, textsOf } from "./queue-cases.js";

let opened: QueuePort;

const commands: Record<string, (...values: never[]) => unknown> = {
  async case(name: string, path: string) {
    await cases[name]!({ isPersistent: true, make: (limits = {}) => queue({ path, ...limits }) });
  },

  async open(path: string) {
    const next = queue({ path });
    const reports: QueueReport[] = [];
    await next.open({ wake() {}, report: (report) => reports.push(report) });
    opened = next;
    // It reports when what it was opened for is done.
    await opened.resume(undefined);
    await opened.take(1, 1);
    return { depth: opened.depth, reports };
  },

  async add(...texts: string[]) {
    await addAll(opened, ...texts);
  },

  async addBinary(base64: string) {
    await opened.add({ type: "bytes", payload: JSON.stringify(base64), binary: true, priority: 5 });
  },

  /** Adds messages until it is killed, ten at a time, and tells each that is stored. */
  async flood() {
    for (let round = 0; ; round += 1) {
      const adding = Array.from({ length: 10 }, async (_, index) => {
        const text = `-${round * 10 + index}`;
        await addAll(opened, text);
        console.log(JSON.stringify({ result: text }));
      });
      await Promise.all(adding);
    }
  },

  async send(last: number, count: number, epoch = "00000001") {
    await opened.resume({ epoch, last });
    return textsOf(await opened.take(count, 1e6));
  },

  producer: () => opened.producerId,

  sql(path: string, statements: string[]) {
    const { DatabaseSync } = process.getBuiltinModule("node:sqlite") as unknown as Sqlite;
    const database = new DatabaseSync(path);
    const results = statements.map((sql) => {
      if (/^(SELECT|PRAGMA \w+$)/.test(sql)) return database.prepare(sql).all();
      return database.exec(sql);
    });
    database.close();
    return results;
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...values] = JSON.parse(line);
  try {
    const result = await commands[name]!(...(values as never[]));
    console.log(JSON.stringify({ result: result ?? null }));
  } catch (error) {
    const { code, message } = error as { code?: string; message: string };
    console.log(JSON.stringify({ error: `${code ?? ""} ${message}` }));
  }
}
