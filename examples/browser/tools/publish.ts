/** Publishes prices to `tidewire serve` until it is interrupted. */

import { publishPrices } from "./publisher.js";

const url = process.env["SERVER"] ?? "ws://127.0.0.1:5006/ws";
await publishPrices(url);
console.log(`publishing to ${url}`);
