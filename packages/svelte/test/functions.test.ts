import { connect } from "@tidewire/client";
import { TestServer } from "@tidewire/client/testing";
import { type Component, flushSync, mount, unmount } from "svelte";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { TidewireOptions } from "../src/index.js";
import App from "./App.svelte";
import Chat from "./Chat.svelte";
import Members from "./Members.svelte";
import Quote from "./Quote.svelte";
import Rows from "./Rows.svelte";
import Sum from "./Sum.svelte";
import { stateOf } from "./state.svelte.js";

const mounted: object[] = [];
let server: TestServer;

beforeEach(() => {
  server = new TestServer({ history: { "chat.>": 100 }, presence: ["room.*"] });
});

afterEach(async () => {
  await Promise.all(mounted.splice(0).map((one) => unmount(one)));
});

/** Mounts a component below one that gives it the server's client. */
function show(component: Component<never>, inner: object = {}, source?: TidewireOptions) {
  const { url, transport } = server;
  const own = source ?? { url, options: { transport, reconnect: { baseMs: 5, maxMs: 20 } } };
  const target = document.createElement("div");
  const app = mount(App, { target, props: { source: own, component, inner } });
  mounted.push(app);
  flushSync();
  return {
    text: () => target.textContent?.trim(),
    end: () => unmount(mounted.splice(mounted.indexOf(app), 1)[0]!),
  };
}

test("a topic shows its messages, and another topic begins with nothing at once", async () => {
  const shown: string[] = [];
  const state = stateOf<{ topic: string | null; shown: string[] }>({ topic: "chat.a", shown: [] });
  Object.defineProperty(state, "shown", { value: shown });
  const { text } = show(Chat, { state });
  expect(text()).toBe("connecting pending");
  server.publish("chat.a", { text: "one" });
  await expect.poll(text).toBe("open active one");
  server.publish("chat.a", { text: "two" });
  await expect.poll(text).toBe("open active one,two");
  server.publish("chat.b", { text: "other" });
  state.topic = "chat.b";
  flushSync();
  expect(text()).toBe("open pending");
  await expect.poll(text).toBe("open active other");
  expect(shown.filter((line) => line.startsWith("chat.b") && line.includes("one"))).toEqual([]);
  await expect.poll(() => server.connections[0]?.topics).toEqual(["chat.b"]);
  state.topic = null;
  await expect.poll(text).toBe("open ended");
  await expect.poll(() => server.connections[0]?.topics).toEqual([]);
});

test("what is missed comes, and the state of the connection is shown", async () => {
  const { text } = show(Chat, { state: stateOf({ topic: "chat.a" }) });
  await expect.poll(text).toBe("open active");
  server.stop({ comeBackMs: false });
  await expect.poll(text).toMatch(/^(waiting|connecting) active/);
  server.publish("chat.a", { text: "missed" });
  server.start();
  await expect.poll(text).toBe("open active missed");
});

test("options are followed, a reducer makes a state, and what nobody reads works, too", async () => {
  const state = stateOf({ least: 2 });
  const heard: unknown[] = [];
  const { text } = show(Sum, { state, heard });
  await expect.poll(text).toBe("active 0");
  for (const n of [1, 2, 3]) server.publish("chat.a", { n });
  await expect.poll(text).toBe("active 5");
  state.least = 3;
  await expect.poll(text).toBe("active 0");
  for (const n of [2, 3]) server.publish("chat.a", { n });
  await expect.poll(text).toBe("active 3");
  server.publish("chat.b", "ding");
  await expect.poll(() => heard).toEqual(["ding"]);
});

test("a table and the last message share one subscription on the wire", async () => {
  const { text } = show(Rows);
  await expect.poll(() => server.subscribers("prices")).toBe(1);
  for (const [symbol, value] of [
    ["A", 1],
    ["B", 1],
    ["A", 2],
  ])
    server.publish("prices", { symbol, value });
  await expect.poll(text).toBe("A2 B1 A");
  expect(server.requests.filter(({ what }) => what === "subscribe")).toHaveLength(1);
});

test("members come, change and go, and this user with its data", async () => {
  const state = stateOf({ name: "Me" });
  const { text, end } = show(Members, { state });
  await expect.poll(text).toBe("true 1 Me");
  const other = connect(server.url, { transport: server.transport, token: "bob" });
  const own = other.subscribe("room.a", { presence: { name: "Bob" } });
  await expect.poll(text).toBe("true 2 Me,Bob");
  state.name = "Myself";
  await expect.poll(text).toBe("true 2 Myself,Bob");
  expect(server.requests.filter(({ what }) => what === "unsubscribe")).toEqual([]);
  await own.unsubscribe();
  await expect.poll(text).toBe("true 1 Myself");
  await end();
  await expect.poll(() => server.presence("room.a")).toEqual({});
  await other.close();
});

test("a request is made once, and again for another payload or on demand", async () => {
  let price = 1;
  server.handle<{ symbol: string }>("quote", ({ payload }) => `${payload.symbol}${price}`);
  const state = stateOf({ symbol: "A" });
  const handles = {} as { refetch(): void; publish(payload: unknown): Promise<unknown> };
  const { text, end } = show(Quote, { state, handles });
  await expect.poll(text).toBe("success A1 open");
  price = 2;
  handles.refetch();
  await expect.poll(text).toBe("success A2 open");
  state.symbol = "B";
  flushSync();
  expect(text()).toBe("loading - open");
  await expect.poll(text).toBe("success B2 open");
  expect(server.requests.filter(({ what }) => what === "request")).toHaveLength(3);

  await handles.publish({ text: "hello" });
  expect(server.history("chat.a").map(({ payload }) => payload)).toEqual([{ text: "hello" }]);
  server.drop("publish");
  void handles.publish(1);
  const waited = handles.publish(2);
  await end();
  // An unhandled rejection would fail the run.
  await expect(waited).rejects.toMatchObject({ code: "CLOSED" });
});

test("a component that ends leaves no connection, and a client of the application is left open", async () => {
  for (let round = 0; round < 20; round += 1) {
    const { end, text } = show(Chat, { state: stateOf({ topic: "chat.a" }) });
    if (round % 5 === 0) await expect.poll(text).toBe("open active");
    await end();
  }
  await expect.poll(() => server.connections).toEqual([]);
  expect(server.subscribers("chat.a")).toBe(0);
  const client = connect(server.url, { transport: server.transport });
  const { end, text } = show(Chat, { state: stateOf({ topic: "chat.a" }) }, { client });
  await expect.poll(text).toBe("open active");
  await end();
  await expect.poll(() => server.subscribers("chat.a")).toBe(0);
  expect(client.state).toBe("open");
  await client.close();
});

test("without a client the error says what to do", () => {
  expect(() => mount(Rows, { target: document.createElement("div") })).toThrow("setTidewire");
});
