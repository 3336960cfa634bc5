/** The dashboard in a real browser, against a real server. */

import { connect } from "@tidewire/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Dashboard, KEY, startDashboard } from "./server.js";

let dashboard: Dashboard;

beforeAll(async () => {
  dashboard = await startDashboard();
});

afterAll(async () => {
  await dashboard?.close();
});

test("a wrong key is refused, and the right one sets a cookie that scripts cannot read", async () => {
  const page = await dashboard.fresh();
  await page.getByLabel("Key of the HTTP API").fill("wrong-wrong-wrong");
  await page.keyboard.press("Enter");
  await page.getByText("this is not a key of the API").waitFor();
  expect(await dashboard.chromium.context.cookies(dashboard.url())).toEqual([]);
  await page.getByLabel("Key of the HTTP API").fill(KEY);
  await page.keyboard.press("Enter");
  await page.getByText("Busiest topics").waitFor();
  const [cookie] = await dashboard.chromium.context.cookies(dashboard.url());
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict", path: "/dashboard" });
  expect(await page.evaluate("document.cookie")).toBe("");

  await page.reload();
  await page.getByText("Busiest topics").waitFor();
  await page.getByRole("button", { name: "Log out" }).click();
  await page.getByLabel("Key of the HTTP API").waitFor();
  const answer = await fetch(dashboard.url("/api/v1/stats"), {
    headers: { cookie: `${cookie!.name}=${cookie!.value}` },
  });
  expect(answer.status).toBe(401);
  await page.close();
});

test("what cannot be seen of a name is escaped", async () => {
  const server = dashboard.url("/login");
  const login = await fetch(server, {
    method: "POST",
    headers: { origin: `http://${dashboard.engine.opsAddress}` },
    body: JSON.stringify({ key: KEY }),
  });
  const cookie = login.headers.getSetCookie()[0]!.split(";")[0]!;
  const published = await fetch(dashboard.url("/api/v1/publish"), {
    method: "POST",
    headers: { cookie, origin: `http://${dashboard.engine.opsAddress}` },
    body: JSON.stringify({ topic: "kept.a\u200bb", type: "x", payload: {} }),
  });
  expect(published.status).toBe(200);
  const page = await dashboard.fresh();
  await page.getByLabel("Key of the HTTP API").fill(KEY);
  await page.keyboard.press("Enter");
  await page.getByText("Busiest topics").waitFor();
  await page.goto(dashboard.url("#/topics"));
  await page.getByText("kept.a\\u{200b}b").first().waitFor();
  await page.close();
});

test("only pages of the dashboard's own origin can change something", async () => {
  const login = (headers: Record<string, string>) =>
    fetch(dashboard.url("/login"), { method: "POST", headers, body: JSON.stringify({ key: KEY }) });
  expect((await login({})).status).toBe(403);
  expect((await login({ origin: "http://evil.example" })).status).toBe(403);
  const answer = await login({ origin: `http://${dashboard.engine.opsAddress}` });
  expect(answer.status).toBe(200);
  const cookie = answer.headers.get("set-cookie")!.split(";")[0]!;
  const publish = (headers: Record<string, string>) =>
    fetch(dashboard.url("/api/v1/publish"), {
      method: "POST",
      headers: { cookie, ...headers },
      body: JSON.stringify({ topic: "kept.origin", type: "x", payload: {} }),
    });
  expect((await publish({ origin: "http://evil.example" })).status).toBe(403);
  expect((await publish({ origin: `http://${dashboard.engine.opsAddress}` })).status).toBe(200);
  // The cookie is of use for nothing but the dashboard.
  expect(
    (await fetch(`http://${dashboard.engine.opsAddress}/api/v1/stats`, { headers: { cookie } })).status,
  ).toBe(401);
});

