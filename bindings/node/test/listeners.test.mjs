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
