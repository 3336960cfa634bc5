/** What the test server has beside the behaviour of a server: handlers, faults, and what a test sees of its clients. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type Client, type ClientOptions, connect, handle, history, open } from "../../src/index.js";
import { CallError, TestServer } from "../../src/testing.js";

const clients: Client[] = [];
let server: TestServer;

beforeEach(() => {
  server = new TestServer({ history: { "kept.>": 100 }, presence: ["room.*"] });
});

afterEach(async () => {
  server.heal();
  await Promise.all(clients.splice(0).map((client) => client.close()));
  vi.useRealTimers();
});

function client(options: ClientOptions = {}): Client {
  const { transport, url } = server;
  const made = connect(url, { transport, reconnect: { baseMs: 5, maxMs: 20 }, ...options });
  clients.push(made);
  return made;
}

/** Payloads of a topic, as they come. */
function heard(one: Client, topic: string) {
  const subscription = one.subscribe(topic);
  const messages: unknown[] = [];
  subscription.on("message", ({ payload }) => messages.push(payload));
  return Object.assign(subscription, { messages });
}

test("handlers get messages and requests, and answer them", async () => {
  const told: unknown[] = [];
  server.on("connect", ({ connection }) => told.push(["connect", connection.user]));
  server.on("disconnect", ({ connection }) => told.push(["disconnect", connection.user]));
  server.on<string>("chat", ({ payload, user, connection }) => {
    told.push([user, payload]);
    connection.send({ echo: payload }, { type: "chat" });
  });
  server.on("*", ({ type }) => told.push(type));
  server.handle<number[]>("sum", async ({ payload }) => payload.reduce((sum, n) => sum + n, 0));
  server.handle("*", ({ type }) => `nobody knows ${type}`);
  const one = client({ token: "ann" });
  const messages: unknown[] = [];
  one.on("message", ({ type, payload }) => messages.push([type, payload]));
  one.send("chat", "hello");
  one.send("other");
  expect(await one.request("sum", [1, 2, 3])).toBe(6);
  expect(await one.request("what")).toBe("nobody knows what");
  await expect.poll(() => messages).toEqual([["chat", { echo: "hello" }]]);
  await one.close();
  expect(told).toEqual([["connect", "ann"], ["ann", "hello"], "other", ["disconnect", "ann"]]);
});

test("a handler refuses in words of its own; another error is the test's to see, and not the client's", async () => {
  const failed: unknown[] = [];
  server = new TestServer({ log: (error) => failed.push(error) });
  const bug = new Error("a bug");
  server.handle("book", () => {
    throw new CallError("at most 4 seats", { code: "TOO_MANY" });
  });
  server.handle("bug", () => {
    throw bug;
  });
  const one = client();
  await expect(one.request("book")).rejects.toMatchObject({ code: "TOO_MANY", message: "at most 4 seats" });
  await expect(one.request("bug")).rejects.toMatchObject({
    code: "HANDLER_ERROR",
    message: "the handler failed",
  });
  expect(failed).toEqual([bug]);
});

test("the server publishes, sends to users, subscribes them and asks them", async () => {
  const [ann, bob] = [client({ token: "ann" }), client({ token: "bob" })];
  const messages: [string, string | undefined, unknown][] = [];
  for (const one of [ann, bob]) {
    one.on("message", ({ topic, payload }) => messages.push([one === ann ? "ann" : "bob", topic, payload]));
    handle(one, "where", () => (one === ann ? "here" : "there"));
  }
  await Promise.all([ann.ready(), bob.ready()]);
  server.sendToUser("ann", 1);
  server.broadcast(2);
  server.subscribeUser("bob", "kept.given");
  server.publish("kept.given", 3);
  await expect.poll(() => messages.length).toBe(4);
  const of = (user: string) => messages.filter(([name]) => name === user);
  expect([of("ann"), of("bob")]).toEqual([
    [
      ["ann", undefined, 1],
      ["ann", undefined, 2],
    ],
    [
      ["bob", undefined, 2],
      ["bob", "kept.given", 3],
    ],
  ]);
  const asked = server.connections.map((connection) => connection.request(null, { type: "where" }));
  expect(await Promise.all(asked)).toEqual(["here", "there"]);
  await expect(server.connections[0]!.request(1, { type: "what" })).rejects.toMatchObject({
    code: "NOT_FOUND",
  });
  server.disconnect({ user: "bob" });
  server.publish("kept.given", 4);
  await expect.poll(() => messages.at(-1)).toEqual(["bob", "kept.given", 4]);
  const lost = new Promise((resolve) => bob.on("subscriptionLost", resolve));
  server.unsubscribeUser("bob", "kept.given");
  expect(await lost).toEqual({ topics: ["kept.given"] });
});

