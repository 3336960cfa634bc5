/**
 * Applications of Nuxt and SvelteKit, built as for production: their server renders a page, and the page is live in Chromium. Part of
 * `make long-test`, since their packages take minutes to install.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { connect } from "@tidewire/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Chromium, launch } from "../browser/page.js";
import { type Engine, startEngine } from "../node/engine.js";

const root = fileURLToPath(new URL("../../../../", import.meta.url));

const production = { ...process.env, NODE_ENV: "production" };

let engine: Engine;
let chromium: Chromium;

beforeAll(async () => {
  const topics = ["--no-auth", "--topics-open", "--history", "chat.>=10", "--origin", "any"];
  engine = await startEngine(...topics, "--ops-listen", "127.0.0.1:0", "--log-level", "error");
  chromium = await launch();
});

afterAll(async () => {
  await chromium?.close();
  await engine?.stop();
});

/** An application with its packages, and ours as they are published, in a folder of its own. */
function application(name: string, ours: string[]): string {
  const folder = mkdtempSync(join(tmpdir(), `tidewire-${name}-`));
  cpSync(fileURLToPath(new URL(name, import.meta.url)), folder, {
    recursive: true,
    filter: (path) => !path.includes("node_modules"),
  });
  const quiet = ["--no-audit", "--no-fund", "--silent"];
  // `npm ci` refuses the lock file that npm itself writes for Nuxt: a package for Windows is missing in it.
  execFileSync("npm", ["install", ...quiet], { cwd: folder, stdio: "inherit" });
  for (const one of ours) {
    execFileSync("npm", ["pack", "--silent", "--pack-destination", folder], {
      cwd: `${root}packages/${one}`,
    });
    const archive = readdirSync(folder).find((file) => file.endsWith(".tgz"))!;
    const target = join(folder, "node_modules/@tidewire", one);
    mkdirSync(target, { recursive: true });
    execFileSync("tar", ["-xzf", join(folder, archive), "--strip-components=1", "-C", target]);
    rmSync(join(folder, archive));
  }
  // The plugin of Svelte looks there for packages that it has to bundle.
  const file = join(folder, "package.json");
  const description = JSON.parse(readFileSync(file, "utf8"));
  for (const one of ours) description.dependencies[`@tidewire/${one}`] = "*";
  writeFileSync(file, JSON.stringify(description));
  return folder;
}

async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as { port: number };
  probe.close();
  return port;
}

/** Answers when the server of the application does. */
async function page(url: string): Promise<string> {
  const until = Date.now() + 30_000;
  for (;;) {
    const answer = await fetch(url).catch(() => undefined);
    if (answer?.ok) return await answer.text();
    if (Date.now() > until) throw new Error(`${url} answers with ${answer?.status}`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

const accepted = async () => {
  // The engine ends idle connections while an application is built.
  const answer = await fetch(`http://${engine.opsAddress}/stats`, { headers: { connection: "close" } });
  const stats = await answer.json();
  return stats.total.connections_accepted as number;
};

test.each([
  {
    name: "nuxt",
    ours: ["client", "vue"],
    build: ["nuxt", "build"],
    server: ".output/server/index.mjs",
    variable: "NUXT_PUBLIC_URL",
  },
  {
    name: "sveltekit",
    ours: ["client", "svelte"],
    build: ["vite", "build"],
    server: "build/index.js",
    variable: "PUBLIC_ENGINE_URL",
  },
])(
  "$name renders on its server and is live in the browser",
  async (application_) => {
    const { name, ours, build, server, variable } = application_;
    const folder = application(name, ours);
    let running: ChildProcess | undefined;
    try {
      execFileSync("npx", ["--no-install", ...build], { cwd: folder, stdio: "pipe", env: production });
      const port = await freePort();
      const environment = { HOST: "127.0.0.1", PORT: String(port), [variable]: `ws://${engine.address}/ws` };
      running = spawn(process.execPath, [server], {
        cwd: folder,
        env: { ...production, ...environment },
        stdio: "inherit",
      });
      const before = await accepted();
      const html = await page(`http://127.0.0.1:${port}/`);
      expect(html.replaceAll(/<!--.*?-->/g, "")).toMatch(/<p[^>]*>connecting pending\s*<\/p>/);
      // The server of the application has no connection.
      expect(await accepted()).toBe(before);

      const topic = `chat.eu`;
      const client = connect(`ws://${engine.address}/ws`);
      await client.publish(topic, { text: name });
      const tab = await chromium.context.newPage();
      const complaints: string[] = [];
      tab.on("console", (line) => {
        if (["error", "warning"].includes(line.type())) complaints.push(line.text());
      });
      tab.on("pageerror", (error) => complaints.push(String(error)));
      await tab.goto(`http://127.0.0.1:${port}/`);
      await tab.getByText(new RegExp(`open active .*${name}$`)).waitFor();
      await client.publish(topic, { text: "later" });
      await tab.getByText(new RegExp(`${name},later$`)).waitFor();
      // Such as that what the server has rendered is not what the page renders.
      expect(complaints).toEqual([]);
      await tab.close();
      await client.close();
    } finally {
      running?.kill("SIGKILL");
      rmSync(folder, { recursive: true, force: true });
    }
  },
  300_000,
);
