/**
 * Measures the price table in Chromium against the engine, and prints one line of JSON: 500 rows, 5,000 updates a second.
 * TIDEWIRE_PROGRAM is the engine's program, SECONDS how long it looks (10).
 */

import type { CDPSession } from "playwright-core";
import { launch } from "../../../packages/client/test/browser/page.js";
import { startEngine } from "../../../packages/client/test/node/engine.js";
import { publishPrices, SYMBOLS, UPDATES_PER_S } from "./publisher.js";
import { serveSite } from "./site.js";
import { watchTable } from "./watch.js";

const seconds = Number(process.env["SECONDS"] ?? 10);
const site = await serveSite();
const engine = await startEngine("--no-auth", "--app", "sink", "--topics-open", "--origin", site.origin);
const url = `ws://${engine.address}/ws`;
const chromium = await launch();
const publisher = await publishPrices(url);
try {
  const page = await chromium.context.newPage();
  await page.goto(`${site.origin}/prices?server=${encodeURIComponent(url)}`);
  await page.waitForFunction(
    (rows) => document.querySelectorAll("td:nth-child(3):not(:empty)").length === rows,
    SYMBOLS,
  );
  const devtools = await chromium.context.newCDPSession(page);
  await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
  const before = await cpuSeconds(devtools);
  const found = await page.evaluate(watchTable, seconds);
  const after = await cpuSeconds(devtools);
  const [first, last] = found.newest;
  const percent = (name: string) => Math.round((100 * (after[name]! - before[name]!)) / found.seconds);
  const result = {
    rows: SYMBOLS,
    updates_per_s_offered: UPDATES_PER_S,
    updates_per_s_shown: Math.round((last - first) / found.seconds),
    frames_per_s: Number((found.frames / found.seconds).toFixed(1)),
    renders_per_frame: Number((found.renders / found.frames).toFixed(2)),
    frames_with_two_renders: found.doubled,
    main_thread_cpu_percent: percent("TaskDuration"),
    script_cpu_percent: percent("ScriptDuration"),
    style_and_layout_cpu_percent: percent("RecalcStyleDuration") + percent("LayoutDuration"),
    long_tasks: found.longTasks,
    longest_task_ms: Math.round(found.longestTaskMs),
    seconds: Number(found.seconds.toFixed(1)),
  };
  console.log(JSON.stringify(result));
} finally {
  await publisher.close();
  await chromium.close();
  await engine.stop();
  await site.close();
}

/** The processor time of the page's main thread so far, in seconds, which other work on the machine does not change. */
async function cpuSeconds(devtools: CDPSession): Promise<Record<string, number>> {
  const { metrics } = await devtools.send("Performance.getMetrics");
  return Object.fromEntries(metrics.map(({ name, value }) => [name, value]));
}
