import { afterEach, describe, expect, test, vi } from "vitest";
import { json } from "../src/core/json.js";
import { layered } from "../src/core/layered.js";
import type { Encryption, Envelope, KeyExchange } from "../src/core/layers.js";
import type { Layers, Pipeline, Wire } from "../src/core/pipeline.js";
import { connect } from "../src/index.js";
import type { Message } from "../src/message.js";
import { type FakeConnection, FakeTransport } from "../src/testing.js";

/** A key exchange that encrypts nothing: what it seals is the text itself. */
function plainExchange(version: 1 | 2, open?: KeyExchange["open"]) {
  const updates: string[] = [];
  const exchange: KeyExchange = {
    hello: { encryption_public_key: "", encryption_version: version },
    version,
    isSealed: false,
    wantsKeyUpdate: false,
    accept: async () => {},
    seal: async (bytes) => bytes,
    open: open ?? (async (bytes) => bytes),
    updateOpeningKey: async () => void updates.push("opening"),
    updateSealingKey: async () => void updates.push("sealing"),
  };
  return { exchange, updates };
}

const sealed = (text: string) => new TextEncoder().encode(`E:${text}`);

/** A pipeline, and what it told its owner. */
function start(exchange: KeyExchange) {
  exchange.isSealed = true;
  const events: unknown[] = [];
  const errors: unknown[] = [];
  const layers: Layers = {
    format: json,
    compression: undefined,
    signing: undefined,
    exchange,
    messageBytesMax: 1_000,
  };
  const wire: Wire = {
    isOver: () => false,
    send: () => {},
    receive: (message) => void events.push((message as Envelope).n ?? (message as Envelope).t),
    fail: (error) => errors.push(error),
    refuse: (error) => errors.push(error),
    notify: (t, payload, after) => {
      events.push([t, payload]);
      after();
    },
    hold: () => events.push("hold"),
    proceed: (hasRoom) => hasRoom && events.push("proceed"),
  };
  const pipeline: Pipeline = layered(layers, wire);
  return { pipeline, events, errors };
}

describe("key_update", () => {
  test.each([
    '{"t":"key_update"}',
    '{"t":"key_update","p":null}',
    '{"t":"key_update","p":{}}',
    '{"t":"key_update","p":{"request":1}}',
  ])("%s changes the opening key", async (text) => {
    const { exchange, updates } = plainExchange(2);
    const { pipeline, errors } = start(exchange);
    pipeline.read([sealed(text)]);
    await vi.waitUntil(() => updates.length > 0);
    expect([updates, errors]).toEqual([["opening"], []]);
  });

  test("is answered if the server asks for that", async () => {
    const { exchange, updates } = plainExchange(2);
    const { pipeline, events, errors } = start(exchange);
    pipeline.read([sealed('{"t":"key_update","p":{"request":true}}')]);
    await vi.waitUntil(() => updates.length === 2);
    expect([updates, errors]).toEqual([["opening", "sealing"], []]);
    expect(events).toContainEqual(["key_update", { request: false }]);
  });

  test("changes nothing in version 1, which does not have it", async () => {
    const { exchange, updates } = plainExchange(1);
    const { pipeline, events } = start(exchange);
    pipeline.read([sealed('{"t":"key_update","p":{"request":true}}'), sealed('{"t":"next"}')]);
    await vi.waitUntil(() => events.includes("next"));
    expect(updates).toEqual([]);
  });
});

describe("frames behind one that a layer works on", () => {
  const numbers = (count: number) => Array.from({ length: count }, (_, n) => n);

  test("keep their order, are copied once, and hold the socket back while there are many", async () => {
    const { exchange } = plainExchange(2);
    const { pipeline, events, errors } = start(exchange);
    const frames = numbers(3_000).map((n) => sealed(`{"t":"tick","n":${n}}`));
    pipeline.read(frames.slice(0, 2_000));
    const [held] = events.splice(0);
    expect(held).toBe("hold");
    // The reader of the socket uses its memory again.
    for (const frame of frames.slice(1, 2_000)) frame.fill(0x20);
    pipeline.read(frames.slice(2_000));
    for (const frame of frames.slice(2_000)) frame.fill(0x20);
    await vi.waitUntil(() => events.includes(2_999) || errors.length > 0);
    expect(errors).toEqual([]);
    expect(events.filter((event) => typeof event === "number")).toEqual(numbers(3_000));
    const readBefore = events.slice(0, events.indexOf("proceed")).filter((event) => event !== "hold");
    expect(readBefore, "the socket is read again when few frames are left").toHaveLength(3_000 - 1_024);
    // All is read: the next one need not wait.
    await vi.waitUntil(() => events.at(-1) === "proceed");
    pipeline.read([sealed('{"t":"tick","n":3000}')]);
    await vi.waitUntil(() => events.includes(3_000));
  });

  test("let the socket go on also when no layer works on the rest of them", async () => {
    const { pipeline, events } = start(plainExchange(1).exchange);
    const plain = numbers(2_000).map((n) => `{"t":"tick","n":${n}}`);
    pipeline.read([sealed('{"t":"first"}'), ...plain]);
    await vi.waitUntil(() => events.includes(1_999));
    expect(events.slice(-2)).toEqual([1_999, "proceed"]);
  });

  test("that are very many cost no more each than a few", async () => {
    const { exchange } = plainExchange(2);
    const { pipeline, events, errors } = start(exchange);
    const frame = sealed('{"t":"tick","n":1}');
    const began = performance.now();
    pipeline.read(Array.from({ length: 200_000 }, () => frame));
    await vi.waitUntil(() => events.filter((event) => event === 1).length === 200_000, { timeout: 20_000 });
    expect(errors).toEqual([]);
    expect(performance.now() - began).toBeLessThan(20_000);
  });
});

describe("an attempt that is over", () => {
  const clients: { close(): Promise<void> }[] = [];
  afterEach(async () => {
    await Promise.all(clients.splice(0).map((one) => one.close()));
  });

  test("is not refused by what a layer still works on", async () => {
    const fails: (() => void)[] = [];
    const open = () =>
      new Promise<never>((_, reject) => fails.push(() => reject(new Error("it cannot be opened"))));
    const encryption: Encryption = { pipeline: layered, begin: async () => plainExchange(2, open).exchange };
    const transport = new FakeTransport();
    const client = connect("ws://fake.test/", { transport, encryption, reconnect: { baseMs: 60_000 } });
    clients.push(client);
    await client.connected();
    const [connection] = transport.connections as [FakeConnection];
    const messages: Message[] = [];
    client.on("message", (message) => messages.push(message));
    connection.send(sealed('{"t":"late"}'));
    await vi.waitUntil(() => fails.length === 1);
    const ends: number[] = [];
    client.on("disconnected", ({ code }) => ends.push(code));
    client.reconnect();
    await vi.waitUntil(() => connection.closed);
    for (const fail of fails) fail();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(connection.closed).toMatchObject({ code: 1000 });
    expect([ends, messages]).toEqual([[1000], []]);
  });
});
