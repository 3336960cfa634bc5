/**
 * A queue of numbered messages in Node: in an SQLite file by `node:sqlite` (Node 22.13 and newer),
 * or in memory.
 */

import type { MessageQueue, QueuedOptions, QueuedPublishOptions, QueueOptions } from "../queue.js";
import { MemoryStorage } from "./memory.js";
import { Queue } from "./queue.js";
import { type Files, type Sqlite, SqliteStorage } from "./sqlite.js";

export type { MessageQueue, QueuedOptions, QueuedPublishOptions, QueueOptions };

/**
 * Keeps messages until the server has acknowledged them: in the file at `path`, where they survive
 * a crash of the process and of the machine, or in memory without one. One client at a time uses a
 * file; another is refused with `QUEUE_FAILED`. A Node without `node:sqlite` keeps messages in
 * memory, and the client reports that.
 */
export function queue({ path, name: _, ...limits }: QueueOptions = {}): MessageQueue {
  // The same one each time the queue is opened, so that messages outlive the client at least.
  const memory = new MemoryStorage();
  return new Queue(limits, () => {
    if (path === undefined) return { storage: memory };
    // A bundler for browsers finds nothing to resolve here.
    const sqlite = process.getBuiltinModule?.("node:sqlite") as Sqlite | undefined;
    const files = process.getBuiltinModule?.("node:fs") as Files | undefined;
    if (sqlite) return { storage: new SqliteStorage(sqlite, path, files) };
    const inMemoryBecause = `Node ${process.version} has no node:sqlite; use 22.13 or newer`;
    return { storage: memory, inMemoryBecause };
  });
}
