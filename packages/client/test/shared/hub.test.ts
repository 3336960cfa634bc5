/** What the leading tab does with messages, against a server that the test plays. */

import { afterEach, expect, test } from "vitest";
import { layered } from "../../src/core/layered.js";
import type { KeyExchange } from "../../src/core/layers.js";
import { type ClientOptions, handle, type Message, type TidewireError } from "../../src/index.js";
import { type FakeConnection, FakeTransport } from "../../src/testing.js";
import { until, World } from "./world.js";

interface Sent {
  t: string;
  cid?: string;
  p: Record<string, unknown> & { topics?: string[]; producer?: { id: string } };
}

let world = new World();

afterEach(async () => {
  await Promise.all([...world.tabs].flatMap(({ clients }) => clients).map((one) => one.close()));
  world = new World();
});

const URL = "ws://test.example/ws";
const EPOCH = "0badcafe";

/** A server with positions that stand still, unless `answer` answers in another way. */
function server(
  features: object = {},
  answer?: (message: Sent, connection: FakeConnection) => boolean,
): FakeTransport {
  const transport = new FakeTransport();
  transport.onConnect = (connection) => {
    connection.onMessage = ((message: Sent) => {
      if (answer?.(message, connection)) return;
      const { t, cid, p } = message;
      if (t !== "subscription_update") return;
      const position = { epoch: EPOCH, offset: 10, recovered: false, count: 0 };
      const topics = p.topics!.filter((name) => name.startsWith("kept"));
      const recovery = Object.fromEntries(topics.map((name) => [name, position]));
      connection.send({
        c: "WSE",
        t,
        cid,
        p: { action: p.action, success_topics: p.topics, failed_topics: [], recovery },
      });
    }) as never;
    connection.accept({ features, limits: { max_message_size: 1_000 } });
  };
  return transport;
}

/** Clients of N tabs, which are connected. */
async function connected(transport: FakeTransport, count: number, options: ClientOptions = {}) {
  const clients = [];
  for (let index = 0; index < count; index++) {
    clients.push(
      await world
        .tab()
        .connect(URL, { transport, ...options })
        .connected(),
    );
  }
  return clients;
}

const sent = ({ connections }: FakeTransport, t: string) =>
  connections.flatMap((one) => one.sent as Sent[]).filter((message) => message.t === t);

const publication = (topic: string, offset: number, more: object = {}) => ({
  c: "U",
  t: "tick",
  tp: topic,
  e: EPOCH,
  o: offset,
  ...more,
  p: offset,
});

function record(
  client: { subscribe: (topic: string) => { on: (name: "message", to: (m: Message) => void) => void } },
  topic: string,
) {
  const got: unknown[] = [];
  client.subscribe(topic).on("message", ({ payload }) => got.push(payload));
  return got;
}

test("each topic is subscribed once, and given up when the last tab has left it", async () => {
  const transport = server();
  const [a, b] = await connected(transport, 2);
  expect(transport.connections).toHaveLength(1);
  const one = await a!.subscribe(["x", "y"]).ready();
  const two = await b!.subscribe(["y", "z"]).ready();
  const topics = sent(transport, "subscription_update").map(({ p }) => [p.action, p.topics]);
  expect(topics).toEqual([
    ["subscribe", ["x", "y"]],
    ["subscribe", ["z"]],
  ]);
  await one.unsubscribe();
  await until(() => sent(transport, "subscription_update").length === 3, "x is given up");
  await two.unsubscribe();
  await until(() => sent(transport, "subscription_update").length === 4, "the others are given up");
  const last = sent(transport, "subscription_update").slice(2);
  expect(last.map(({ p }) => [p.action, p.topics])).toEqual([
    ["unsubscribe", ["x"]],
    ["unsubscribe", ["y", "z"]],
  ]);
});

test("publications go to the tabs that subscribed, also out of batches and by patterns", async () => {
  const transport = server();
  const [a, b] = await connected(transport, 2);
  const got = [record(a!, "x"), record(a!, "all.*"), record(b!, "x"), record(b!, "kept")];
  await Promise.all([a!.subscribe("x").ready(), b!.subscribe("kept").ready()]);
  const [connection] = transport.connections;
  connection!.send(publication("x", 1));
  const messages = [publication("x", 2), publication("all.y", 3), publication("kept", 11)];
  connection!.send({ c: "WSE", t: "batch", p: { messages } });
  connection!.send({ c: "WSE", t: "batch", p: { messages: [publication("x", 3), publication("x", 4)] } });
  await until(() => got[0]!.length === 4 && got[2]!.length === 4 && got[3]!.length === 1, "all have come");
  expect(got).toEqual([[1, 2, 3, 4], [3], [1, 2, 3, 4], [11]]);
});

