// Publishing and queries on servers that share their topics over a real Redis: nothing holds up the event loop.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { TidewireError, WrongTypeError } from "../index.mjs";
import { Client, eventually, serve, soon } from "./support.mjs";

const HISTORY = { "news.>": 1000 };

/** A `redis-server` of Debian's package redis-server, on a Unix socket of its own, ended with the test. */
async function startRedis(t) {
  const folder = mkdtempSync(join(tmpdir(), "tidewire-redis-"));
  const path = join(folder, "socket");
  const options = ["--port", "0", "--save", "", "--unixsocket", path, "--dir", folder];
  const child = spawn("redis-server", options, { stdio: "ignore" });
  t.after(() => {
    child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  const answers = () =>
    new Promise((resolve) => {
      const socket = connect(path, () => resolve(true));
      socket.on("error", () => resolve(false)).on("connect", () => socket.destroy());
    });
  await eventually(answers);
  return {
    url: `unix://${path}`,
    pause: () => child.kill("SIGSTOP"),
    resume: () => child.kill("SIGCONT"),
    kill: () => child.kill("SIGKILL"),
  };
}

const isConnected = (server) =>
  server.promises.publish("news.probe", 0).then(
    () => true,
    () => false,
  );

async function clusterOf(t, redis, options = {}) {
  const server = await serve(t, { broker: redis.url, brokerWaitMs: 20_000, history: HISTORY, ...options });
  await eventually(() => isConnected(server));
  return server;
}

test("the event loop runs while the broker does not answer", async (t) => {
  const redis = await startRedis(t);
  const one = await clusterOf(t, redis);
  const other = await clusterOf(t, redis);
  redis.pause();
  const settled = [];
  const calls = {
    publish: one.promises.publish("news.a", { n: 1 }, { type: "article", id: "x" }),
    publishMany: one.publishMany("news.b", [1, 2, 3]),
    history: other.promises.history("news.c"),
    subscribeUser: one.promises.subscribeUser("ann", "news.a"),
  };
  for (const [name, call] of Object.entries(calls)) call.finally(() => settled.push(name));
  for (let turns = 0; turns < 200; turns += 1) await turn();
  assert.deepEqual(settled, []);
  redis.resume();
  const first = await soon(calls.publish);
  assert.deepEqual([first.offset, first.duplicate], [1, false]);
  assert.equal(await soon(calls.publishMany), 3);
  assert.deepEqual((await soon(calls.history)).publications, []);
  assert.equal(await soon(calls.subscribeUser), undefined);
  const again = await other.promises.publish("news.a", { n: 1 }, { id: "x" });
  assert.deepEqual(again, { offset: 1, epoch: first.epoch, duplicate: true });
  const page = await other.promises.history("news.b", { newestFirst: true, limit: 2 });
  assert.deepEqual(
    page.publications.map(({ payload, position }) => [payload, position.offset]),
    [
      [3, 3],
      [2, 2],
    ],
  );
  assert.equal(await other.promises.forgetHistory("news.b"), true);
  assert.deepEqual((await one.promises.history("news.b")).publications, []);
});

test("publications at once reach the subscribers of the other server", async (t) => {
  const redis = await startRedis(t);
  const one = await clusterOf(t, redis);
  const other = await clusterOf(t, redis);
  const client = await Client.connect(t, other.url);
  await client.subscribe("news.a", "news.b");
  const numbers = Array.from({ length: 100 }, (_, number) => number);
  const places = await Promise.all(
    numbers.map((number) => one.promises.publish("news.a", number, { type: "n" })),
  );
  assert.deepEqual(
    places.map(({ offset }) => offset).sort((a, b) => a - b),
    numbers.map((number) => number + 1),
  );
  const seen = [];
  for (const _ of numbers) seen.push((await client.until("n")).p);
  assert.deepEqual(
    seen.sort((a, b) => a - b),
    numbers,
  );
  assert.equal(await one.publishMany("news.b", numbers, { type: "m" }), 100);
  for (const number of numbers) assert.equal((await client.until("m")).p, number);
});

test("a connection of the other server is ended", async (t) => {
  const redis = await startRedis(t);
  const one = await clusterOf(t, redis);
  const other = await clusterOf(t, redis);
  const client = await Client.connect(t, other.url);
  const [{ connection }] = await other.promises.listConnections();
  assert.match(connection, /^n[0-9a-f]{12}-[0-9]+-[0-9]+$/);
  await one.promises.disconnect(connection, 4000, "elsewhere");
  assert.equal((await soon(client.closed)).code, 4000);
});

test("a broker that is gone rejects the promise", async (t) => {
  const redis = await startRedis(t);
  const server = await clusterOf(t, redis, { brokerWaitMs: 100 });
  redis.kill();
  await assert.rejects(soon(server.promises.publish("news.a", 1)), (error) => {
    assert.ok(error instanceof TidewireError);
    return ["BROKER_UNAVAILABLE", "PUBLISH_UNKNOWN"].includes(error.code);
  });
});

test("a call that blocks on a server with a broker is warned of, once", async (t) => {
  const redis = await startRedis(t);
  const lines = [];
  const server = await clusterOf(t, redis, { log: (level, words) => lines.push([level, words]) });
  server.publish("news.a", 1);
  server.history("news.a");
  assert.equal(lines.length, 1);
  assert.equal(lines[0][0], "warn");
  assert.match(lines[0][1], /server\.publish\(\) waits .* await server\.promises\.publish\(\)/);
});

test("the promises work without a broker", async (t) => {
  const lines = [];
  const server = await serve(t, { history: HISTORY, log: (...line) => lines.push(line) });
  const { promises } = server;
  assert.equal((await promises.publish("news.a", 1, { id: "x" })).offset, 1);
  assert.equal(await promises.publishMany("news.a", [2, 3]), 2);
  assert.equal((await promises.history("news.a")).publications.length, 3);
  assert.equal((await promises.presence("news.a")).users, 0);
  assert.deepEqual(await promises.listTopics(), []);
  assert.deepEqual(await promises.listConnections(), []);
  await promises.disconnectUser("nobody");
  await assert.rejects(promises.disconnect("nobody"), /two numbers/);
  await promises.unsubscribeUser("nobody", "news.a");
  assert.equal(await server.whenFree(() => promises.forgetHistory("news.a")), true);
  await assert.rejects(promises.publish("news.*", 1), TidewireError);
  await assert.rejects(promises.publish(1, 1), WrongTypeError);
  await assert.rejects(promises.publishMany("news.a", "text"), WrongTypeError);
  server.publish("news.a", 1);
  assert.deepEqual(lines, []);
});