test("messages to many pass connections by", async () => {
  const clients = ["ann", "bob", "cid"].map((token) => client({ token }));
  const heard: string[] = [];
  for (const [index, one] of clients.entries()) {
    const told = ({ payload }: { payload: unknown }) => heard.push(`${index} ${payload}`);
    one.on("message", told);
    const subscription = one.subscribe("a");
    subscription.on("message", told);
    await subscription.ready();
  }
  const [ann, bob] = server.connections;
  server.publish("a", 1, { exclude: ann! });
  server.broadcast(2, { exclude: new Set([ann!, bob!]) });
  server.sendToUser("ann", 3, { exclude: [ann!] });
  server.broadcast(4, { exclude: [] });
  await expect.poll(() => heard.length).toBe(6);
  expect(heard.sort()).toEqual(["0 4", "1 1", "1 4", "2 1", "2 2", "2 4"]);
});

test("what decides about publications has their connection, waits, and its bugs are told to the test alone", async () => {
  const failed: unknown[] = [];
  server = new TestServer({ log: (error) => failed.push(error) });
  const seen: unknown[] = [];
  server.onPublish<Uint8Array>("rooms.*", async ({ topic, type, user, payload, connection }) => {
    seen.push([topic, type, user, [...payload], connection === server.connections[0]]);
    await new Promise((resolve) => setTimeout(resolve, 20));
  });
  const bug = new Error("a bug");
  server.onPublish("rooms.>", () => {
    throw bug;
  });
  const one = client({ token: "ann" });
  const order: number[] = [];
  const asked = [
    one.publish("rooms.a", new Uint8Array([1]), { type: "image" }),
    one.publish("other", 1),
    one.publish("rooms.a.b", 1),
  ].map((sent, index) => sent.then(() => order.push(index)));
  await expect(asked[2]).rejects.toMatchObject({ code: "HANDLER_ERROR", message: "the handler failed" });
  await Promise.all(asked.slice(0, 2));
  expect(order).toEqual([0, 1]);
  expect(seen).toEqual([["rooms.a", "image", "ann", [1], true]]);
  expect(failed).toEqual([bug]);
  expect(() => server.onPublish("a..b", () => {})).toThrow("no name of a topic");
});

test("a test sees who is connected, what was asked, and what topics have", async () => {
  const one = client({ token: "ann" });
  await one.subscribe("room.a", { presence: { name: "Ann" } }).ready();
  await one.subscribe(["kept.a", "kept.*"]).ready();
  await one.publish("kept.a", { n: 1 });
  expect(server.subscribers("kept.a")).toBe(1);
  expect(server.subscribers("kept.b")).toBe(1);
  expect(server.subscribers("room.b")).toBe(0);
  expect(server.presence("room.a")).toEqual({ ann: { connections: 1, data: { name: "Ann" } } });
  expect(server.history("kept.a").map(({ payload }) => payload)).toEqual([{ n: 1 }]);
  expect(server.connections.map(({ user, topics }) => [user, topics])).toEqual([
    ["ann", ["room.a", "kept.a", "kept.*"]],
  ]);
  expect(server.requests.map(({ what, name, user }) => [what, name, user])).toEqual([
    ["subscribe", "room.a", "ann"],
    ["subscribe", "kept.a", "ann"],
    ["subscribe", "kept.*", "ann"],
    ["publish", "kept.a", "ann"],
  ]);
  await one.close();
  expect([server.connections, server.presence("room.a"), server.subscribers("kept.a")]).toEqual([[], {}, 0]);
});

test("who a client is comes from its token, or from the test", async () => {
  const claims = btoa(JSON.stringify({ sub: "ada" }));
  await client({ token: `eyJhbGciOiJIUzI1NiJ9.${claims}.c2ln` }).ready();
  await client({ token: "just a name" }).ready();
  await client().ready();
  expect(server.connections.map(({ user }) => user)).toEqual(["ada", "just a name", undefined]);
  server = new TestServer({
    user: ({ token, url }) => {
      if (token !== "good") throw new Error("the token has expired");
      return url.searchParams.get("as") ?? undefined;
    },
  });
  const { transport } = server;
  await expect(open("ws://a.test/ws", { transport, token: "bad" })).rejects.toMatchObject({
    code: "AUTH_FAILED",
    message: expect.stringContaining("the token has expired"),
  });
  clients.push(await open("ws://a.test/ws?as=eve", { transport, token: "good" }));
  expect(server.connections.map(({ user }) => user)).toEqual(["eve"]);
});

test("a publication that is dropped is a gap, and the next one comes", async () => {
  const own = heard(client(), "kept.a");
  await own.ready();
  const gaps: unknown[] = [];
  own.on("gap", ({ reason, count, range }) => gaps.push([reason, count, range?.from]));
  server.drop("publication", { name: "kept.a", times: 2 });
  for (let n = 1; n <= 3; n++) server.publish("kept.a", n);
  await expect.poll(() => own.messages).toEqual([3]);
  expect(gaps).toEqual([
    ["dropped", 1, 1],
    ["dropped", 1, 2],
  ]);
});

