/** Receipts: who waits until the server has acknowledged a message. */

import { TidewireError } from "../errors.js";

/** Why a message was not acknowledged, in the form that tabs send to each other. */
export interface Refusal {
  code: string;
  message: string;
}

interface Waiter {
  resolve(): void;
  reject(error: TidewireError): void;
}

export class Receipts {
  readonly #waiters = new Map<number, Waiter>();
  /** Rows that were settled before their receipt was here, which another tab's may be. */
  readonly #early = new Map<number, Refusal | undefined>();

  get rows(): number[] {
    return [...this.#waiters.keys()];
  }

  /** The receipt of a row that was stored just now. */
  add(row: number): Promise<void> {
    const receipt = new Promise<void>((resolve, reject) => this.#waiters.set(row, { resolve, reject }));
    receipt.catch(() => {});
    if (this.#early.has(row)) this.settle([row], this.#early.get(row));
    this.#early.delete(row);
    return receipt;
  }

  settle(rows: readonly number[], refusal?: Refusal): void {
    for (const row of rows) {
      const waiter = this.#waiters.get(row);
      this.#waiters.delete(row);
      if (!waiter) this.#early.set(row, refusal);
      else if (refusal) waiter.reject(new TidewireError(refusal.code, refusal.message, { fault: "server" }));
      else waiter.resolve();
    }
    for (const row of this.#early.keys()) {
      if (this.#early.size <= EARLY_MAX) break;
      this.#early.delete(row);
    }
  }
}

/** Rows that are remembered, which is more than one commit stores. */
const EARLY_MAX = 4096;
