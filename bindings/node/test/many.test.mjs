// Messages to many connections, and those that they pass by.

import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { Client, eventually, serve } from "./support.mjs";

test("messages to many pass connections by", async (t) => {
  const connections = [];
  const server = await serve(t, {}, (server) => {
    server.on("connect", ({ connection }) => connections.push(connection));
  });
  const clients = [];
  for (let number = 0; number < 3; number++) {
    clients.push(await Client.connect(t, server.url));
    await clients.at(-1).subscribe("a");
    await eventually(() => connections.length > number);
  }
  const [first, second] = connections;
  const typesUntil = async (client, last) => {
    const types = [];
    while (types.at(-1) !== last) types.push(JSON.parse(await client.next()).t);
    return types;
  };
  server.publish("a", 1, { type: "one", exclude: [first, second] });
  server.publish("a", 1, { type: "end" });
  const ofTopic = [];
  for (const client of clients) ofTopic.push(await typesUntil(client, "end"));
  assert.deepEqual(ofTopic, [["end"], ["end"], ["one", "end"]]);
  server.broadcast(2, { type: "two", exclude: new Set([second]) });
  server.broadcast(3, { type: "three", exclude: first });
  server.broadcast(4, { type: "four", exclude: connections });
  server.broadcast(5, { type: "end", exclude: undefined });
  const seen = [];
  for (const client of clients) seen.push(await typesUntil(client, "end"));
  assert.deepEqual(seen, [
    ["two", "end"],
    ["three", "end"],
    ["two", "three", "end"],
  ]);
  for (const exclude of [7, "all", ["all"], {}]) {
    assert.throws(() => server.broadcast(1, { exclude }), { name: "WrongTypeError", message: /exclude/ });
    assert.throws(() => server.publish("a", 1, { exclude }), { name: "WrongTypeError", message: /exclude/ });
  }
});

test("a client that lags does not get what is volatile", async (t) => {
  const connections = [];
  const server = await serve(t, { outboxBytesMax: 256 * 1024 * 1024 }, (server) => {
    server.on("connect", ({ connection }) => connections.push(connection));
  });
  const quick = await Client.connect(t, server.url);
  const slow = await Client.connect(t, server.url);
  await slow.subscribe("filling");
  for (const client of [quick, slow]) await client.subscribe("a");
  await eventually(() => connections.length === 2);
  server.publish("a", 0, { type: "here", volatile: true });
  for (const client of [quick, slow]) await client.until("here");
  slow.socket.pause();
  const skipped = () => server.statistics().deliveriesSkipped;
  // More than sockets hold, also compressed.
  for (let number = 0; number < 300; number++) {
    const filling = randomBytes(45_000).toString("base64");
    await server.whenFree(() => server.publish("filling", filling));
  }
  do {
    server.publish("a", 1, { type: "here", volatile: true });
    // The turn that serves one serves the other.
    await quick.until("here");
  } while (skipped() === 0);
  const before = skipped();
  server.broadcast(2, { volatile: true, type: "there" });
  connections[1].send(3, { volatile: true });
  await eventually(() => skipped() === before + 2);
  await quick.until("there");
  for (const volatile of [1, "yes"])
    assert.throws(() => server.broadcast(1, { volatile }), { name: "WrongTypeError", message: /volatile/ });
  assert.throws(() => connections[0].send(1, { volatil: true }), { message: /did you mean volatile/ });
});
