// Handlers with schemas, and middleware around them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { CallError, Server } from "../index.mjs";
import { Client, serve } from "./support.mjs";

test("a handler with a schema gets the checked payload, and others are refused by name", async (test) => {
  const Order = z.object({ article: z.string(), count: z.coerce.number().int().positive() });
  const server = await serve(test, {}, (server) => {
    server.on("order", Order, ({ connection }, order) => connection.send(order, { type: "ordered" }));
    server.handle("price", Order, async (_message, { count }) => count * 350);
  });
  const client = await Client.connect(test, server.url);
  client.say("order", { article: "tea", count: "3", more: true });
  assert.deepEqual((await client.until("ordered")).p, { article: "tea", count: 3 });
  assert.deepEqual(await client.request("price", { article: "tea", count: 2 }), { payload: 700 });
  client.say("order", { count: 0 }, { cid: "7" });
  const refused = await client.until("error");
  assert.equal(refused.cid, "7");
  assert.equal(refused.p.code, "INVALID_PAYLOAD");
  assert.match(refused.p.message, /^article: .+; count: .+/);
  const { error } = await client.request("price", "tea");
  assert.equal(error.code, "INVALID_PAYLOAD");
  client.send("M:no");
  assert.equal(server.handlerStatistics().refused, 2);
  assert.equal(server.handlerStatistics().errors, 0);
});

test("a schema may be of any library of the standard, also one that waits", async (test) => {
  const validate = async (value) => {
    if (Array.isArray(value)) return { value: value.length };
    const issue = (message) => ({ message, path: [{ key: "list" }, 0] });
    return { issues: ["one", "two", "three", "four", "five"].map(issue) };
  };
  const schema = { "~standard": { version: 1, vendor: "test", validate } };
  const server = await serve(test, {}, (server) =>
    server.handle("length", schema, (_message, length) => length),
  );
  const client = await Client.connect(test, server.url);
  assert.deepEqual(await client.request("length", [1, 2]), { payload: 2 });
  const { error } = await client.request("length", {});
  assert.equal(error.message, "list.0: one; list.0: two; list.0: three; 2 more");
});

test("middleware is around every handler of messages and requests, in its order", async (test) => {
  const seen = [];
  const server = await serve(test, {}, (server) => {
    server.on("early", () => seen.push("early"));
    server.use((message, next) => {
      seen.push(`first ${message.type}`);
      return next();
    });
    server.use(async (message, next) => {
      if (message.payload?.secret) throw new CallError("not you", { code: "NO" });
      const result = await next();
      seen.push(`after ${message.type}`);
      return message.kind === "request" ? [result] : result;
    });
    server.on("connect", () => seen.push("connect"));
    server.handle("double", ({ payload }) => 2 * payload);
    server.on("*", ({ type }) => seen.push(`rest ${type}`));
  });
  const client = await Client.connect(test, server.url);
  client.say("early");
  client.say("other");
  assert.deepEqual(await client.request("double", 21), { payload: [42] });
  assert.deepEqual(seen, [
    ...["connect", "first early", "early", "after early"],
    ...["first other", "rest other", "after other", "first double", "after double"],
  ]);
  client.say("early", { secret: true });
  assert.equal((await client.until("error")).p.code, "NO");
  assert.equal(seen.at(-1), "first early");
});

test("what is no schema and no middleware is refused", () => {
  const server = new Server({ noAuth: true });
  assert.throws(() => server.on("a", {}, () => {}), { name: "WrongTypeError", message: /Zod/ });
  assert.throws(() => server.on("a", z.string()), { name: "WrongTypeError", message: /the handler/ });
  assert.throws(() => server.use("a"), { name: "WrongTypeError", message: /the middleware/ });
});

/** A server with open topics, a reader of `rooms.tea`, and a function that publishes and gives the answer. */
async function rooms(test, prepare) {
  const topics = { clientSubscribeAllow: [">"], clientPublishAllow: [">"] };
  const server = await serve(test, topics, prepare);
  const reader = await Client.connect(test, server.url);
  await reader.subscribe("rooms.tea");
  const writer = await Client.connect(test, server.url);
  let number = 0;
  const publish = async (type, payload, topic = "rooms.tea", fields = {}) => {
    number += 1;
    writer.say("publish_request", { topic, type, payload, ...fields }, { cid: String(number) });
    for (;;) {
      const answer = JSON.parse(await writer.next());
      if (answer.cid === String(number)) return answer.t === "error" ? answer.p.code : answer.t;
    }
  };
  return { server, reader, writer, publish };
}

