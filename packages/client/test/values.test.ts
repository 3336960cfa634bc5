/** What a payload may be: values that arrive as they were sent, bytes, and what is refused before it is sent. */

import { readFileSync } from "node:fs";
import { afterEach, describe, expect, test, vi } from "vitest";
import {
  type Client,
  type ClientOptions,
  connect,
  handle,
  history,
  type Message,
  prepare,
} from "../src/index.js";
import { msgpack } from "../src/msgpack.js";
import { queue } from "../src/queue.js";
import { type FakeConnection, FakeTransport } from "../src/testing.js";

interface Sent {
  t: string;
  cid?: string;
  n?: number;
  b?: boolean;
  p: Record<string, unknown> & { topics?: string[] };
}

const clients: Client[] = [];

afterEach(() => Promise.all(clients.splice(0).map((one) => one.close())));

const read = (message: unknown): Sent =>
  (message instanceof Uint8Array ? msgpack().read(message.subarray(2)) : message) as Sent;

/** A client with a server that answers what it is asked, in the client's format. */
async function start(options: ClientOptions = {}, features: object = { binary: true, history: true }) {
  const transport = new FakeTransport();
  const format = msgpack();
  const send = (connection: FakeConnection, { p, ...fields }: Record<string, unknown>) =>
    connection.send(
      options.format ? format.envelope(fields as never, format.payload(p, "")) : { ...fields, p },
    );
  transport.onConnect = (connection) => {
    connection.onMessage = ((raw: unknown) => {
      const { t, cid, n, p } = read(raw);
      if (t === "client_hello") {
        const producer = { id: "x", epoch: "00000001", last: 0 };
        const limits = { max_message_size: 1_048_576 };
        send(connection, { c: "WSE", t: "server_hello", p: { features, limits, producer } });
      } else if (n !== undefined) send(connection, { c: "WSE", t: "message_ack", p: { last: n } });
      else if (t === "publish_request")
        send(connection, { c: "WSE", t: "publish_response", cid, p: { topic: p.topic, duplicate: false } });
      else if (t === "call_request") {
        const { payload, binary } = p;
        const answer = { ...(payload !== undefined && { payload }), ...(binary !== undefined && { binary }) };
        send(connection, { c: "WSE", t: "call_response", cid, p: answer });
      } else if (t === "subscription_update") {
        const answer = { action: p.action, success_topics: p.topics, failed_topics: [], recovery: {} };
        send(connection, { c: "WSE", t, cid, p: answer });
      }
    }) as never;
    const { onMessage } = connection;
    connection.accept();
    connection.onMessage = onMessage;
  };
  const client = await connect("ws://fake.test/", { transport, ...options }).ready();
  clients.push(client);
  const [connection] = transport.connections as [FakeConnection];
  const sent = () => connection.sent.map(read);
  return { client, connection, sent, send: (message: object) => send(connection, message as never) };
}

const nested = (levels: number) => {
  let value: unknown = 1;
  for (let level = 0; level < levels; level++) value = [value];
  return value;
};

class Point {
  x = 1;
  #secret = 2;

  get secret(): number {
    return this.#secret;
  }
}