test("a tab that comes later gets what it missed from what the leading tab has kept", async () => {
  const transport = server();
  const [a] = await connected(transport, 1);
  const got = record(a!, "kept");
  await a!.subscribe("kept").ready();
  for (let offset = 11; offset <= 15; offset++) transport.connections[0]!.send(publication("kept", offset));
  await until(() => got.length === 5, "the first has all");
  const b = world.tab().connect(URL, { transport });
  const late: unknown[] = [];
  b.subscribe("kept", { from: { kept: { epoch: EPOCH, offset: 12 } } }).on("message", (one) =>
    late.push(one.payload),
  );
  await until(() => late.length === 3, "the second has what it missed");
  transport.connections[0]!.send(publication("kept", 16));
  await until(() => late.length === 4, "the second goes on");
  expect(late).toEqual([13, 14, 15, 16]);
  expect(sent(transport, "subscription_update")).toHaveLength(1);
});

test("what the leading tab has not kept comes from the history, with gaps told, before live ones", async () => {
  const pages = [
    [3, 4, 6],
    [7, 8, 9, 10],
  ];
  const transport = server({ history: true }, ({ t, cid, p }, connection) => {
    if (t !== "history_request") return false;
    const page = pages[(p.since as { offset: number }).offset === 2 ? 0 : 1]!;
    // A live one overtakes the answer.
    connection.send(publication("kept", 11 + (page[0] === 3 ? 0 : 1)));
    const publications = page.map((offset) => publication("kept", offset));
    const answer = {
      topic: "kept",
      epoch: EPOCH,
      offset: 10,
      publications,
      more: page[0] === 3,
      complete: true,
    };
    connection.send({ c: "WSE", t: "history_response", cid, p: answer });
    return true;
  });
  const [a] = await connected(transport, 1);
  await a!.subscribe("kept").ready();
  const b = world.tab().connect(URL, { transport });
  const late: unknown[] = [];
  const gaps: unknown[] = [];
  const subscription = b.subscribe("kept", { from: { kept: { epoch: EPOCH, offset: 2 } } });
  subscription.on("message", ({ payload }) => late.push(payload));
  subscription.on("gap", ({ range }) => gaps.push(range));
  subscription.on("unrecovered", () => gaps.push("unrecovered"));
  await until(() => late.length === 9, "all have come");
  expect(late).toEqual([3, 4, 6, 7, 8, 9, 10, 11, 12]);
  expect(gaps).toEqual([{ epoch: EPOCH, from: 5, to: 5 }]);
});

test("a replay that the history does not give is told to its tab as a gap", async () => {
  const transport = server({ history: true }, ({ t, cid }, connection) => {
    if (t !== "history_request") return false;
    const p = { code: "SERVER_ERROR", message: "the history is away", recoverable: true };
    connection.send({ c: "WSE", t: "error", cid, p });
    return true;
  });
  const [a, b] = await connected(transport, 2);
  await a!.subscribe("kept").ready();
  const told: unknown[] = [];
  const subscription = b!.subscribe("kept", { replay: 5 });
  subscription.on("gap", ({ topic, count, range }) => told.push([topic, count, range]));
  subscription.on("message", ({ payload }) => told.push(payload));
  await subscription.ready();
  transport.connections[0]!.send(publication("kept", 11));
  await until(() => told.length === 2, "the gap and the live one");
  expect(told).toEqual([["kept", 0, undefined], 11]);
});

test("what nobody but the server knows makes a tab connect by itself", async () => {
  const transport = server();
  const [a] = await connected(transport, 1);
  await a!.subscribe("kept").ready();
  const reasons: string[] = [];
  const on = { degraded: ({ reason }: { reason: string }) => reasons.push(reason) };
  const from = { kept: { epoch: EPOCH, offset: 2 } };
  await world.tab().connect(URL, { transport, on }).subscribe("kept", { from }).ready();
  expect(transport.connections).toHaveLength(2);
  await world
    .tab()
    .connect(URL, { transport, on })
    .subscribe("kept", { filter: { a: 1 } })
    .ready();
  await world.tab().connect(URL, { transport, on }).subscribe("kept", { queueGroup: "g" }).ready();
  expect(transport.connections).toHaveLength(4);
  expect(reasons.map((reason) => /server|filter|queue group/.exec(reason)?.[0])).toEqual([
    "server",
    "filter",
    "queue group",
  ]);
  expect(a!.state).toBe("open");
});

