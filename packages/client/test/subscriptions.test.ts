import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, test, vi } from "vitest";
import { readText } from "../src/core/pipeline.js";
import { Subscriptions } from "../src/core/subscriptions.js";
import { type Client, type ClientOptions, connect } from "../src/index.js";
import type { Message } from "../src/message.js";
import { type FakeConnection, FakeTransport } from "../src/testing.js";

interface Request {
  t: string;
  cid: string;
  p: {
    action: string;
    topics: string[];
    filter?: object;
    presence?: object;
    replay?: number;
    tokens?: object;
  };
}

/** A client, and the requests for topics that its server has got; the test answers them. */
async function start(options: ClientOptions = {}) {
  const transport = new FakeTransport();
  const requests: Request[] = [];
  let connection!: FakeConnection;
  transport.onConnect = (opened) => {
    connection = opened;
    opened.onMessage = ((message: Request) => {
      if (message.t === "subscription_update") requests.push(message);
    }) as never;
    opened.accept({ features: { topics: true, presence: true } });
  };
  const client: Client = await connect("ws://fake.test/", { ...options, transport }).connected();
  const next = async () => {
    const request = await vi.waitUntil(() => requests.shift());
    return request.p;
  };
  const answered: Request[] = [];
  const answer = async (): Promise<Request["p"]> => {
    const request = await vi.waitUntil(() => requests.shift());
    answered.push(request);
    const { cid, p } = request;
    const done = { action: p.action, success_topics: p.topics, failed_topics: [], recovery: {} };
    connection.send({ c: "WSE", t: "subscription_update", cid, p: done });
    return p;
  };
  const end = (p: object) => connection.send({ c: "WSE", t: "subscription_update", p });
  const publish = (tp: string, p: unknown) => connection.send({ c: "U", t: "message", tp, p });
  return { client, requests, next, answer, end, publish };
}

test("presence data is added to a subscription that has none, and changed, by subscribing again", async () => {
  const { client, answer, requests } = await start();
  const plain = client.subscribe("chat");
  expect(await answer()).toEqual({ action: "subscribe", topics: ["chat"] });
  await plain.ready();
  const first = client.subscribe("chat", { presence: { name: "A" } });
  expect(await answer()).toEqual({ action: "subscribe", topics: ["chat"], presence: { name: "A" } });
  const second = client.subscribe("chat", { presence: { name: "B" } });
  await first.unsubscribe();
  expect(await answer()).toEqual({ action: "subscribe", topics: ["chat"], presence: { name: "B" } });
  client.subscribe("chat", { presence: { name: "B" } });
  await second.unsubscribe();
  await client.ready();
  expect(requests).toEqual([]);
  await client.close();
});

test("other options after the last subscription has ended: that ends on the wire, and its messages go to nobody", async () => {
  const { client, answer, publish } = await start();
  const filtered = client.subscribe("trades", { filter: { field: "side", eq: "buy" } });
  expect(await answer()).toMatchObject({ action: "subscribe", filter: { field: "side", eq: "buy" } });
  await filtered.ready();
  const seen: unknown[] = [];
  await filtered.unsubscribe();
  const all = client.subscribe("trades");
  all.on("message", ({ payload }) => seen.push(payload));
  publish("trades", "of the old subscription");
  expect(all.status.get().state).toBe("pending");
  expect(await answer()).toEqual({ action: "unsubscribe", topics: ["trades"] });
  expect(await answer()).toEqual({ action: "subscribe", topics: ["trades"] });
  await all.ready();
  publish("trades", "of the new one");
  expect(seen).toEqual(["of the new one"]);
  await client.close();
});

test("the same while the first answer is still missing", async () => {
  const { client, answer, requests } = await start();
  const filtered = client.subscribe("trades", { filter: { field: "side", eq: "buy" } });
  await vi.waitUntil(() => requests.length > 0);
  await filtered.unsubscribe();
  const all = client.subscribe("trades");
  expect(await answer()).toMatchObject({ action: "subscribe", filter: {} });
  expect(await answer()).toMatchObject({ action: "unsubscribe" });
  expect(all.status.get().state).toBe("pending");
  expect(await answer()).toEqual({ action: "subscribe", topics: ["trades"] });
  await all.ready();
  await client.close();
});