test("a handler of a topic decides about what clients publish to it", async (test) => {
  const seen = [];
  const Said = z.object({ text: z.string().max(20) });
  const { server, reader, writer, publish } = await rooms(test, (server) => {
    server.use((message, next) => {
      seen.push(`${message.kind} ${message.topic}`);
      return next();
    });
    server.onPublish("rooms.*", Said, async (message, { text }) => {
      assert.throws(() => message.reply(1), { name: "InvalidArgumentError" });
      if (text === "rude") throw new CallError("be kind", { code: "RUDE" });
      if (text === "fails") throw new Error("secret");
      if (text === "loud") message.replace({ text: text.toUpperCase() });
      await null;
      return { text: "what a handler returns does not matter" };
    });
    server.onPublish("images", (message) => {
      seen.push([message.type, message.payload, message.json().tp]);
      message.replace(Buffer.from([3, 4]));
    });
    server.on("say", () => seen.push("say"));
  });
  assert.equal(await publish("said", { text: "hello", more: 1 }), "publish_response");
  const said = await reader.until("said");
  assert.deepEqual([said.p, said.tp], [{ text: "hello", more: 1 }, "rooms.tea"]);
  assert.equal(await publish("said", { text: "loud" }), "publish_response");
  assert.deepEqual((await reader.until("said")).p, { text: "LOUD" });
  assert.equal(await publish("said", { text: "rude" }), "RUDE");
  assert.equal(await publish("said", { text: 7 }), "INVALID_PAYLOAD");
  assert.equal(await publish("said", { text: "fails" }), "HANDLER_ERROR");
  assert.equal(await publish("said", {}, "halls.tea"), "publish_response");
  writer.say("say");
  assert.equal(await publish("image", "AQI=", "images", { binary: true }), "publish_response");
  assert.deepEqual(seen, [
    ...Array(5).fill("publication rooms.tea"),
    ...["message undefined", "say", "publication images"],
    ["image", Buffer.from([1, 2]), "images"],
  ]);
  assert.equal(await publish("said", { text: "last" }), "publish_response");
  assert.equal((await reader.until("said")).p.text, "last", "nobody got what was refused");
  const { handled, refused, errors } = server.handlerStatistics();
  assert.deepEqual({ handled, refused, errors }, { handled: 5, refused: 2, errors: 1 });
});

test("middleware that does not go on refuses a publication", async (test) => {
  const seen = [];
  const { server, publish } = await rooms(test, (server) => {
    server.use((message, next) => (message.payload === "secret" ? undefined : next()));
    server.onPublish("rooms.*", ({ payload }) => seen.push(payload));
  });
  assert.equal(await publish("said", "secret"), "TOPIC_FORBIDDEN");
  assert.equal(await publish("said", "open"), "publish_response");
  assert.deepEqual(seen, ["open"]);
  assert.equal(server.handlerStatistics().refused, 1);
});

test("the first pattern that fits decides, also one that is named while the server runs", async (test) => {
  const seen = [];
  const { server, publish } = await rooms(test, () => {});
  assert.equal(await publish("a", 1), "publish_response");
  server.onPublish("rooms.tea", () => seen.push("tea"));
  server.onPublish("rooms.>", () => seen.push("rooms"));
  assert.equal(await publish("a", 1), "publish_response");
  assert.equal(await publish("a", 1, "rooms.cake"), "publish_response");
  assert.deepEqual(seen, ["tea", "rooms"]);
  assert.throws(() => server.onPublish("rooms.tea", () => {}), {
    name: "InvalidArgumentError",
    message: /already/,
  });
  assert.throws(() => server.onPublish("a..b", () => {}), { name: "InvalidArgumentError" });
  assert.throws(() => server.onPublish("", () => {}), { name: "WrongTypeError" });
  assert.throws(() => server.onPublish("a"), { name: "WrongTypeError", message: /the handler/ });
  server.onPublish("a.*", () => seen.push("a"));
  assert.equal(await publish("a", 1, "a.b"), "publish_response");
  assert.equal(seen.at(-1), "a");
});
