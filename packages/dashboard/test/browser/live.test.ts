/** The page over its WebSocket, and without it. */

import { connect } from "@tidewire/client";
import type { Page, WebSocket as Socket } from "playwright-core";
import { afterAll, beforeAll, expect, test } from "vitest";
import { WebSocket } from "ws";
import { type Dashboard, KEY, startDashboard } from "./server.js";

let dashboard: Dashboard;

beforeAll(async () => {
  dashboard = await startDashboard();
});

afterAll(async () => {
  await dashboard?.close();
});

const status = (page: Page) => page.locator("header [role=status]");

const isLive = (page: Page) =>
  status(page)
    .filter({ hasText: /^live$/ })
    .waitFor();

/** A login without a browser. */
async function cookie(): Promise<string> {
  const origin = `http://${dashboard.engine.opsAddress}`;
  const body = JSON.stringify({ key: KEY });
  const answer = await fetch(dashboard.url("/login"), { method: "POST", headers: { origin }, body });
  return answer.headers.get("set-cookie")!.split(";")[0]!;
}

test("numbers arrive over the WebSocket, and no request asks for them", async () => {
  const page = await dashboard.loggedIn();
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  const opened = page.waitForEvent("websocket");
  await page.reload();
  const socket = await opened;
  expect(socket.url()).toBe(dashboard.url("/ws").replace("http", "ws"));
  for (let count = 0; count < 2; count++) await socket.waitForEvent("framereceived");
  await isLive(page);
  const connections = page.locator(".card", { hasText: "Connections" }).locator("b");
  await expect.poll(() => connections.textContent()).toBe("1");
  const other = connect(`ws://${dashboard.engine.address}/ws`);
  await other.ready();
  await expect.poll(() => connections.textContent(), { timeout: 30_000 }).toBe("2");
  await other.close();
  await expect.poll(() => connections.textContent(), { timeout: 30_000 }).toBe("1");
  expect(asked.filter((one) => one.includes("/stats"))).toEqual([]);
  await page.close();
});

test("without a WebSocket the page says so and asks, and it is live again when it can be", async () => {
  const lines = { cookie: await cookie(), origin: `http://${dashboard.engine.opsAddress}` };
  const others = Array.from({ length: 16 }, () => {
    const socket = new WebSocket(dashboard.url("/ws").replace("http", "ws"), { headers: lines });
    return new Promise<WebSocket>((resolve, reject) => {
      socket.once("open", () => resolve(socket));
      socket.once("error", reject);
    });
  });
  const sockets = await Promise.all(others);
  const page = await dashboard.loggedIn();
  await status(page).filter({ hasText: "not live: the WebSocket is not open" }).waitFor();
  // The numbers are there all the same.
  await page.locator(".card", { hasText: "Connections" }).locator("b", { hasText: "1" }).waitFor();
  for (const socket of sockets) socket.close();
  await isLive(page);
  await page.close();
});

test("a page whose login ends elsewhere asks for the key again", async () => {
  const page = await dashboard.loggedIn();
  await isLive(page);
  const [found] = await dashboard.chromium.context.cookies(dashboard.url());
  const lines = {
    cookie: `${found!.name}=${found!.value}`,
    origin: `http://${dashboard.engine.opsAddress}`,
  };
  const answer = await fetch(dashboard.url("/logout"), { method: "POST", headers: lines });
  expect(answer.status).toBe(200);
  await page.getByLabel("Key of the HTTP API").waitFor();
  await page.close();
});

test("a page that is not seen has no WebSocket", async () => {
  const page = await dashboard.loggedIn();
  await isLive(page);
  const sockets: Socket[] = [];
  page.on("websocket", (socket) => sockets.push(socket));
  await page.reload();
  await isLive(page);
  const hide = (hidden: boolean) =>
    page.evaluate(
      `Object.defineProperty(document, "hidden", { value: ${hidden}, configurable: true });` +
        `document.dispatchEvent(new Event("visibilitychange"))`,
    );
  await hide(true);
  await expect.poll(() => sockets.every((socket) => socket.isClosed())).toBe(true);
  const before = sockets.length;
  let frames = 0;
  page.on("websocket", (socket) => socket.on("framereceived", () => frames++));
  await hide(false);
  // A page on a slow machine gives up a WebSocket that does not open in time, and opens another one.
  await expect.poll(() => frames, { timeout: 30_000 }).toBeGreaterThan(0);
  expect(sockets.length).toBeGreaterThan(before);
  await page.close();
});

test("timeouts and slow readers are not called refusals", async () => {
  const page = await dashboard.loggedIn();
  await page.routeWebSocket(/\/dashboard\/ws$/, (socket) => socket.close());
  await page.route("**/dashboard/api/v1/stats", async (route) => {
    const answer = await route.fetch();
    const stats = await answer.json();
    Object.assign(stats.total, { handshake_timeouts: 3, outbox_overflows: 2, origin_rejections: 5 });
    await route.fulfill({ response: answer, json: stats });
  });
  await page.reload();
  const card = page.locator(".card", { hasText: "Refused" });
  await card.getByText("5 in all").waitFor();
  const below = (title: string) => page.locator(`h2:text-is("${title}") + *`).innerText();
  const refusals = await below("Refusals since the start");
  expect(refusals).toContain("origin not allowed");
  expect(refusals).not.toMatch(/too long|did not read/);
  const failures = await below("Connections that failed");
  expect(failures).toMatch(/handshake took too long.*peer did not read/s);
  await page.close();
});

test("the values of an open topic are those of now", async () => {
  const page = await dashboard.loggedIn();
  await dashboard.client.publish("kept.now", { n: 1 });
  await page.goto(dashboard.url("#/topics/kept.now"));
  await page.getByText('"n": 1').waitFor();
  for (let n = 2; n <= 12; n++) await dashboard.client.publish("kept.now", { n });
  await page.getByText('"n": 12').waitFor();
  expect(await page.locator("pre").count()).toBe(10);
  await page.getByRole("button", { name: "Older values" }).click();
  await expect.poll(() => page.locator("pre").count()).toBe(12);
  await page.close();
});
