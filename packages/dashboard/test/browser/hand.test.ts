/** Actions of an operator by hand, and those that a key does not permit. */

import { connect, handle } from "@tidewire/client";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Dashboard, SHOP, startDashboard, VIEWER } from "./server.js";

let dashboard: Dashboard;

beforeAll(async () => {
  dashboard = await startDashboard();
});

afterAll(async () => {
  await dashboard?.close();
});

test("mistakes of a publication are told in words", async () => {
  const page = await dashboard.loggedIn();
  await page.getByRole("link", { name: "Publish" }).click();
  const publish = page.getByRole("button", { name: "Publish", exact: true });
  await page.getByLabel("Its name").fill("a..b");
  await page.getByLabel("Payload, JSON").fill("{");
  await publish.click();
  await page.getByText("The payload is not JSON").waitFor();
  await page.getByLabel("Payload, JSON").fill("1");
  await publish.click();
  await page.getByText("the topic name has an empty segment at byte 2").waitFor();
  await page.getByLabel("Publish to").selectOption("connection");
  await page.getByLabel("Its name").fill("0-999999");
  await publish.click();
  await page.getByText('"connection": "0-999999"').waitFor();
  await page.close();
});

test("a payload is published as it was typed", async () => {
  const subscription = dashboard.client.subscribe("kept.exact");
  await subscription.ready();
  const page = await dashboard.loggedIn();
  await page.goto(dashboard.url("#/publish/topic%2Fkept.exact"));
  expect(await page.getByLabel("Its name").inputValue()).toBe("kept.exact");
  await page.getByLabel("Payload, JSON").fill('{"id": 12345678901234567890, "price": 1.10}');
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  await page.getByText('"offset": 1').waitFor();
  const path = dashboard.url("/api/v1/topics/kept.exact/history");
  const history = (await page.evaluate(`fetch("${path}").then((answer) => answer.text())`)) as string;
  expect(history).toContain('{"id": 12345678901234567890, "price": 1.10}');
  await page.close();
});

test("a client answers a request by hand, and a refusal is shown", async () => {
  const client = connect(`ws://${dashboard.engine.address}/ws`);
  handle(client, "confirm", (payload) => ({ confirmed: payload }));
  await client.ready();
  await client.subscribe("kept.callee").ready();
  const page = await dashboard.loggedIn();
  await page.goto(dashboard.url("#/topics/kept.callee"));
  await page.locator("section li a").click();
  await page.getByRole("link", { name: "Publish or request" }).click();
  const send = page.getByRole("button", { name: "Send the request" });
  await page.getByLabel("Type of the request").fill("confirm");
  await page.getByLabel("Payload of the request, JSON").fill('{"order": 17}');
  await send.click();
  await page.getByText('"order": 17').last().waitFor();
  await page.getByText('"confirmed"').waitFor();
  await page.getByLabel("Type of the request").fill("unknown");
  await send.click();
  await page.getByText("the client refused").waitFor();
  await page.getByLabel("Request to").selectOption("user");
  await page.getByLabel("Name of the connection or user").fill("nobody");
  await send.click();
  await page.getByText("the user nobody has no session").waitFor();
  await page.close();
  await client.close();
});

test("a connection is shown with its topics, and links lead from one to the other", async () => {
  const subscription = dashboard.client.subscribe("kept.link");
  await subscription.ready();
  const page = await dashboard.loggedIn();
  await page.goto(dashboard.url("#/topics/kept.link"));
  await page.locator("section li a").click();
  await page.getByRole("heading", { name: /^[0-9]+ topics$/ }).waitFor();
  await page.locator("section").getByRole("link", { name: "kept.link" }).click();
  const detail = page.getByRole("region", { name: "kept.link" });
  await detail.getByRole("link", { name: "Presence" }).click();
  await page.getByText("1 users on 1 connections").waitFor();
  await page.close();
});

test("a key that may only read sees why it changes nothing", async () => {
  const page = await dashboard.loggedIn(VIEWER);
  await page.getByText("Busiest topics").waitFor();
  await page.getByRole("link", { name: "Publish" }).click();
  const words = "The key viewer does not have the right publish, which this needs.";
  expect(await page.getByText(words).count()).toBe(2);
  for (const name of ["Publish", "Send the request"])
    expect(await page.getByRole("button", { name, exact: true }).isDisabled()).toBe(true);
  await page.getByRole("link", { name: "Connections" }).click();
  await page.locator(".row").first().click();
  await page.getByText("The key viewer does not have the right admin").waitFor();
  expect(await page.getByRole("button", { name: "End this connection" }).isDisabled()).toBe(true);
  await page.close();
});

test("a key that may only publish publishes", async () => {
  const page = await dashboard.loggedIn(SHOP);
  await page.getByText("The key shop does not have the right read, which this needs.").waitFor();
  await page.getByRole("link", { name: "Publish" }).click();
  await page.getByLabel("Its name").fill("kept.shop");
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  await page.getByText('"offset": 1').waitFor();
  await page.close();
});
