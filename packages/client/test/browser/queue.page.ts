/** A page with a queue, which a test drives from outside. */

import type { QueuedMessage, QueueReport } from "../../src/core/queue-port.js";
import type { QueueLimits } from "../../src/queue/limits.js";
import { queue } from "../../src/queue.js";
import { add, cases, type Fixture, textsOf } from "../queue-cases.js";

/**
 * The queue of this tab, what it has told, and what became of the messages that were added here.
 */
const tab = {
  queue: queue(),
  reports: [] as string[],
  outcomes: {} as Record<string, string>,
  wakes: 0,

  async open(name: string, limits: Partial<QueueLimits> = {}): Promise<void> {
    tab.queue = queue({ name, ...limits });
    await tab.queue.open({
      wake: () => {
        tab.wakes += 1;
      },
      report: (report: QueueReport) => tab.reports.push(JSON.stringify(report)),
    });
  },

  async add(...texts: string[]): Promise<void> {
    await Promise.all(
      texts.map(async (text) => {
        const { acknowledged } = await add(tab.queue, text);
        tab.outcomes[text] = "stored";
        acknowledged.then(
          () => {
            tab.outcomes[text] = "acknowledged";
          },
          ({ code }) => {
            tab.outcomes[text] = code;
          },
        );
      }),
    );
  },

  /** Texts that were stored, in the order in which they were added. */
  stored: [] as string[],

  /** Adds messages, ten at a time, until the browser is killed. */
  async flood(): Promise<never> {
    for (let round = 0; ; round += 1) {
      const texts = Array.from({ length: 10 }, (_, index) => `-${round * 10 + index}`);
      await tab.add(...texts);
      tab.stored.push(...texts);
    }
  },

  /** What a session does with a connection: resumes and takes. */
  async send(last = 0, epoch = "00000001"): Promise<string[]> {
    await tab.queue.resume({ epoch, last });
    const taken: QueuedMessage[] = [];
    for (let next = await tab.queue.take(100, 1e6); next.length > 0; next = await tab.queue.take(100, 1e6)) {
      taken.push(...next);
    }
    return textsOf(taken);
  },
};

/** Runs one of the cases of every queue on the database of this name. */
async function runCase(name: string, database: string): Promise<void> {
  const make: Fixture["make"] = (limits = {}) => queue({ name: database, ...limits });
  const fixture: Fixture = { isPersistent: true, make };
  await cases[name]!(fixture);
}

/**
 * Loses the connection to the database at every fifth transaction, as Safari does to pages in the
 * background.
 */
function loseConnections(): void {
  const original = IDBDatabase.prototype.transaction;
  let transactions = 0;
  IDBDatabase.prototype.transaction = function (...args) {
    if (transactions % 5 === 0) this.close();
    transactions += 1;
    return original.apply(this, args);
  };
}

export type Tab = typeof tab;

Object.assign(globalThis, { tab, runCase, loseConnections });