/** A value, what the error says of it, and whether MessagePack has it. */
const REFUSED: [string, unknown, string, boolean?][] = [
  ["half an emoji", { text: "hello 😀".slice(0, 7) }, "payload.text has half a character"],
  ["half an emoji behind an escape", { text: '\\"\ud83d' }, "payload.text has half a character"],
  ["half an emoji in a name", { a: { "\ude00": 1 } }, "has a name with half a character"],
  ["half an emoji alone", "\ud83d", "payload has half a character"],
  ["NaN", { list: [1, Number.NaN] }, "payload.list[1] is NaN"],
  ["an infinity", Number.NEGATIVE_INFINITY, "payload is -Infinity"],
  ["undefined in an object", { a: 1, b: { c: undefined } }, "payload.b.c is undefined"],
  ["a hole in a list", { list: new Array(2) }, "payload.list[0] is undefined"],
  ["a function", { call: () => 1 }, "payload.call is a function"],
  ["a symbol", [Symbol.iterator], "payload[0] is a symbol"],
  ["a Date", { at: [{ from: new Date(0) }] }, "payload.at[0].from is a Date"],
  ["a Map", { map: new Map([["a", 1]]) }, "payload.map is a Map"],
  ["a Set", new Set([1]), "payload is a Set"],
  ["an Error", { error: new TypeError("no") }, "payload.error is a TypeError"],
  ["a boxed number", { n: Object(1) }, "payload.n is a Number"],
  ["a regular expression", /x/, "payload is a RegExp"],
  ["a promise", { later: Promise.resolve() }, "payload.later is a Promise"],
  ["an object with toJSON", { own: { toJSON: () => 7 } }, "payload.own.toJSON is a function"],
  ["an object of a class with toJSON", { url: new URL("ws://a.test/") }, "payload.url is a URL"],
  ["bytes inside", { bytes: Uint8Array.of(1) }, "payload.bytes is a Uint8Array", true],
  ["a buffer inside", [new ArrayBuffer(1)], "payload[0] is a ArrayBuffer", true],
  ["a bigint", { n: 1n }, "payload.n is a bigint", true],
  ["a bigint of 65 bits", { n: 2n ** 64n }, "payload.n is a bigint"],
  ["61 levels", nested(61), "is deeper than 60 levels"],
];

const FORMATS: [string, ClientOptions][] = [
  ["JSON", {}],
  ["MessagePack", { format: msgpack() }],
];

