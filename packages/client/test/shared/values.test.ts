/** What payloads, sizes and the server's subscriptions become on a shared connection: the same as on one of a tab's own. */

import { afterEach, describe, expect, test } from "vitest";
import { type Client, type ClientOptions, handle } from "../../src/index.js";
import { msgpack } from "../../src/msgpack.js";
import { sign } from "../../src/sign.js";
import { type FakeConnection, FakeTransport } from "../../src/testing.js";
import { until, World } from "./world.js";

interface Sent {
  t: string;
  cid?: string;
  b?: boolean;
  p: Record<string, unknown> & { topics?: string[] };
}

const URL = "ws://test.example/ws";
const EPOCH = "0badcafe";
const MAX = 2_000;
const BYTES = Uint8Array.of(0, 1, 255);

let world = new World();

afterEach(async () => {
  await Promise.all([...world.tabs].flatMap(({ clients }) => clients).map((one) => one.close()));
  world = new World();
});

const read = (raw: unknown) => (raw instanceof Uint8Array ? msgpack().read(raw.subarray(2)) : raw) as Sent;

/** Two tabs on one connection to a server that answers, in the format of the client. */
async function start(options: ClientOptions = {}) {
  const transport = new FakeTransport();
  const format = msgpack();
  const send = (connection: FakeConnection, { p, ...fields }: Record<string, unknown>) =>
    connection.send(options.format ? format.envelope(fields as never, format.payload(p)) : { ...fields, p });
  const sizes: number[] = [];
  transport.onConnect = (connection) => {
    const receive = connection.receive.bind(connection);
    connection.receive = (frame) => {
      const data = typeof frame === "string" || frame instanceof Uint8Array ? frame : frame.data;
      sizes.push(Buffer.byteLength(data));
      if (sizes.at(-1)! > MAX) return connection.close(1009);
      receive(data);
    };
    const answer = (raw: unknown) => {
      const { t, cid, p } = read(raw);
      if (t === "client_hello") {
        const features = { binary: true, recovery: true, server_subscriptions: true };
        const limits = { max_message_size: MAX };
        send(connection, { c: "WSE", t: "server_hello", p: { features, limits } });
      } else if (t === "publish_request")
        send(connection, { c: "WSE", t: "publish_response", cid, p: { topic: p.topic, duplicate: false } });
      else if (t === "call_request")
        send(connection, {
          c: "WSE",
          t: "call_response",
          cid,
          p: { payload: p.payload, binary: p.binary ?? false },
        });
      else if (t === "subscription_update") {
        const place = { epoch: EPOCH, offset: 5, recovered: true, count: 0 };
        const recovery = Object.fromEntries(p.topics!.map((topic) => [topic, place]));
        send(connection, {
          c: "WSE",
          t,
          cid,
          p: { action: p.action, success_topics: p.topics, failed_topics: [], recovery },
        });
      }
    };
    connection.onMessage = answer as never;
    connection.accept();
    connection.onMessage = answer as never;
  };
  const clients: Client[] = [];
  for (let index = 0; index < 2; index++)
    clients.push(
      await world
        .tab()
        .connect(URL, { transport, reconnect: { baseMs: 1 }, ...options })
        .connected(),
    );
  await Promise.all(clients.map((client) => client.ready()));
  expect(transport.connections).toHaveLength(1);
  const sent = () => transport.connections.flatMap((one) => one.sent.map(read));
  const say = (message: object) => send(transport.connections.at(-1)!, message as never);
  return { leader: clients[0]!, other: clients[1]!, transport, sent, say, sizes };
}

const FORMATS: [string, ClientOptions][] = [
  ["JSON", {}],
  ["MessagePack", { format: msgpack() }],
];

