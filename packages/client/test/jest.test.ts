/** The built package in Jest with jsdom, which Jest's users have in place of a browser. */

import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { startEngine } from "./node/engine.js";

const folder = fileURLToPath(new URL("./jest/", import.meta.url));
const jest = `${folder}node_modules/jest/bin/jest.js`;

test.skipIf(!existsSync(jest))("Jest with jsdom has sessions without a polyfill", async () => {
  const engine = await startEngine("--no-auth", "--topics-open", "--origin", "any", "--log-level", "error");
  try {
    const { stderr } = await promisify(execFile)(process.execPath, [jest, "--ci", "--runInBand"], {
      cwd: folder,
      env: { ...process.env, TIDEWIRE_ADDRESS: engine.address },
    });
    expect(stderr).toMatch(/Tests: +5 passed, 5 total/);
  } finally {
    await engine.stop();
  }
});