describe.each(FORMATS)("%s", (_, options) => {
  test.each(REFUSED)("%s is refused by name, in every call", async (_, value, words, inMessagePack) => {
    if (options.format && inMessagePack) return;
    const outbox = queue();
    const { client, sent } = await start({ ...options, queue: outbox });
    const before = sent().length;
    const error = expect.objectContaining({
      code: "INVALID_ARGUMENT",
      message: expect.stringContaining(words),
    });
    const inner = expect.objectContaining({ code: "INVALID_ARGUMENT" });
    expect(() => client.send("a", value)).toThrow(error);
    expect(() => client.trySend("a", value)).toThrow(error);
    expect(() => prepare(client, "a", value)).toThrow(error);
    await expect(client.publish("a", value)).rejects.toEqual(words.includes("deeper") ? inner : error);
    await expect(client.request("a", value)).rejects.toEqual(words.includes("deeper") ? inner : error);
    for (const call of [outbox.send("a", value), outbox.publish("a", value), outbox.sendLater("a", value)])
      await expect(call).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(sent()).toHaveLength(before);
    expect(outbox.depth).toBe(0);
    expect(client.state).toBe("open");
  });

  test.each([
    ["null", null],
    [
      "texts",
      { text: 'a "quote", a \\ and \\ud83d in words, \0, \u2028, 😀 and é', long: "é😀".repeat(100) },
    ],
    ["numbers", [0, -1.5, 1e21, 5e-324, 2 ** 53, 1e300]],
    ["nothing", {}],
    ["nothing in a list", [[], {}, "", null, false]],
    ["names", { "": 1, "a b": { "\\": null, é: true }, constructor: 1 }],
    ["an object without a prototype", Object.assign(Object.create(null), { a: 1 })],
    ["60 levels", nested(60)],
  ])("%s arrive as they were sent", async (_, value) => {
    const { client, sent } = await start(options);
    client.send("a", value);
    await client.publish("a", value);
    expect(await client.request("a", value)).toEqual(value);
    const [message, publish] = sent().slice(-3) as [Sent, Sent];
    expect(message.p).toEqual(value);
    expect(publish.p.payload).toEqual(value);
  });

  test("an object of a class is sent with its own fields", async () => {
    const { client, sent } = await start(options);
    expect(new Point().secret).toBe(2);
    client.send("a", { at: new Point() });
    expect(sent().at(-1)!.p).toEqual({ at: { x: 1 } });
  });

  test("without a payload there is none, and what is missing arrives as {}", async () => {
    const { client, sent, send } = await start(options);
    client.send("a");
    await client.publish("a", undefined);
    expect(await client.request("a")).toEqual({});
    const [message, publish, call] = sent().slice(-3) as [Sent, Sent, Sent];
    for (const [fields, name] of [
      [message, "p"],
      [publish.p, "payload"],
      [call.p, "payload"],
    ] as const)
      expect(name in fields).toBe(false);
    const received: unknown[] = [];
    client.on("message", ({ payload }) => received.push(payload));
    send({ c: "U", t: "x", p: null });
    send({ c: "U", t: "x", tp: "nowhere", p: null });
    await vi.waitUntil(() => received.length === 2);
    expect(received).toEqual([null, null]);
  });

  const BYTES = Uint8Array.of(0, 1, 255, 0x7b, 10);
  const KINDS: [string, unknown, Uint8Array][] = [
    ["a Uint8Array", BYTES, BYTES],
    ["an ArrayBuffer", BYTES.buffer, BYTES],
    ["a Buffer, which is a view", Buffer.from(BYTES).subarray(1, 4), BYTES.subarray(1, 4)],
    [
      "a view of larger elements",
      new Uint16Array([0x0102, 0x0304]),
      new Uint8Array(new Uint16Array([0x0102, 0x0304]).buffer),
    ],
    ["a DataView", new DataView(BYTES.buffer, 1, 2), BYTES.subarray(1, 3)],
    ["no bytes", new Uint8Array(0), new Uint8Array(0)],
    ["65,535 bytes", new Uint8Array(65_535).fill(7), new Uint8Array(65_535).fill(7)],
  ];

  test.each(KINDS)("%s travels as bytes, in every call", async (_, value, bytes) => {
    const outbox = queue();
    const { client, sent } = await start({ ...options, queue: outbox });
    const base = Buffer.from(bytes).toString("base64");
    client.send("a", value);
    client.send(prepare(client, "a", value));
    await client.publish("a", value);
    const answer = await client.request("a", value);
    expect(answer).toBeInstanceOf(Uint8Array);
    expect(answer).toEqual(bytes);
    await outbox.send("a", value);
    await outbox.publish("a", value);
    const [plain, prepared, publish, call, queued, queuedPublish] = sent().slice(-6) as Sent[];
    // In MessagePack the type of what is inside is looked at here: as JSON it is base64.
    for (const { p, b } of [plain, prepared, queued] as Sent[]) {
      expect(b).toBe(true);
      expect(p).toEqual(options.format ? bytes : base);
    }
    for (const { p } of [publish, call, queuedPublish] as Sent[]) {
      expect(p).toMatchObject({ binary: true, payload: base });
    }
  });

  test("bytes that arrive are bytes, and what only looks like them is not", async () => {
    const { client, send } = await start(options);
    const received: unknown[] = [];
    client.on("message", ({ payload }) => received.push(payload));
    client.subscribe("bytes").on("message", ({ payload }) => received.push(payload));
    send({ c: "U", t: "x", b: true, p: "AAH/" });
    send({ c: "U", t: "x", tp: "bytes", b: true, p: "" });
    send({ c: "U", t: "x", p: "AAH/" });
    send({ c: "U", t: "x", b: 1, p: "AAH/" });
    send({ c: "U", t: "x", p: { b: true, binary: true, p: "AAH/", payload: "AAH/" } });
    await vi.waitUntil(() => received.length === 5);
    expect(received).toEqual([
      Uint8Array.of(0, 1, 255),
      new Uint8Array(0),
      "AAH/",
      "AAH/",
      { b: true, binary: true, p: "AAH/", payload: "AAH/" },
    ]);
    if (!options.format) return;
    send({ c: "U", t: "x", p: Uint8Array.of(1, 2) });
    await vi.waitUntil(() => received.length === 6);
    expect(received[5]).toEqual(Uint8Array.of(1, 2));
  });

  test.each(["AAH", "AAH/=", "AA H", "AAI=\n", "AB==", "-_==", "AAH*", 7, null, { a: 1 }])(
    "a payload that is marked as bytes and is not base64, %j, is left out",
    async (p) => {
      const { client, send } = await start(options);
      const errors: string[] = [];
      const received: unknown[] = [];
      client.on("error", ({ code }) => errors.push(code));
      client.on("message", ({ payload }) => received.push(payload));
      send({ c: "U", t: "x", b: true, p });
      send({
        c: "WSE",
        t: "batch",
        p: {
          messages: [
            { t: "x", b: true, p },
            { t: "x", p: 1 },
          ],
        },
      });
      send({ c: "WSE", t: "call_request", cid: "9", p: { type: "sum", binary: true, payload: p } });
      await vi.waitUntil(() => errors.length === 3);
      expect(errors).toEqual(["INVALID_MESSAGE", "INVALID_MESSAGE", "INVALID_MESSAGE"]);
      expect(received).toEqual([1]);
    },
  );

  test("the server's call and this client's answer may be bytes", async () => {
    const { client, send, sent } = await start(options);
    const asked: unknown[] = [];
    handle(client, "turn", (payload: Uint8Array) => {
      asked.push(payload);
      return payload.map((one) => 255 - one);
    });
    send({ c: "WSE", t: "call_request", cid: "9", p: { type: "turn", binary: true, payload: "AAH/" } });
    await vi.waitUntil(() => sent().some(({ t }) => t === "call_response"));
    expect(asked).toEqual([Uint8Array.of(0, 1, 255)]);
    const { p } = sent().find(({ t }) => t === "call_response")!;
    expect(p).toEqual({ binary: true, payload: Buffer.from([255, 254, 0]).toString("base64") });
  });

  test("a handler that returns nothing answers without a payload", async () => {
    const { client, send, sent } = await start(options);
    handle(client, "note", () => undefined);
    send({ c: "WSE", t: "call_request", cid: "9", p: { type: "note", payload: null } });
    await vi.waitUntil(() => sent().some(({ t }) => t === "call_response"));
    expect(sent().find(({ t }) => t === "call_response")!.p).toEqual({});
  });

  test("bytes in a history are bytes", async () => {
    const { client, send, sent } = await start(options);
    const page = history(client, "kept");
    await vi.waitUntil(() => sent().some(({ t }) => t === "history_request"));
    const { cid } = sent().find(({ t }) => t === "history_request")!;
    const publications = [{ t: "x", tp: "kept", e: "00000001", o: 1, b: true, p: "AAH/" }];
    const p = {
      topic: "kept",
      epoch: "00000001",
      offset: 1,
      oldest: 1,
      publications,
      more: false,
      complete: true,
    };
    send({ c: "WSE", t: "history_response", cid, p });
    const found = (await page).publications as Message[];
    expect(found.map(({ payload }) => payload)).toEqual([Uint8Array.of(0, 1, 255)]);
  });

  test("a server without the feature gets no bytes, and each call says so", async () => {
    const outbox = queue();
    const { client, sent } = await start({ ...options, queue: outbox }, {});
    const before = sent().length;
    const refused: string[] = [];
    client.on("refused", ({ error }) => refused.push(error.code));
    expect(() => client.send("a", BYTES)).toThrow(expect.objectContaining({ code: "NOT_SUPPORTED" }));
    await expect(client.publish("a", BYTES)).rejects.toMatchObject({ code: "NOT_SUPPORTED" });
    await expect(client.request("a", BYTES)).rejects.toMatchObject({ code: "NOT_SUPPORTED" });
    await expect(outbox.send("a", BYTES)).rejects.toMatchObject({ code: "NOT_SUPPORTED" });
    expect(refused).toEqual(["NOT_SUPPORTED"]);
    expect(sent()).toHaveLength(before);
    // Values go out as ever, those behind it in the queue too.
    await outbox.send("a", 1);
  });
});