test("a topic that gives its last value gives it to each tab", async () => {
  const transport = server({}, ({ t, cid, p }, connection) => {
    if (t !== "subscription_update") return false;
    const recovery = { kept: { epoch: EPOCH, offset: 10, recovered: false, count: 1 } };
    connection.send({
      c: "WSE",
      t,
      cid,
      p: { action: p.action, success_topics: p.topics, failed_topics: [], recovery },
    });
    connection.send(publication("kept", 10));
    return true;
  });
  const [a, b] = await connected(transport, 2);
  const first = record(a!, "kept");
  await until(() => first.length === 1, "the first has it");
  const second = record(b!, "kept");
  await until(() => second.length === 1, "the second has it");
  expect([first, second]).toEqual([[10], [10]]);
});

test("answers, errors and refusals go to the tab that asked", async () => {
  const transport = server({}, ({ t, cid, p }, connection) => {
    if (t === "call_request") {
      connection.send({ c: "WSE", t: "call_response", cid, p: { payload: p.payload } });
    } else if (t === "publish_request") {
      connection.send({
        c: "WSE",
        t: "error",
        cid,
        p: { code: "TOPIC_FORBIDDEN", message: "no", recoverable: true },
      });
    } else return false;
    return true;
  });
  const clients = await connected(transport, 3);
  const errors: unknown[] = [];
  for (const client of clients) client.on("error", (error) => errors.push(error));
  expect(await Promise.all(clients.map((one, index) => one.request("echo", index)))).toEqual([0, 1, 2]);
  const refused = await Promise.allSettled(clients.map((one) => one.publish("x", 1)));
  const codes = refused.map((one) => one.status === "rejected" && (one.reason as TidewireError).code);
  expect(codes).toEqual(["TOPIC_FORBIDDEN", "TOPIC_FORBIDDEN", "TOPIC_FORBIDDEN"]);
  expect(errors).toEqual([]);
  const cids = sent(transport, "call_request").map(({ cid }) => cid);
  expect(new Set(cids).size).toBe(3);
  await expect(clients[1]!.request("large", "x".repeat(2_000))).rejects.toMatchObject({
    code: "MESSAGE_TOO_LARGE",
  });
});

test("a call of the server goes to a tab that answers it", async () => {
  const transport = server();
  const [, b, c] = await connected(transport, 3);
  handle(b!, "who", () => "b");
  const [connection] = transport.connections;
  const call = (cid: string, type: string) =>
    connection!.send({ c: "WSE", t: "call_request", cid, p: { type, payload: null } });
  call("1", "who");
  call("2", "nobody");
  await until(() => sent(transport, "call_response").length === 2, "both are answered");
  const answers = Object.fromEntries(sent(transport, "call_response").map(({ cid, p }) => [cid, p]));
  expect(answers["1"]).toMatchObject({ payload: "b" });
  expect(answers["2"]).toMatchObject({ error: { code: "NOT_FOUND" } });
  handle(c!, "slow", () => new Promise(() => {}));
  call("3", "slow");
  await until(() => true, "");
  await new Promise((resolve) => setTimeout(resolve, 20));
  await c!.close();
  await until(
    () => sent(transport, "call_response").length === 3,
    "the call of a tab that is gone is answered",
  );
  expect(sent(transport, "call_response")[2]!.p).toMatchObject({ error: { code: "HANDLER_ERROR" } });
});

test("a publication that leaves out its own client still goes to the other tabs", async () => {
  const transport = server({}, ({ t, cid, p }, connection) => {
    if (t !== "publish_request") return false;
    expect(p.exclude_self).toBeUndefined();
    connection.send(publication("kept", 11, { id: p.id }));
    connection.send({ c: "WSE", t: "publish_response", cid, p: { topic: "kept", epoch: EPOCH, offset: 11 } });
    connection.send(publication("kept", 12));
    return true;
  });
  const [a, b] = await connected(transport, 2);
  const got = [record(a!, "kept"), record(b!, "kept")];
  await Promise.all([a!.subscribe("kept").ready(), b!.subscribe("kept").ready()]);
  await a!.publish("kept", 11, { excludeSelf: true });
  await until(() => got[0]!.length === 1 && got[1]!.length === 2, "both have theirs");
  expect(got).toEqual([[12], [11, 12]]);
});

