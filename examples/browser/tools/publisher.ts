/** Publishes prices: 500 symbols, 5,000 updates a second. */

import { connect } from "@tidewire/client";

export const UPDATES_PER_S = 5_000;
export const SYMBOLS = 500;
const TICK_MS = 10;

export interface Publisher {
  /** Updates that the server has accepted. */
  readonly accepted: number;
  close(): Promise<void>;
}

/** Starts to publish at a server that lets clients publish. */
export async function publishPrices(url: string, updatesPerS = UPDATES_PER_S): Promise<Publisher> {
  const client = await connect(url).connected();
  const startMs = performance.now();
  let sent = 0;
  let accepted = 0;
  const timer = setInterval(() => {
    const due = Math.floor(((performance.now() - startMs) / 1000) * updatesPerS);
    // A late timer catches up, so that the rate holds; a machine that cannot publish so fast skips what is older.
    sent = Math.max(sent, due - updatesPerS / 10);
    while (sent < due && client.waitingBytes < 1_000_000) {
      const symbol = `SYM${String(sent % SYMBOLS).padStart(3, "0")}`;
      const price = { symbol, price: 100 + 10 * Math.sin(sent / 700), n: sent };
      const count = () => {
        accepted += 1;
      };
      client.publish("prices", price, { type: "price", key: symbol }).then(count, () => {});
      sent += 1;
    }
  }, TICK_MS);
  return {
    get accepted() {
      return accepted;
    },
    async close() {
      clearInterval(timer);
      await client.close();
    },
  };
}