test("what waits for a connection is checked against its server", async () => {
  const transport = new FakeTransport();
  transport.onConnect = (connection) =>
    connection.accept({ features: {}, limits: { max_message_size: 200 } });
  const client = connect("ws://fake.test/", { transport });
  clients.push(client);
  const errors: string[] = [];
  client.on("error", ({ code }) => errors.push(code));
  expect(client.send("a", Uint8Array.of(1))).toBe(false);
  expect(client.send("b", "x".repeat(200))).toBe(false);
  expect(client.send("c", "x")).toBe(false);
  const publication = client.publish("a", "x".repeat(200));
  await expect(publication).rejects.toMatchObject({ code: "MESSAGE_TOO_LARGE" });
  expect(errors).toEqual(["NOT_SUPPORTED", "MESSAGE_TOO_LARGE"]);
  const types = transport.connections[0]!.sent.map((message) => (message as Sent).t);
  expect(types).toEqual(["client_hello", "c"]);
  expect(client.state).toBe("open");
});

test("the client says that it knows binary payloads", async () => {
  const { sent } = await start();
  expect(sent()[0]!.p.features).toMatchObject({ binary: true });
});

describe("types", () => {
  const text = readFileSync(new URL("../../../protocol/PROTOCOL.md", import.meta.url), "utf8");
  const headings = [...text.matchAll(/^### 7\.\d+ (.*)$/gm)].flatMap(([, heading]) =>
    [...heading!.matchAll(/`([a-zA-Z_]+)`/g)].map(([, name]) => name!),
  );
  const reserved = [
    ...headings.filter((name) => !["c", "S"].includes(name)),
    ..."PING pong subscription config_response health_check_response metrics_response".split(" "),
  ];

  test("the protocol's text has them", () => {
    expect(reserved).toEqual(
      expect.arrayContaining(["client_hello", "batch", "error", "message_ack", "PONG"]),
    );
    expect(reserved.length).toBeGreaterThan(35);
  });

  test.each([...reserved, "", "\ud83d", 7, undefined])("%j is refused by every send", async (type) => {
    const outbox = queue();
    const { client, sent } = await start({ queue: outbox });
    const before = sent().length;
    const refused = expect.objectContaining({ code: "INVALID_ARGUMENT", fault: "application" });
    expect(() => client.send(type as string)).toThrow(refused);
    expect(() => client.trySend(type as string)).toThrow(refused);
    expect(() => prepare(client, type as string)).toThrow(refused);
    for (const call of [outbox.send(type as string), outbox.sendLater(type as string)])
      await expect(call).rejects.toEqual(refused);
    expect([sent().length, outbox.depth]).toEqual([before, 0]);
  });

  test.each(["Ping", "pings", "a.error", "errors", "subscribe", "constructor", "é😀"])(
    "%s is the application's",
    async (type) => {
      const { client, sent } = await start();
      expect(client.send(type)).toBe(true);
      expect(sent().at(-1)!.t).toBe(type);
    },
  );

  test("half a character elsewhere is refused, too", async () => {
    const outbox = queue();
    const { client } = await start({ queue: outbox });
    expect(() => client.send("a", 1, { correlationId: "\ud83d" })).toThrow(
      "correlationId has half a character",
    );
    await expect(client.publish("\ud83d", 1)).rejects.toThrow("topic has half a character");
    await expect(client.publish("a", 1, { key: "\ud83d" })).rejects.toThrow("key has half a character");
    await expect(outbox.publish("\ud83d", 1)).rejects.toThrow("topic has half a character");
    await expect(outbox.publish("a", 1, { key: "\ud83d" })).rejects.toThrow("key has half a character");
  });

  test("a topic with half a character fails alone", async () => {
    const { client, sent } = await start();
    const both = client.subscribe(["good", "bad\ud83d"]);
    const failed: string[] = [];
    both.on("failed", ({ topic, error }) => failed.push(topic, (error.cause as { code: string })?.code));
    const other = client.subscribe("other");
    await other.ready();
    await expect(both.ready()).rejects.toMatchObject({ code: "SUBSCRIPTION_FAILED" });
    expect(failed).toEqual(["bad\ud83d", "INVALID_SUBSCRIPTION"]);
    const asked = sent()
      .filter(({ t }) => t === "subscription_update")
      .flatMap(({ p }) => p.topics);
    expect(asked).toEqual(["good", "other"]);
  });

  test("presence data that would be changed is refused by the call", async () => {
    const { client } = await start();
    for (const presence of [{ since: new Date(0) }, { n: Number.NaN }, Uint8Array.of(1), { a: "\ud83d" }])
      expect(() => client.subscribe("a", { presence })).toThrow(
        expect.objectContaining({ code: "INVALID_ARGUMENT" }),
      );
    await client.subscribe("a", { presence: { name: "Ada" } }).ready();
  });
});
