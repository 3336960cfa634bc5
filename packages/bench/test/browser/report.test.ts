/** The HTML of reports in a real browser. */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Chromium, launch } from "../../../client/test/browser/page.js";
import { program } from "../../../client/test/node/engine.js";

let chromium: Chromium;
let folder: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "tidewire-reports-"));
  chromium = await launch();
});

afterAll(async () => {
  await chromium?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** Runs the program, whose verdict does not matter here. */
function run(...words: string[]): void {
  try {
    execFileSync(program(), words, { stdio: "pipe" });
  } catch (error) {
    const { status, stderr } = error as { status: number; stderr: Buffer };
    if (![1, 3, 4].includes(status)) throw new Error(`${status}: ${stderr}`);
  }
}

/** How wide a file is in a window of 1,280 pixels. */
async function width(file: string): Promise<number> {
  const page = await chromium.context.newPage();
  await page.setViewportSize({ width: 1280, height: 900 });
  await page.goto(pathToFileURL(file).href);
  const pixels = await page.evaluate(() => document.documentElement.scrollWidth);
  await page.close();
  return pixels;
}

test("a report, and four side by side, fit a window of 1,280 pixels", async () => {
  run("bench", "--quick", "--out", folder);
  const report = join(folder, "report.json");
  run("report", report, report, report, report, "--out", folder);
  for (const name of ["report.html", "comparison.html"])
    expect(await width(join(folder, name)), name).toBeLessThanOrEqual(1280);
});
