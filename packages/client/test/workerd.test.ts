/** The built package in workerd, the runtime of Cloudflare Workers. */

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { expect, test } from "vitest";
import { startEngine } from "./node/engine.js";

const folder = fileURLToPath(new URL("./workerd/", import.meta.url));
const program = `${folder}node_modules/@cloudflare/workerd-linux-64/bin/workerd`;

test.skipIf(!existsSync(program))("a Worker has sessions", async () => {
  await build({
    entryPoints: [`${folder}worker.js`],
    outfile: `${folder}built/worker.js`,
    bundle: true,
    format: "esm",
    target: "es2022",
    conditions: ["workerd", "worker", "browser"],
    logLevel: "error",
  });
  const engine = await startEngine(
    "--no-auth",
    "--topics-open",
    "--encryption",
    "optional",
    "--log-level",
    "error",
  );
  const workerd = spawn(program, ["serve", "config.capnp", "--experimental", "--control-fd=3"], {
    cwd: folder,
    env: { ...process.env, TIDEWIRE_ADDRESS: engine.address },
    stdio: ["ignore", "inherit", "inherit", "pipe"],
  });
  const exited = new Promise((resolve) => workerd.once("exit", resolve));
  try {
    const ports = await new Promise<number[]>((resolve, reject) => {
      let text = "";
      workerd.stdio[3]!.on("data", (bytes) => {
        text += bytes;
        const listening = [...text.matchAll(/"event":"listen","socket":"\w+","port":(\d+)/g)];
        if (listening.length === 2) resolve(listening.map(([, port]) => Number(port)));
      });
      void exited.then((code) => reject(new Error(`workerd has ended with ${code}`)));
    });
    const names = ["json", "msgpack", "encrypt"];
    for (const [port, name] of ports.flatMap((port) => names.map((name) => [port, name] as const))) {
      const answer = await fetch(`http://127.0.0.1:${port}/${name}`);
      expect(await answer.json(), name).toEqual({
        text: "Grüße",
        isWhole: true,
        isDuplicate: false,
        latency: "number",
        errors: [],
        hasSign: "function",
      });
    }
  } finally {
    workerd.kill("SIGKILL");
    await exited;
    await engine.stop();
  }
});
