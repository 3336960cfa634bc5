/** Subscriptions that the server makes: kept, asked for again after a reconnection, and reported when they are lost. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Client, connect } from "../src/index.js";
import { type FakeConnection, FakeTransport } from "../src/testing.js";

interface Sent {
  t: string;
  cid?: string;
  p: Record<string, unknown> & { topics: string[] };
}

const EPOCH = "0badcafe";
const FEATURES = { recovery: true, topics: true, history: true, server_subscriptions: true };

let transport: FakeTransport;
let features: object;
/** What a client was told, in order. */
let told: string[];
let client: Client;

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(Math, "random").mockReturnValue(0);
  transport = new FakeTransport();
  features = FEATURES;
  told = [];
  transport.onConnect = (connection) => connection.accept({ features });
});

afterEach(async () => {
  const closed = client.close();
  await later(10);
  await closed;
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const later = (ms: number) => vi.advanceTimersByTimeAsync(ms);
const last = () => transport.connections.at(-1)!;
const requests = (connection: FakeConnection = last()) =>
  (connection.sent as Sent[]).filter(({ t }) => t === "subscription_update");

async function start(): Promise<void> {
  client = connect("ws://fake.test/", { transport });
  client.on("message", ({ topic, payload }) => told.push(`${topic} ${payload}`));
  client.on("subscriptionLost", ({ topics }) => told.push(`lost ${topics}`));
  client.on("unrecovered", ({ topic }) => told.push(`unrecovered ${topic}`));
  client.on("gap", ({ topic, count }) => told.push(`gap ${topic} ${count}`));
  await later(10);
}

/** The server subscribes the client by itself. */
function give(topic: string, offset?: number, epoch = EPOCH): void {
  const recovery = offset === undefined ? {} : { [topic]: { epoch, offset, recovered: false, count: 0 } };
  const p = { action: "subscribe", success_topics: [topic], failed_topics: [], recovery };
  last().send({ c: "WSE", t: "subscription_update", p });
}

const publish = (topic: string, o: number, e = EPOCH) =>
  last().send({ c: "U", t: "x", tp: topic, e, o, p: o });

/** Answers the last request: topics by their offsets, or the code of why not. */
function answer(
  topics: Record<string, number | string>,
  more: object = {},
  request = requests().at(-1)!,
): void {
  const entries = Object.entries(topics);
  const given = entries.filter(([, value]) => typeof value === "number") as [string, number][];
  const failed = entries.filter(([, value]) => typeof value === "string");
  const place = ([name, offset]: [string, number]) => [
    name,
    { epoch: EPOCH, offset, recovered: true, count: 0, ...more },
  ];
  const p = {
    action: "subscribe",
    success_topics: given.map(([name]) => name),
    failed_topics: failed.map(([name]) => name),
    failures: failed.map(([topic, code]) => ({ topic, code, message: "no" })),
    recovery: Object.fromEntries(given.map(place)),
  };
  last().send({ c: "WSE", t: "subscription_update", cid: request.cid, p });
}

/** The connection is lost, and the next one is there. */
async function reconnect(): Promise<void> {
  last().close(1006);
  await later(100);
}

test("a message for several such subscriptions arrives once, and not where the client has one of its own", async () => {
  await start();
  give("news.eu", 5);
  give("news.*");
  give("*.eu");
  publish("news.eu", 6);
  last().send({ c: "U", t: "x", tp: "news.us", p: 1 });
  expect(told).toEqual(["news.eu 6", "news.us 1"]);
  const own: unknown[] = [];
  client.subscribe("news.>").on("message", ({ payload }) => own.push(payload));
  await later(0);
  answer({ "news.>": 6 });
  publish("news.eu", 7);
  expect(own).toEqual([7]);
  expect(told).toEqual(["news.eu 6", "news.us 1"]);
});

test("what such a subscription brings is what the client has not asked for, and it is asked for again", async () => {
  await start();
  give("news", 5);
  give("plain");
  publish("news", 6);
  last().send({ c: "U", t: "x", tp: "plain", p: 1 });
  expect(requests()).toEqual([]);
  await reconnect();
  const renewals = requests().map(({ p }) => p);
  expect(renewals).toEqual([
    {
      action: "subscribe",
      renew: true,
      recover: true,
      topics: ["news"],
      recovery: { news: { epoch: EPOCH, offset: 6 } },
    },
    { action: "subscribe", renew: true, topics: ["plain"] },
  ]);
  expect(client.state).toBe("recovering");
  answer({ news: 8 }, { count: 2 }, requests()[0]);
  answer({ plain: "none" }, {}, requests()[1]);
  publish("news", 7);
  publish("news", 8);
  publish("news", 9);
  await later(10);
  expect(told).toEqual(["news 6", "plain 1", "lost plain", "news 7", "news 8", "news 9"]);
  expect(client.state).toBe("open");
});

test("what the server cannot recover is reported", async () => {
  await start();
  give("news", 5);
  publish("news", 6);
  await reconnect();
  answer({ news: 40 }, { recovered: false });
  publish("news", 41);
  await later(10);
  expect(told).toEqual(["news 6", "unrecovered news", "news 41"]);
});

test("one that the server refuses for its rights may come back within 5 s, and is recovered then", async () => {
  await start();
  give("news", 5);
  await reconnect();
  answer({ news: "TOPIC_FORBIDDEN" });
  await later(4_000);
  expect([told, client.state]).toEqual([[], "open"]);
  give("news", 7);
  await later(10);
  expect(requests()).toHaveLength(2);
  expect(requests()[1]!.p).toMatchObject({ renew: true, recovery: { news: { epoch: EPOCH, offset: 5 } } });
  answer({ news: 7 }, { count: 2 });
  publish("news", 6);
  publish("news", 7);
  await later(10_000);
  expect(told).toEqual(["news 6", "news 7"]);
});

test("where nothing was missed it is not asked for a second time", async () => {
  await start();
  give("news", 5);
  await reconnect();
  answer({ news: "TOPIC_FORBIDDEN" });
  give("news", 5);
  await later(10_000);
  publish("news", 6);
  expect(requests()).toHaveLength(1);
  expect(told).toEqual(["news 6"]);
});

test("one that does not come back within 5 s is lost, once", async () => {
  await start();
  give("news", 5);
  give("other", 5);
  await reconnect();
  answer({ news: "TOPIC_FORBIDDEN", other: 5 });
  await later(4_800);
  expect(told).toEqual([]);
  await later(300);
  expect(told).toEqual(["lost news"]);
  await reconnect();
  expect(requests().flatMap(({ p }) => p.topics)).toEqual(["other"]);
  answer({ other: 5 });
  await later(10_000);
  expect(told).toEqual(["lost news"]);
});

test("another reason is told at once", async () => {
  await start();
  give("news", 5);
  await reconnect();
  answer({ news: "LIMIT_EXCEEDED" });
  await later(0);
  expect(told).toEqual(["lost news"]);
});

test("the server's update may come while the answer to the renewal is on its way", async () => {
  await start();
  give("news", 5);
  await reconnect();
  give("news", 7);
  answer({ news: "TOPIC_FORBIDDEN" });
  await later(10);
  expect(requests()).toHaveLength(2);
  answer({ news: 7 }, { count: 2 });
  publish("news", 6);
  publish("news", 7);
  await later(10_000);
  expect(told).toEqual(["news 6", "news 7"]);
});

test("the server may make it again before its hello, which changes no position", async () => {
  await start();
  give("news", 5);
  transport.onConnect = (connection) => {
    connection.accept({ features });
    give("news", 9);
  };
  await reconnect();
  expect(requests()[0]!.p).toMatchObject({ renew: true, recovery: { news: { epoch: EPOCH, offset: 5 } } });
  answer({ news: 9 }, { count: 4 });
  for (const offset of [6, 7, 8, 9]) publish("news", offset);
  expect(told).toEqual(["news 6", "news 7", "news 8", "news 9"]);
});

test("one that the server ends is lost, and not asked for again", async () => {
  await start();
  give("news", 5);
  last().send({ c: "WSE", t: "subscription_update", p: { action: "unsubscribe", success_topics: ["news"] } });
  expect(told).toEqual(["lost news"]);
  await reconnect();
  expect(requests()).toEqual([]);
});

test("one that the client subscribes by itself is its own, from its position on", async () => {
  await start();
  give("news", 5);
  const own: unknown[] = [];
  const news = client.subscribe("news");
  news.on("message", ({ payload }) => own.push(payload));
  await later(10);
  expect(requests()[0]!.p).toEqual({
    action: "subscribe",
    recover: true,
    topics: ["news"],
    recovery: { news: { epoch: EPOCH, offset: 5 } },
  });
  answer({ news: 5 });
  publish("news", 6);
  expect([own, told]).toEqual([[6], []]);
  // The server may subscribe it as well.
  give("news", 6);
  await reconnect();
  expect(requests().map(({ p }) => [p.topics, p.renew])).toEqual([[["news"], undefined]]);
  answer({ news: "TOPIC_FORBIDDEN" });
  await later(0);
  await expect(news.ready()).rejects.toMatchObject({ code: "SUBSCRIPTION_FAILED" });
});

test("what a pattern of the client takes is the pattern's alone", async () => {
  await start();
  const own: unknown[] = [];
  client.subscribe("news.*").on("message", ({ payload }) => own.push(payload));
  await later(10);
  const p = { action: "subscribe", success_topics: ["news.*"], failed_topics: [], recovery: {} };
  last().send({ c: "WSE", t: "subscription_update", cid: requests()[0]!.cid, p });
  give("news.eu", 5);
  publish("news.eu", 6);
  give("other", 5);
  publish("other", 6);
  expect([own, told]).toEqual([[6], ["other 6"]]);
});

test("a topic that the client has is not made the server's", async () => {
  await start();
  client.subscribe("news");
  await later(10);
  answer({ news: 5 });
  give("news", 9);
  publish("news", 6);
  await reconnect();
  expect(requests().map(({ p }) => [p.topics, p.renew, p.recovery])).toEqual([
    [["news"], undefined, { news: { epoch: EPOCH, offset: 6 } }],
  ]);
});

test("a server without the feature is asked for nothing; what it does not name within 5 s is lost", async () => {
  await start();
  give("news", 5);
  give("other", 5);
  features = {};
  await reconnect();
  give("other", 8);
  await later(4_800);
  expect([told, client.state]).toEqual([[], "open"]);
  await later(300);
  expect(told).toEqual(["lost news"]);
  publish("other", 9);
  await later(10_000);
  expect(requests()).toEqual([]);
  expect(told).toEqual(["lost news", "gap other 3", "other 9"]);
  give("third", 1);
  await reconnect();
  await later(6_000);
  expect(told.slice(3)).toEqual(["lost other,third"]);
});

test("a renewal that is not answered is made again on the next connection", async () => {
  await start();
  give("news", 5);
  await reconnect();
  expect(requests()).toHaveLength(1);
  await reconnect();
  expect(requests()).toHaveLength(1);
  answer({ news: 5 });
  await later(10_000);
  expect(told).toEqual([]);
});
