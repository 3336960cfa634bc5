// Who may connect, as an application decides it by the request: at the port of an HTTP server, and at the own port.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import express from "express";
import session from "express-session";
import { CallError, jwt, Server } from "../index.mjs";
import { attached, Client, eventually, listening, refusal } from "./support.mjs";

const REQUEST =
  "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
  "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const SECRET = "0123456789abcdef0123456789abcdef";

/** A running server that decides about the clients of its own port. */
async function alone(test, rules, options = {}, pages = undefined) {
  const server = new Server({ noAuth: true, topicsOpen: true, shards: 2, port: 0, ...options });
  if (rules !== undefined) {
    const { authorize, ...others } = rules;
    server.authorize(authorize, others);
  }
  await server.start();
  test.after(() => server.stop());
  const { port } = server.address;
  return { server, port, pagePort: pages && (await listening(test, pages)) };
}

/** A test of both ways in which clients connect. */
function testBoth(name, run) {
  test(`${name}, at an HTTP server`, (test) => run(test, attached));
  test(`${name}, at the own port`, (test) => run(test, alone));
}

testBoth("authorize decides who a client is, what it may do, and for how long", async (test, serve) => {
  const expiresAt = new Date(Date.now() + 3_600_000);
  const rules = {
    authorize: async (request) => ({
      user: new URL(request.url, "http://a").searchParams.get("name"),
      access: { subscribe: { allow: ["team.>"] } },
      subscriptions: ["team.red"],
      expiresAt,
      attachment: { cookie: request.headers.cookie },
    }),
  };
  const { server, port } = await serve(test, rules, { topicsOpen: false });
  let connected;
  server.on("connect", ({ connection }) => {
    connected = [connection.user, connection.attachment];
  });
  const headers = { cookie: "a=1" };
  const client = await Client.connect(test, `ws://127.0.0.1:${port}/ws?name=ann`, { headers });
  await client.until("subscription_update");
  server.publish("team.red", { n: 1 }, { type: "item" });
  await client.until("item");
  assert.deepEqual(connected, ["ann", { cookie: "a=1" }]);
  const { failed_topics } = await client.subscribe("secret");
  assert.deepEqual(failed_topics, ["secret"]);
});

/** The cases that all languages share, with the names of JavaScript. */
function admissions() {
  const file = new URL("../../../protocol/vectors/admissions.json", import.meta.url);
  const { cases } = JSON.parse(readFileSync(file, "utf8"));
  for (const { answer } of cases) {
    if (answer?.expires_at === undefined) continue;
    answer.expiresAt = answer.expires_at;
    delete answer.expires_at;
  }
  return cases;
}

testBoth("what authorize returns decides", async (test, serve) => {
  const logged = [];
  let answer;
  const rules = { authorize: async () => answer };
  const options = { topicsOpen: false, log: (...line) => logged.push(line) };
  for (const { name, status, ...rest } of admissions()) {
    // A server of its own: each logs a few lines a second.
    const { server, port } = await serve(test, rules, options);
    const url = `ws://127.0.0.1:${port}/ws`;
    answer = rest.answer;
    if (status !== 101) {
      const refused = await refusal(url);
      assert.equal(refused.status, status, name);
      assert.ok(refused.body.includes(rest.words ?? ""), name);
      assert.equal(logged.splice(0).length, status === 503 ? 1 : 0, name);
      continue;
    }
    const client = await Client.connect(test, url);
    assert.equal((await client.until("server_ready")).p.details.user_id ?? null, rest.user, name);
    for (const topic of rest.subscribed ?? []) {
      assert.deepEqual((await client.until("subscription_update")).p.success_topics, [topic]);
    }
    for (const topic of rest.allowed ?? [])
      assert.deepEqual((await client.subscribe(topic)).failed_topics, []);
    for (const topic of rest.forbidden ?? [])
      assert.deepEqual((await client.subscribe(topic)).success_topics, []);
    if (rest.closed !== undefined) assert.equal((await client.closed).code, rest.closed, name);
    else server.disconnectUser(rest.user ?? "nobody");
  }
});

