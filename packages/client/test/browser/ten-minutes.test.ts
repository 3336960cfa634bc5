/**
 * The chats of docs/ten-minutes.md as they stand there, both servers and the page in a real browser, and the shortest page of
 * docs/for-web-developers.md.
 */

import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import type { Page } from "playwright-core";
import { afterEach, beforeEach, expect, test } from "vitest";
import { program } from "../node/engine.js";
import { type Chromium, launch } from "./page.js";

const root = fileURLToPath(new URL("../../../../", import.meta.url));

/** The Python package, which `bindings/python/run` installs there. */
const PYTHON = `${root}bindings/python/.venv/bin/python`;

let folder: string;
let text: string;
let chromium: Chromium;
let pages: string;
let listen: string;
const children: ChildProcess[] = [];

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "tidewire-ten-minutes-"));
  await read("ten-minutes.md");
  await mkdir(join(folder, "chat"));
  await writeFile(join(folder, "chat/index.html"), block("html"));
  await build({
    entryPoints: [`${root}packages/client/src/index.ts`],
    outfile: join(folder, "chat/tidewire.min.js"),
    bundle: true,
    format: "esm",
    target: "es2022",
    alias: { "#transport": `${root}packages/client/src/transport/default-browser.ts` },
  });
  chromium = await launch();
});

afterEach(async () => {
  await chromium?.close();
  for (const child of children.splice(0)) child.kill("SIGKILL");
  await rm(folder, { recursive: true, force: true });
});

/** Reads a page of the documentation, with free ports in place of its own. */
async function read(page: string): Promise<void> {
  text = await readFile(`${root}docs/${page}`, "utf8");
  // The ports of the page may be taken on this machine. That of the clients is the default of `tidewire serve`.
  for (const port of ["8000", "5006", "5007"]) {
    const other = await freePort();
    text = text.replaceAll(`:${port}`, `:${other}`).replaceAll(new RegExp(`\\b${port}\\b`, "g"), `${other}`);
    if (port === "8000") pages = `http://127.0.0.1:${other}/`;
    if (port === "5006") listen = `127.0.0.1:${other}`;
  }
}

/** The text of the only block in this language. */
function block(language: string): string {
  const found = [...text.matchAll(new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\`$`, "gms"))];
  expect(found, `blocks in ${language}`).toHaveLength(1);
  return found[0]![1]!;
}

/** The shell block in which this command stands. */
function shell(command: string): string {
  const blocks = [...text.matchAll(/^```sh\n(.*?)^```$/gms)].map((match) => match[1]!);
  const found = blocks.find((one) => one.includes(command));
  expect(found, command).toBeDefined();
  return found!;
}

/** Starts a program in the folder, and waits until it prints these words. */
async function start(name: string, args: string[], words: string): Promise<void> {
  const env = { ...process.env, TIDEWIRE_LISTEN: listen };
  const child = spawn(name, args, { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
  children.push(child);
  let output = "";
  await new Promise<void>((resolve, reject) => {
    const look = (bytes: Buffer) => {
      output += bytes.toString();
      if (output.includes(words)) resolve();
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.once("error", reject);
    child.once("close", () => reject(new Error(`${name} ended: ${output}`)));
  });
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" ? address!.port : 0;
}

async function logIn(page: Page, name: string): Promise<void> {
  await page.getByPlaceholder("your name").fill(name);
  await page.getByRole("button", { name: "Log in" }).click();
}

/** Two people log in, see each other and talk; one reloads and finds what was said. */
async function chat(): Promise<void> {
  const open = async (name: string) => {
    // Each has cookies of its own, as in two browsers.
    const context = await chromium.browser.newContext();
    const page = await context.newPage();
    await page.goto(pages);
    await logIn(page, name);
    return page;
  };
  const ada = await open("ada");
  await ada.getByText("Here now: ada", { exact: true }).waitFor();
  const bob = await open("bob");
  for (const page of [ada, bob]) await page.getByText(/Here now: (ada, bob|bob, ada)/).waitFor();
  await ada.getByPlaceholder("message").fill("<b>hello</b>");
  await ada.getByRole("button", { name: "Send" }).click();
  for (const page of [ada, bob]) await page.getByText("ada: <b>hello</b>").waitFor();
  await bob.reload();
  await logIn(bob, "bob");
  await bob.getByText("ada: <b>hello</b>").waitFor();
  await bob.close();
  await ada.getByText("Here now: ada", { exact: true }).waitFor();
}

// A chat that runs already: scripts/timed-pages starts one as the page says.
if (process.env.TIDEWIRE_CHAT) {
  test("the chat at an address", async () => {
    pages = process.env.TIDEWIRE_CHAT!;
    await chat();
  });
}

// `make test` installs the Python package before it runs this.
test.skipIf(!existsSync(PYTHON))("the chat with the server in Python", async () => {
  await writeFile(join(folder, "chat/chat.py"), block("python"));
  await start(PYTHON, ["chat/chat.py"], "open http");
  await chat();
});

test("the chat with tidewire serve and a backend in Node", async () => {
  await writeFile(join(folder, "chat/chat.mjs"), block("js"));
  const serve = shell("tidewire serve").replace("cargo build --release\n", `ln -s ${program()} tidewire\n`);
  const words = serve
    .replace("$PWD/target/release", "$PWD")
    .replace(/^tidewire serve/m, "exec tidewire serve");
  await start("bash", ["-ec", words], "listening on");
  await start("node", ["chat/chat.mjs"], "open http");
  await chat();
  const page = await (await chromium.browser.newContext()).newPage();
  await page.goto(pages);
  await logIn(page, "eve");
  await page.getByText("ada: <b>hello</b>").waitFor();
  execFileSync("bash", ["-ec", shell("the house")], { cwd: folder, stdio: "pipe" });
  await page.getByText("the house: hello").waitFor();
});

test("the shortest page for web developers", async () => {
  await read("for-web-developers.md");
  await writeFile(join(folder, "chat.html"), block("html"));
  await mkdir(join(folder, "packages/client/dist"), { recursive: true });
  await copyFile(join(folder, "chat/tidewire.min.js"), join(folder, "packages/client/dist/tidewire.min.js"));
  const [site, serve] = shell("http.server").split("\n");
  await start(
    "bash",
    ["-ec", `exec ${site!.replace("python3", "python3 -u").replace(/ &$/, "")}`],
    "Serving HTTP",
  );
  await start("bash", ["-ec", serve!.replace("tidewire", `exec ${program()}`)], "listening on");
  const open = async () => {
    const page = await (await chromium.browser.newContext()).newPage();
    await page.goto(`${pages}chat.html`);
    return page;
  };
  const [one, other] = [await open(), await open()];
  await one.locator("input[name=text]").fill("<i>hello</i>");
  await one.getByRole("button", { name: "Send" }).click();
  for (const page of [one, other]) await page.getByText("<i>hello</i>").waitFor();
  await other.reload();
  await other.getByText("<i>hello</i>").waitFor();
});