describe.each(FORMATS)("%s", (_, options) => {
  test("bytes travel both ways, and null is null", async () => {
    const { leader, other, sent, say } = await start(options);
    for (const client of [leader, other]) {
      client.send("plain", BYTES);
      client.send("null", null);
      await client.publish("a", BYTES);
      expect(await client.request("turn", BYTES)).toEqual(BYTES);
      expect(await client.request("turn", null)).toBe(null);
    }
    const plain = sent().filter(({ t }) => t === "plain");
    expect(plain.map(({ b }) => b)).toEqual([true, true]);
    for (const { p } of plain) expect(p).toEqual(options.format ? BYTES : "AAH/");
    expect(
      sent()
        .filter(({ t }) => t === "null")
        .map(({ p }) => p),
    ).toEqual([null, null]);
    for (const { p } of sent().filter(({ t }) => t === "publish_request"))
      expect(p).toMatchObject({ payload: "AAH/", binary: true });
    const got: unknown[] = [];
    for (const client of [leader, other]) {
      client.subscribe("kept").on("message", ({ payload }) => got.push(payload));
      client.on("message", ({ payload }) => got.push(payload));
      await client.subscribe("kept").ready();
    }
    say({ c: "U", t: "x", tp: "kept", e: EPOCH, o: 6, b: true, p: "AAH/" });
    say({ c: "U", t: "x", p: null });
    await until(() => got.length === 4, "both tabs have both");
    expect(got.filter((one) => one !== null)).toEqual([BYTES, BYTES]);
    handle(other, "turn", (payload: Uint8Array) => payload.map((one) => 255 - one));
    say({ c: "WSE", t: "call_request", cid: "9", p: { type: "turn", binary: true, payload: "AAH/" } });
    await until(() => sent().some(({ t }) => t === "call_response"), "the call is answered");
    expect(sent().find(({ t }) => t === "call_response")!.p).toEqual({ binary: true, payload: "//4A" });
  });

  test("a message that is too large fails alone, and the shared connection stays", async () => {
    for (const layers of [{}, { signing: sign({ secret: "x".repeat(32) }) }]) {
      const { leader, other, transport, sizes } = await start({ ...options, ...layers });
      for (const client of [leader, other]) {
        let [fits, over] = [0, MAX + 1];
        while (over - fits > 1) {
          const middle = (fits + over) >> 1;
          try {
            client.send("tick", "x".repeat(middle));
            fits = middle;
          } catch (error) {
            expect(error).toMatchObject({ code: "MESSAGE_TOO_LARGE" });
            over = middle;
          }
        }
        const codes = await Promise.all(
          Array.from({ length: 40 }, (_, index) =>
            client.request("turn", "x".repeat(fits - 120 + index * 4)).then(
              () => "done",
              ({ code }: { code: string }) => code,
            ),
          ),
        );
        expect(new Set(codes)).toEqual(new Set(["done", "MESSAGE_TOO_LARGE"]));
      }
      expect(Math.max(...sizes)).toBeLessThanOrEqual(MAX);
      expect(Math.max(...sizes)).toBeGreaterThan(MAX - 4);
      expect(transport.connections).toHaveLength(1);
      await Promise.all([leader.close(), other.close()]);
      world = new World();
    }
  });
});

test("a refusal for the rate names each tab's requests by that tab's own ids", async () => {
  const { leader, other, say, transport } = await start();
  const { connections } = transport;
  connections[0]!.onMessage = undefined;
  const before = connections[0]!.sent.length;
  const calls = [leader.request("sum", 1), other.request("sum", 1), other.request("sum", 2)].map((call) =>
    call.then(
      () => "done",
      ({ code }: { code: string }) => code,
    ),
  );
  await until(() => connections[0]!.sent.length === before + 3, "the server has them");
  const cids = connections[0]!.sent.slice(before).map((raw) => read(raw).cid);
  const p = { code: "RATE_LIMITED", message: "no", recoverable: true, retry_after: 1, refused: 2 };
  say({ c: "WSE", t: "error", p: { ...p, cids: cids.slice(0, 2) } });
  expect(await Promise.all(calls.slice(0, 2))).toEqual(["RATE_LIMITED", "RATE_LIMITED"]);
  say({ c: "WSE", t: "call_response", cid: cids[2], p: { payload: 3 } });
  expect(await calls[2]).toBe("done");
});

test("the server's subscriptions are those of every tab, also of one that comes later, and are asked for again", async () => {
  const { leader, other, sent, say, transport } = await start();
  const got: string[] = [];
  const listen = (name: string, client: Client) => {
    client.on("message", ({ topic, payload }) => got.push(`${name} ${topic} ${payload}`));
    client.on("subscriptionLost", ({ topics }) => got.push(`${name} lost ${topics}`));
  };
  listen("leader", leader);
  listen("other", other);
  const recovery = { news: { epoch: EPOCH, offset: 5, recovered: false, count: 0 } };
  say({
    c: "WSE",
    t: "subscription_update",
    p: { action: "subscribe", success_topics: ["news"], failed_topics: [], recovery },
  });
  say({ c: "U", t: "x", tp: "news", e: EPOCH, o: 6, p: 6 });
  await until(() => got.length === 2, "both have it");
  const late = await world
    .tab()
    .connect(URL, { transport, reconnect: { baseMs: 1 } })
    .ready();
  listen("late", late);
  say({ c: "U", t: "x", tp: "news", e: EPOCH, o: 7, p: 7 });
  await until(() => got.length === 5, "all three have it");
  expect(got.toSorted()).toEqual([
    "late news 7",
    "leader news 6",
    "leader news 7",
    "other news 6",
    "other news 7",
  ]);
  transport.connections[0]!.close(1012);
  const renewals = () => sent().filter(({ t, p }) => t === "subscription_update" && p.renew === true);
  await until(() => renewals().length === 3, "each asks again");
  expect(renewals().map(({ p }) => p.topics)).toEqual([["news"], ["news"], ["news"]]);
  expect(renewals()[0]!.p).toMatchObject({ recover: true, recovery: { news: { epoch: EPOCH, offset: 7 } } });
  await until(() => [leader, other, late].every(({ state }) => state === "open"), "all are open");
  got.length = 0;
  say({
    c: "WSE",
    t: "subscription_update",
    p: { action: "unsubscribe", success_topics: ["news"], failed_topics: [] },
  });
  await until(() => got.length === 3, "each is told that it is lost");
  expect(got.toSorted()).toEqual(["late lost news", "leader lost news", "other lost news"]);
});
