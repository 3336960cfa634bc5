/**
 * Appending of messages to a store: messages that are added during a commit go into the next one together.
 */

import { DEVELOPMENT } from "#development";
import { utf8 } from "../core/bytes.js";
import type { AddedEntry, QueueEntry } from "../core/queue-port.js";
import { TidewireError } from "../errors.js";
import { COMMIT_MAX, type NewRow, WAITING, waitingOrder } from "./storage.js";

interface Adding {
  row: NewRow;
  resolve(added: AddedEntry): void;
  reject(error: unknown): void;
}

export class Appender {
  readonly #ageMaxMs: number;
  readonly #append: (rows: NewRow[]) => Promise<(Promise<void> | undefined)[]>;
  #adding: Adding[] = [];
  #storing: Promise<void> | undefined;

  /**
   * `append` stores messages and returns the receipt of each, or undefined where there was no room.
   */
  constructor(
    { ageMaxMs }: { ageMaxMs: number },
    append: (rows: NewRow[]) => Promise<(Promise<void> | undefined)[]>,
  ) {
    this.#ageMaxMs = ageMaxMs || Number.POSITIVE_INFINITY;
    this.#append = append;
  }

  /** Resolves when the message is stored. */
  add(entry: QueueEntry): Promise<AddedEntry> {
    const row = this.#newRow(entry);
    return new Promise((resolve, reject) => {
      this.#adding.push({ row, resolve, reject });
      this.#storing ??= this.#store();
    });
  }

  /** Resolves when all that was added is stored. */
  async finish(): Promise<void> {
    await this.#storing;
  }

  async #store(): Promise<void> {
    // Messages that are added in the same turn go together.
    await undefined;
    while (this.#adding.length > 0) {
      const adding = this.#adding.splice(0, COMMIT_MAX);
      try {
        const receipts = await this.#append(adding.map(({ row }) => row));
        for (const [index, { resolve, reject }] of adding.entries()) {
          const acknowledged = receipts[index];
          if (acknowledged) resolve({ acknowledged });
          else
            reject(
              new TidewireError(
                "BUSY",
                DEVELOPMENT && "the queue is full; try again when some of it is acknowledged",
              ),
            );
        }
      } catch (error) {
        for (const { reject } of adding) reject(error);
      }
    }
    this.#storing = undefined;
  }

  #newRow({ expiresMs = Number.POSITIVE_INFINITY, ...entry }: QueueEntry): NewRow {
    const row = { ...entry, state: WAITING, order: waitingOrder(entry), bytes: utf8(entry.payload).length };
    const earliestMs = Math.min(expiresMs, Date.now() + this.#ageMaxMs);
    return earliestMs < Number.POSITIVE_INFINITY ? { ...row, expiresMs: earliestMs } : row;
  }
}