testBoth("a client is refused as authorize says", async (test, serve) => {
  const logged = [];
  const log = (_level, line, error) => logged.push(`${line}: ${error}`);
  let answer;
  const rules = { authorize: () => answer(), authorizeTimeoutMs: 200 };
  const { port } = await serve(test, rules, { log, logLevel: "error" });
  const url = `ws://127.0.0.1:${port}/ws`;
  for (const nothing of [undefined, "", 0]) {
    answer = () => nothing;
    assert.equal((await refusal(url)).status, 403);
  }
  answer = () => {
    throw new CallError("members only", { code: "MEMBERS" });
  };
  assert.match((await refusal(url)).body, /members only/);
  assert.deepEqual(logged, []);
  const failures = [
    [() => Promise.reject(new Error("no database")), /no database/],
    [() => new Promise(() => {}), /authorize has not answered in 200 ms/],
    [() => ({ user: 5 }), /user is a string, not 5/],
    [() => ({ name: "ann" }), /the answer of authorize has no option name/],
    [() => ({ user: "" }), /the answer of authorize cannot be used: the user is empty/],
    [() => ({ subscriptions: ["a b\n"] }), /the answer of authorize cannot be used: subscriptions/],
    [() => ({ expiresAt: new Date(Number.NaN) }), /expiresAt/],
  ];
  for (const [fails, words] of failures) {
    answer = fails;
    const { status, retryAfter } = await refusal(url);
    assert.equal(status, 503);
    assert.ok(Number(retryAfter) > 0);
    assert.match(logged.splice(0).join("\n"), words);
  }
  answer = () => ({ user: "ann" });
  await Client.connect(test, url);
});

testBoth("where authorize returns true, and without it, the token decides", async (test, serve) => {
  for (const rules of [{ authorize: () => true }, undefined]) {
    const { server, port } = await serve(test, rules, { noAuth: undefined, jwtSecret: SECRET });
    const url = `ws://127.0.0.1:${port}/ws`;
    assert.equal((await refusal(url)).status, 401);
    const token = jwt.encode({ sub: "ann", exp: Date.now() / 1000 + 60 }, SECRET);
    const headers = { authorization: `Bearer ${token}` };
    await Client.connect(test, url, { headers });
    assert.equal(server.listConnections({ user: "ann" }).length, 1);
  }
});

testBoth("a login of Express with its session is enough", async (test, serve) => {
  const app = express();
  const middleware = session({ secret: "a secret", resave: false, saveUninitialized: false });
  app.use(middleware);
  app.post("/login", (request, answer) => {
    request.session.user = "ann";
    answer.end("welcome");
  });
  const authorize = ({ session }) => session.user && { user: session.user, attachment: session.id };
  const rules = { use: [middleware], authorize };
  const { server, port, pagePort = port } = await serve(test, rules, {}, http.createServer(app));
  server.on("connect", ({ connection }) => connection.send([connection.user, typeof connection.attachment]));
  const url = `ws://127.0.0.1:${port}/ws`;
  assert.equal((await refusal(url)).status, 403);
  const login = await fetch(`http://127.0.0.1:${pagePort}/login`, { method: "POST" });
  const [cookie] = login.headers.getSetCookie()[0].split(";");
  const client = await Client.connect(test, url, { headers: { cookie } });
  assert.deepEqual((await client.until("message")).p, ["ann", "string"]);
});

testBoth(
  "a middleware that answers the request refuses the client, and one that fails sends it away",
  async (test, serve) => {
    const answers = (_, response) => {
      response.statusCode = 418;
      response.end("no");
    };
    const authorize = () => true;
    const first = await serve(test, { use: [answers], authorize });
    const { status, body } = await refusal(`ws://127.0.0.1:${first.port}/ws`);
    assert.equal(status, 403);
    assert.match(body, /status 418/);
    const fails = (_request, _response, next) => next(new Error("broken"));
    const second = await serve(test, { use: [fails], authorize }, { log: () => {} });
    assert.equal((await refusal(`ws://127.0.0.1:${second.port}/ws`)).status, 503);
  },
);

