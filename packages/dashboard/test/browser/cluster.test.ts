/** One dashboard for all servers that share a broker. */

import { type ChildProcess, spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { connect } from "@tidewire/client";
import type { Page } from "playwright-core";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { type Engine, startEngine } from "../../../client/test/node/engine.js";
import { type Dashboard, startDashboard } from "./server.js";

let folder: string;
let redis: ChildProcess;
let broker: string[];
let dashboard: Dashboard;
let other: Engine;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "tidewire-cluster-"));
  const socket = join(folder, "redis.sock");
  redis = spawn("redis-server", ["--port", "0", "--unixsocket", socket, "--save", "", "--dir", folder], {
    stdio: "ignore",
  });
  while (!existsSync(socket)) await delay(20);
  broker = ["--broker", `unix://${socket}`];
  dashboard = await startDashboard(...broker);
  other = await startOther();
});

afterAll(async () => {
  await dashboard?.close();
  await other?.stop();
  redis?.kill("SIGKILL");
  await rm(folder, { recursive: true, force: true });
});

function startOther(): Promise<Engine> {
  // The rules of topics are those of the first server.
  const rules = ["--no-auth", "--topics-open", "--history", "kept.>=100", "--presence", "kept.>"];
  return startEngine(...rules, "--log-level", "error", ...broker);
}

const connections = (page: Page) =>
  page.locator(".card", { hasText: "Connections" }).locator("b").textContent();

test("the overview adds up all servers, and shows each of them", async () => {
  // One session is on the server of the page, and two are on the other one.
  const clients = [1, 2].map(() => connect(`ws://${other.address}/ws`));
  onTestFinished(async () => {
    await Promise.all(clients.map((client) => client.close()));
  });
  await Promise.all([dashboard.client, ...clients].map((client) => client.ready()));
  const page = await dashboard.loggedIn();
  await page.getByRole("heading", { name: /^All [0-9]+ servers$/ }).waitFor({ timeout: 30_000 });
  await expect.poll(() => connections(page), { timeout: 30_000 }).toBe("3");
  const rest = page.getByRole("table").first();

  await rest.getByRole("link", { name: other.address }).click();
  await page.getByRole("heading", { name: `Server ${other.address}` }).waitFor();
  await expect.poll(() => connections(page)).toBe("2");
  await page.getByRole("heading", { name: "Shards" }).waitFor();

  await page.getByRole("link", { name: dashboard.engine.address }).click();
  await expect.poll(() => connections(page)).toBe("1");
  await page.getByRole("link", { name: "All together" }).click();
  await expect.poll(() => connections(page)).toBe("3");
  await Promise.all(clients.map((client) => client.close()));
  await expect.poll(() => connections(page), { timeout: 30_000 }).toBe("1");
  await page.close();
});

test("a server that does not answer is named, and the others are shown without it", async () => {
  const frozen = await startOther();
  try {
    const page = await dashboard.loggedIn();
    await page.getByRole("link", { name: frozen.address }).waitFor({ timeout: 30_000 });
    await frozen.freeze();
    await page.getByText("Without what these servers have, which do not answer").waitFor({ timeout: 30_000 });
    await expect.poll(() => connections(page)).toBe("1");
    await page.close();
  } finally {
    await frozen.stop("SIGKILL");
  }
});