test("a lost request is not done, a lost answer is, and the client asks again only where that does no harm", async () => {
  let count = 0;
  server.handle("count", () => ++count);
  const one = client({ requestTimeoutMs: 60 });
  await one.ready();
  server.drop("request", { name: "count", times: 1 });
  await expect(one.request("count")).rejects.toMatchObject({ code: "TIMEOUT" });
  expect(count).toBe(0);
  server.drop("request", { times: 1, answerOnly: true });
  await expect(one.request("count")).rejects.toMatchObject({ code: "TIMEOUT" });
  expect(count).toBe(1);
  expect(await one.request("count")).toBe(2);
  server.drop("publish", { times: 1, answerOnly: true });
  const patient = client();
  const published = patient.publish("kept.a", 1);
  await expect.poll(() => server.history("kept.a").length).toBe(1);
  server.disconnect();
  expect(await published).toMatchObject({ isDuplicate: true, position: { offset: 1 } });
  expect(server.history("kept.a")).toHaveLength(1);
});

test("what is delayed comes later, with what is behind it; timers may be those of the test", async () => {
  const one = client();
  const own = heard(one, "kept.a");
  await own.ready();
  server.handle("time", () => "now");
  vi.useFakeTimers();
  server.delay("publication", 1_000, { times: 1 });
  server.publish("kept.a", 1);
  server.publish("kept.a", 2);
  await vi.advanceTimersByTimeAsync(999);
  expect(own.messages).toEqual([]);
  await vi.advanceTimersByTimeAsync(1);
  expect(own.messages).toEqual([1, 2]);
  const heal = server.delay("request", 500);
  const answers: unknown[] = [];
  void one.request("time").then((answer) => answers.push(answer));
  await vi.advanceTimersByTimeAsync(499);
  heal();
  void one.request("time").then((answer) => answers.push(["soon", answer]));
  await vi.advanceTimersByTimeAsync(0);
  expect(answers).toEqual([["soon", "now"]]);
  await vi.advanceTimersByTimeAsync(1);
  expect(answers).toEqual([["soon", "now"], "now"]);
});

test("each kind of request can be refused, by name and for a number of times", async () => {
  const one = client();
  server.handle("quote", () => 1);
  server.refuse("subscribe", "TOPIC_FORBIDDEN", { name: "kept.a", times: 1, message: "not today" });
  await expect(one.subscribe(["kept.a"]).ready()).rejects.toMatchObject({
    code: "SUBSCRIPTION_FAILED",
    cause: { code: "TOPIC_FORBIDDEN", message: "not today" },
  });
  await one.subscribe("kept.a").ready();
  server.refuse("publish", "QUEUE_FULL", { retryAfterMs: 1_500, times: 1 });
  await expect(one.publish("kept.a", 1)).rejects.toMatchObject({ code: "QUEUE_FULL", retryAfterMs: 2_000 });
  const heal = server.refuse("request", "SOLD_OUT", { name: "quote" });
  await expect(one.request("quote")).rejects.toMatchObject({ code: "SOLD_OUT" });
  heal();
  expect(await one.request("quote")).toBe(1);
  server.refuse("history", "TOPIC_FORBIDDEN", { times: 1 });
  await expect(history(one, "kept.a")).rejects.toMatchObject({ code: "TOPIC_FORBIDDEN" });
  expect((await history(one, "kept.a")).publications).toEqual([]);
  server.refuse("connect", 503, { times: 1, message: "closed for today" });
  await expect(open(server.url, { transport: server.transport })).rejects.toMatchObject({
    code: "CONNECT_FAILED",
    message: expect.stringContaining("closed for today"),
  });
});

test("clients come back after an interruption, a stop and a restart", async () => {
  const one = client();
  const own = heard(one, "kept.a");
  const unrecovered: unknown[] = [];
  own.on("unrecovered", ({ topic }) => unrecovered.push(topic));
  await own.ready();
  server.publish("kept.a", 1);
  server.disconnect();
  server.publish("kept.a", 2);
  await expect.poll(() => own.messages).toEqual([1, 2]);
  server.stop({ comeBackMs: false });
  await expect
    .poll(() => one.status.get())
    .toMatchObject({ code: 1006, reason: "the test server is stopped" });
  server.publish("kept.a", 3);
  server.start();
  await expect.poll(() => own.messages).toEqual([1, 2, 3]);
  expect(unrecovered).toEqual([]);
  server.restart();
  await expect.poll(() => unrecovered).toEqual(["kept.a"]);
  server.publish("kept.a", 4);
  await expect.poll(() => own.messages).toEqual([1, 2, 3, 4]);
});

test("a format or a layer that the server does not read is refused in words", async () => {
  const { msgpack } = await import("../../src/msgpack.js");
  const { transport, url } = server;
  const refused = { code: "CONNECT_FAILED", message: expect.stringContaining("reads JSON alone") };
  await expect(open(url, { transport, format: msgpack() })).rejects.toMatchObject(refused);
});
