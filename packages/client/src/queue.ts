/** A queue of numbered messages in the browser: in IndexedDB, shared by the tabs of an origin. */

import type { MessageQueue } from "./core/queue-port.js";
import { IndexedDbStorage } from "./queue/indexeddb.js";
import type { QueueLimits } from "./queue/limits.js";
import { MemoryStorage } from "./queue/memory.js";
import { Queue } from "./queue/queue.js";

export type { MessageQueue, QueuedOptions, QueuedPublishOptions } from "./core/queue-port.js";

export interface QueueOptions extends Partial<QueueLimits> {
  /**
   * In a browser: the name of the database. Give each user one of their own, because what one has
   * left is sent by the next who opens it. Default `tidewire-queue`.
   */
  name?: string;
  /** In Node: the SQLite file. Default: memory. */
  path?: string;
}

/**
 * Keeps messages until the server has acknowledged them, in IndexedDB, where they survive a crash
 * of the tab and of the browser. Of the tabs that use the same name one sends, which needs Web
 * Locks: without them, as on a page of plain `http:`, and where IndexedDB does not work, messages
 * are kept in memory, and the client reports that.
 */
export function queue({ name = "tidewire-queue", path: _, ...limits }: QueueOptions = {}): MessageQueue {
  // The same one each time the queue is opened, so that messages outlive the client at least.
  const memory = new MemoryStorage();
  return new Queue(limits, (notWorking) => {
    const missing = !globalThis.navigator?.locks
      ? "Web Locks"
      : !globalThis.indexedDB
        ? "IndexedDB"
        : undefined;
    const inMemoryBecause = notWorking ?? (missing && `this page has no ${missing}; serve it by https`);
    return inMemoryBecause
      ? { storage: memory, inMemoryBecause }
      : { storage: new IndexedDbStorage(name), sharedAs: `tidewire-queue:${name}` };
  });
}