test("close codes and errors of the server reach every tab", async () => {
  const transport = server();
  const clients = await connected(transport, 2);
  const ends: unknown[] = [];
  for (const client of clients) {
    client.on("disconnected", ({ code }) => ends.push(code));
    client.on("error", ({ code }) => ends.push(code));
    client.on("rateLimitWarning", ({ remaining }) => ends.push(remaining));
  }
  const [connection] = transport.connections;
  connection!.send({ c: "WSE", t: "rate_limit_warning", p: { limit: 100, remaining: 7, retry_after: 1 } });
  connection!.send({ c: "WSE", t: "error", p: { code: "SERVER_ERROR", message: "", recoverable: true } });
  connection!.close(4200, "over");
  await until(() => ends.length === 6, "both know");
  expect(ends.toSorted()).toEqual(["SERVER_ERROR", "SERVER_ERROR", 4200, 4200, 7, 7].toSorted());
  await until(() => clients.every(({ state }) => state === "closed"), "4200 ends the session");
});

test("one tab refreshes the token for all", async () => {
  const transport = server();
  const token = () => "fresh";
  const clients = await connected(transport, 3, { token });
  transport.connections[0]!.send({
    c: "WSE",
    t: "auth_expiry_warning",
    p: { expires_in_ms: 50_000, ends_in_ms: 60_000 },
  });
  await until(() => sent(transport, "auth_refresh").length > 0, "the token is refreshed");
  await Promise.all(clients.map((one) => one.ping().catch(() => 0)).slice(0, 0));
  expect(sent(transport, "auth_refresh").map(({ p }) => p.token)).toEqual(["fresh"]);
});

test("users, addresses and keys of their own have connections of their own", async () => {
  const transport = server();
  const jwt = (sub: string) =>
    `eyJhbGciOiJIUzI1NiJ9.${btoa(JSON.stringify({ sub })).replaceAll("=", "")}.c2ln`;
  const connects = [
    { token: jwt("ann") },
    { token: jwt("bob") },
    { token: `${jwt("ann")}2` },
    { key: "k", token: jwt("ann") },
  ];
  for (const options of connects)
    await world
      .tab()
      .connect(URL, { transport, ...options })
      .connected();
  expect(transport.connections).toHaveLength(3);
  await world
    .tab()
    .connect(`${URL}2`, { transport, token: jwt("ann") })
    .connected();
  expect(transport.connections).toHaveLength(4);
});

test("a refused token is told to every tab, and the next attempt has a new one", async () => {
  const transport = server();
  const accept = transport.onConnect;
  transport.onConnect = (connection) => {
    if (transport.connections.length > 1) return accept(connection);
    // The upgrade is accepted, and the refusal is the first message.
    const p = { code: "AUTH_FAILED", message: "expired", recoverable: false };
    connection.send({ c: "WSE", t: "error", p });
    connection.close(4401, "expired");
  };
  let tokens = 0;
  const token = () => `token-${++tokens}`;
  const clients = [world.tab(), world.tab()].map((tab) => tab.connect(URL, { transport, token }));
  const ends: unknown[] = [];
  for (const client of clients) client.on("disconnected", ({ code }) => ends.push(code));
  await Promise.all(clients.map((one) => one.connected()));
  expect(new Set(ends)).toEqual(new Set([4401]));
  expect(transport.connections).toHaveLength(2);
  const [first, second] = transport.connections.map(({ options }) => options.headers.Authorization);
  expect(first).not.toBe(second);
});

test("a connection that is over is not refused by what a layer still works on", async () => {
  const fails: (() => void)[] = [];
  const begin = async (): Promise<KeyExchange> => ({
    hello: { encryption_public_key: "", encryption_version: 2 },
    version: 2,
    isSealed: false,
    wantsKeyUpdate: false,
    accept: async () => {},
    seal: async (bytes) => bytes,
    open: () => new Promise((_, reject) => fails.push(() => reject(new Error("it cannot be opened")))),
    updateOpeningKey: async () => {},
    updateSealingKey: async () => {},
  });
  const transport = server();
  const [client] = await connected(transport, 1, { encryption: { pipeline: layered, begin } });
  const [connection] = transport.connections;
  connection!.send(new TextEncoder().encode('E:{"t":"late"}'));
  await until(() => fails.length === 1, "the layer works");
  await client!.close();
  await until(() => connection!.closed !== undefined, "the close");
  const { closed } = connection!;
  for (const fail of fails) fail();
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(connection!.closed).toBe(closed);
});