test("a topic whose token has expired is subscribed again with another token", async () => {
  const { client, answer, end, requests } = await start();
  let number = 0;
  const tokens = (topic: string) => (number < 2 ? `${topic}-${number++}` : undefined);
  const rooms = client.subscribe("rooms.7", { tokens });
  const failed: string[] = [];
  rooms.on("failed", ({ error }) => failed.push(error.code));
  const first = { action: "subscribe", topics: ["rooms.7"], tokens: { "rooms.7": "rooms.7-0" } };
  expect(await answer()).toEqual(first);
  await rooms.ready();
  const ended = (code: string) => ({
    action: "unsubscribe",
    success_topics: ["rooms.7"],
    failures: [{ topic: "rooms.7", code, message: "x" }],
  });
  end(ended("TOKEN_EXPIRED"));
  expect(await answer()).toEqual({ ...first, tokens: { "rooms.7": "rooms.7-1" } });
  expect([failed, rooms.status.get().state]).toEqual([[], "active"]);
  // Another reason is none to try again.
  end(ended("TOPIC_FORBIDDEN"));
  await vi.waitUntil(() => failed.length);
  expect(rooms.status.get().state).toBe("ended");
  expect(requests).toEqual([]);
  await client.close();
});

test("requests with tokens are of a hundred topics", async () => {
  const { client, answer } = await start();
  const names = Array.from({ length: 150 }, (_, index) => `t.${index}`);
  client.subscribe(names, { tokens: (topic) => `token of ${topic}` });
  const sizes = [await answer(), await answer()].map((p) => Object.keys(p.tokens ?? {}).length);
  expect(sizes).toEqual([100, 50]);
  await client.close();
});

test("a connect and a recovery leave marks for the performance panel, if that is wanted", async () => {
  const count = (name: string) => performance.getEntriesByName(`tidewire:${name}`).length;
  for (const marks of [false, true]) {
    const { client, answer } = await start({ marks });
    performance.clearMeasures();
    client.subscribe("chat");
    await answer();
    await client.ready();
    client.reconnect();
    await answer();
    await vi.waitUntil(() => client.state === "open");
    expect([count("open"), count("recovered")]).toEqual(marks ? [1, 1] : [0, 0]);
    await client.close();
  }
});

test("what has no effect on a pattern is told in development", async () => {
  const told: string[] = [];
  const logged: string[] = [];
  const { client, answer } = await start({
    on: { degraded: ({ what, reason }) => told.push(`${what}: ${reason}`) },
    log: (level, message) => level === "warn" && logged.push(message),
  });
  client.subscribe("chat.eu", { recover: true, replay: 5 });
  expect(await answer()).toMatchObject({ topics: ["chat.eu"], replay: 5 });
  client.subscribe("prices.*");
  client.subscribe("news.>", { recover: false, replay: 0 });
  expect(told).toEqual([]);
  client.subscribe(["chat.us", "chat.*"], { recover: true, replay: 5 });
  expect(told).toEqual([
    expect.stringContaining("recover: recover has no effect on the pattern chat.*"),
    expect.stringContaining("replay: replay has no effect on the pattern chat.*"),
  ]);
  expect(logged).toHaveLength(2);
  await client.close();
});

test("topics that are remembered do not keep their messages in memory", () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  const subscriptions = new Subscriptions({ emit() {}, isPoor: false }, 5_000);
  const used = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const before = used();
  const padding = "x".repeat(100_000);
  for (let n = 0; n < 300; n++) {
    const names = `"t":"tick","tp":"a.topic.with.a.long.name-${n}"`;
    const bytes = new TextEncoder().encode(`{"c":"U",${names},"e":"0badcafe","o":1,"p":"${padding}"}`);
    subscriptions.deliver(readText(new TextDecoder().decode(bytes)) as Message, false, 0);
  }
  expect(used() - before).toBeLessThan(5_000_000);
  expect(subscriptions.size).toBe(0);
});