test("what is published by hand reaches subscribers, and the topic shows it", async () => {
  const received: unknown[] = [];
  const subscription = dashboard.client.subscribe("kept.hand");
  await subscription.ready();
  void (async () => {
    for await (const { payload } of subscription) received.push(payload);
  })();
  const page = await dashboard.loggedIn();
  await page.getByRole("link", { name: "Publish" }).click();
  await page.getByLabel("Its name").fill("kept.hand");
  await page.getByLabel("Payload, JSON").fill('{"text": "<b>hello</b>"}');
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  await page.getByText('"offset"').waitFor();
  await expect.poll(() => received).toEqual([{ text: "<b>hello</b>" }]);

  await page.getByRole("link", { name: "Topics" }).click();
  await page.getByRole("searchbox").fill("kept.h");
  await page.getByRole("button", { name: /kept\.hand/ }).click();
  // As text, not as markup.
  await page.getByText("<b>hello</b>").waitFor();
  await page.getByText("1 users, 1 connections").waitFor();
  await page.close();
});

test("a topic without subscribers is listed with what its history keeps", async () => {
  const answer = await fetch(`http://${dashboard.engine.opsAddress}/api/v1/publish`, {
    method: "POST",
    headers: { "x-api-key": KEY },
    body: JSON.stringify({ topic: "kept.alone", type: "note", payload: { text: "nobody listens" } }),
  });
  expect(answer.status).toBe(200);
  const page = await dashboard.loggedIn();
  await page.getByRole("link", { name: "Topics" }).click();
  await page.getByRole("searchbox").fill("kept.al");
  const row = page.getByRole("button", { name: /kept\.alone/ });
  await row.waitFor();
  expect(await row.locator("span").allTextContents()).toEqual(["kept.alone", "0", "0", "1"]);
  await row.click();
  await page.getByText("nobody listens").waitFor();
  await page.close();
});

/** The connections, as the HTTP API lists them. */
async function keys(): Promise<string[]> {
  const answer = await fetch(`http://${dashboard.engine.opsAddress}/api/v1/connections`, {
    headers: { "x-api-key": KEY },
  });
  const { connections } = (await answer.json()) as { connections: { connection: string }[] };
  return connections.map((one) => one.connection);
}

test("a connection is found and ended", async () => {
  const other = connect(`ws://${dashboard.engine.address}/ws`, { reconnect: false });
  await other.ready();
  const page = await dashboard.loggedIn();
  await page.getByRole("link", { name: "Connections" }).click();
  await page.getByText(/^2 connections$/).waitFor();
  await page.getByLabel("Start of the address").fill("203.0.113.");
  await page.keyboard.press("Enter");
  await page.getByText(/^0 connections$/).waitFor();
  await page.getByLabel("Start of the address").fill("127.");
  await page.keyboard.press("Enter");
  page.on("dialog", (dialog) => void dialog.accept());
  await page.getByText(/^2 connections$/).waitFor();
  await page.locator(".row").last().click();
  const key = await page.locator("section h2").first().textContent();
  expect(await keys()).toContain(key);
  await page.getByRole("button", { name: "End this connection" }).click();
  // The client of all tests comes back, with another key.
  await expect.poll(keys).not.toContain(key);
  await other.close();
  await page.close();
});

test("the settings that were given are listed, without secrets", async () => {
  const page = await dashboard.loggedIn();
  await page.getByRole("link", { name: "Settings" }).click();
  await page.getByRole("cell", { name: "kept.>=100" }).waitFor();
  await page.getByRole("cell", { name: "--history" }).waitFor();
  await page.getByRole("cell", { name: "(secret)" }).waitFor();
  expect(await page.locator("main").textContent()).not.toContain(KEY);
  await page.close();
});

test("tabs have keys, 360 pixels are enough, and no other host is asked", async () => {
  const page = await dashboard.loggedIn();
  const asked: string[] = [];
  page.on("request", (request) => asked.push(request.url()));
  await page.reload();
  await page.getByText("Busiest topics").waitFor();
  await page.setViewportSize({ width: 360, height: 640 });
  for (const [key, name] of [
    "Overview",
    "Topics",
    "Connections",
    "Presence",
    "Publish",
    "Settings",
  ].entries()) {
    await page.locator("body").press(String(key + 1));
    await page.locator(`nav a[aria-current]:text("${name}")`).waitFor();
    const wide = await page.evaluate("document.documentElement.scrollWidth");
    expect(wide, name).toBeLessThanOrEqual(360);
  }
  expect(asked.length).toBeGreaterThan(3);
  const own = [dashboard.url(), dashboard.url().replace("http", "ws"), "data:"];
  expect(asked.filter((one) => !own.some((start) => one.startsWith(start)))).toEqual([]);
  await page.close();
});
