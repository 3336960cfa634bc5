/** Serves the pages on http://127.0.0.1:8080; the engine is another program (see README.md). */

import { serveSite } from "./site.js";

const site = await serveSite(Number(process.env["PORT"] ?? 8080));
console.log(`${site.origin}/chat, /prices, /form`);
