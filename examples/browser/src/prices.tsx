/** A table of 500 prices that change 5,000 times a second. Each row renders when its own price has changed. */

import { TidewireProvider, useLatest } from "@tidewire/react";
import { memo } from "react";
import { createRoot } from "react-dom/client";
import { SERVER } from "./server.js";

interface Price {
  symbol: string;
  price: number;
  /** The number of this update among all. */
  n: number;
}

const SYMBOLS = Array.from({ length: 500 }, (_, index) => `SYM${String(index).padStart(3, "0")}`);

/** All rows share one subscription; a page that is too slow gets the newest price of each symbol. */
const PRICES = { key: "symbol", overload: "conflate" } as const;

const Row = memo(function Row({ symbol }: { symbol: string }) {
  const price = useLatest<Price>("prices", { ...PRICES, select: (rows) => rows.get(symbol) })?.payload;
  return (
    <tr>
      <th>{symbol}</th>
      <td>{price?.price.toFixed(2) ?? "–"}</td>
      <td>{price?.n}</td>
    </tr>
  );
});

function Prices() {
  return (
    <main>
      <h1>Prices</h1>
      <table>
        <thead>
          <tr>
            <th>Symbol</th>
            <th>Price</th>
            <th>Update</th>
          </tr>
        </thead>
        <tbody>
          {SYMBOLS.map((symbol) => (
            <Row key={symbol} symbol={symbol} />
          ))}
        </tbody>
      </table>
    </main>
  );
}

createRoot(document.getElementById("root")!).render(
  <TidewireProvider url={SERVER}>
    <Prices />
  </TidewireProvider>,
);