test("at the own port a request looks like one of Node's", async (test) => {
  const requests = [];
  const authorize = (request) => {
    requests.push(request);
    return { user: "ann" };
  };
  const headers = { cookie: "a=1; b=\u00e9", "X-Twice": ["1", "2"], host: "example.com:81" };
  const shown = [];
  for (const serve of [alone, attached]) {
    const { port } = await serve(test, { authorize });
    const client = await Client.connect(test, `ws://127.0.0.1:${port}/ws?room=a%20b`, { headers });
    const request = requests.pop();
    assert.ok(request instanceof http.IncomingMessage);
    assert.deepEqual(
      [request.socket.remoteAddress, request.socket.remotePort, request.socket.remoteFamily],
      ["127.0.0.1", client.socket._socket.localPort, "IPv4"],
    );
    assert.equal(Boolean(request.socket.encrypted), false);
    const { method, url, httpVersion, httpVersionMajor } = request;
    const { "sec-websocket-key": _, ...others } = request.headers;
    shown.push({ method, url, httpVersion, httpVersionMajor, others, host: request.headersDistinct.host });
    // It has no body to wait for.
    for await (const _piece of request) assert.fail("it has no body");
  }
  assert.deepEqual(shown[0], shown[1]);
  assert.equal(shown[0].others.cookie, "a=1; b=\u00e9");
  assert.equal(shown[0].others["x-twice"], "1, 2");
});

test("an HTTP server without rules of its own has those of the server", async (test) => {
  const httpServers = [http.createServer(), http.createServer()];
  const server = new Server({ noAuth: true, shards: 1, port: 0 });
  server.authorize(({ url }) => url.includes("?") && { user: "by the server" });
  server.attach(httpServers[0]);
  server.attach(httpServers[1], { authorize: () => ({ user: "by its own" }) });
  await server.start();
  test.after(() => server.stop());
  const ports = [server.address.port];
  for (const httpServer of httpServers) ports.push(await listening(test, httpServer));
  const users = [];
  for (const port of ports) {
    const client = await Client.connect(test, `ws://127.0.0.1:${port}/ws?x`);
    users.push((await client.until("server_ready")).p.details.user_id);
  }
  assert.deepEqual(users, ["by the server", "by the server", "by its own"]);
  for (const port of ports.slice(0, 2))
    assert.equal((await refusal(`ws://127.0.0.1:${port}/ws`)).status, 403);
});

const collect = () => {
  setFlagsFromString("--expose-gc");
  runInNewContext("gc")();
};

test("a server that decided is forgotten as any other", async () => {
  const forgotten = [];
  for (const isStarted of [true, false]) {
    await (async () => {
      const server = new Server({ noAuth: true, port: 0, shards: 1 });
      server.authorize(() => true);
      if (isStarted) {
        await server.start();
        await server.stop();
      }
      forgotten.push(new WeakRef(server));
    })();
  }
  await eventually(async () => {
    await new Promise((resolve) => setTimeout(resolve, 10));
    collect();
    return forgotten.every((server) => server.deref() === undefined);
  });
});

test("a client that leaves before the decision leaves nothing behind", async (test) => {
  const waiting = [];
  const authorize = () => new Promise((resolve) => waiting.push(resolve));
  const { server, port } = await alone(test, { authorize });
  const gone = net.connect(port, "127.0.0.1");
  gone.write(REQUEST);
  await eventually(() => waiting.length === 1);
  gone.destroy();
  const client = Client.connect(test, `ws://127.0.0.1:${port}/ws`);
  await eventually(() => waiting.length === 2);
  const attachments = waiting.map((resolve) => {
    const attachment = {};
    resolve({ user: "ann", attachment });
    return new WeakRef(attachment);
  });
  waiting.length = 0;
  await client;
  await eventually(() => server.connections === 1 && server.statistics().handshakesInProgress === 0);
  // The next client has what is attached to those that have gone dropped.
  await eventually(async () => {
    const next = Client.connect(test, `ws://127.0.0.1:${port}/ws`);
    await eventually(() => waiting.length === 1);
    waiting.pop()({ user: "bob" });
    await next;
    collect();
    return attachments[0].deref() === undefined;
  });
  assert.notEqual(attachments[1].deref(), undefined);
});

test("authorize is registered once, before the start", async (test) => {
  const server = new Server({ noAuth: true, port: 0, shards: 1 });
  assert.throws(() => server.authorize(), { name: "WrongTypeError", message: /authorize is a function/ });
  assert.throws(() => server.authorize(() => true, { uses: [] }), { message: /did you mean use/ });
  assert.throws(() => server.authorize(() => true, 5), { name: "WrongTypeError" });
  assert.equal(
    server.authorize(() => true),
    server,
  );
  assert.throws(() => server.authorize(() => true), { message: /has an authorize already/ });
  await server.start();
  test.after(() => server.stop());
  assert.throws(() => server.authorize(() => true), { message: /comes before start/ });
});
