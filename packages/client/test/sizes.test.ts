/** Sizes are counted as the server counts them: in bytes on the wire, with the envelope and its layers. */

import { afterEach, describe, expect, test, vi } from "vitest";
import { type Client, type ClientOptions, connect } from "../src/index.js";
import { msgpack } from "../src/msgpack.js";
import { queue } from "../src/queue.js";
import { sign } from "../src/sign.js";
import { type FakeConnection, FakeTransport } from "../src/testing.js";

const clients: Client[] = [];

afterEach(async () => {
  await Promise.all(clients.splice(0).map((one) => one.close()));
});

const MAX = 10_000;

/** A server that accepts messages of `MAX` bytes and closes with 1009 for a larger one, as ours does. */
class Limited extends FakeTransport {
  readonly frames: (string | Uint8Array)[] = [];

  constructor() {
    super();
    this.onConnect = (connection) => {
      const receive = connection.receive.bind(connection);
      connection.receive = (frame) => {
        const data = typeof frame === "string" || frame instanceof Uint8Array ? frame : frame.data;
        this.frames.push(data);
        if (Buffer.byteLength(data) > MAX) return connection.close(1009);
        receive(data);
      };
      connection.onMessage = ((raw: unknown) => this.#answer(connection, raw)) as never;
      connection.accept({
        features: { binary: true },
        limits: { max_message_size: MAX },
        producer: { id: "x", epoch: "00000001", last: 0 },
      });
    };
  }

  #answer(connection: FakeConnection, raw: unknown): void {
    const message =
      raw instanceof Uint8Array ? msgpack().read(raw.subarray(2)) : (raw as Record<string, unknown>);
    const { t, cid, n } = message;
    if (t === "client_hello") {
      const limits = { max_message_size: MAX };
      const producer = { id: "x", epoch: "00000001", last: 0 };
      connection.send({ c: "WSE", t: "server_hello", p: { features: { binary: true }, limits, producer } });
    } else if (n !== undefined) connection.send({ c: "WSE", t: "message_ack", p: { last: n } });
    else if (t === "publish_request")
      connection.send({ c: "WSE", t: "publish_response", cid, p: { topic: "a" } });
    else if (t === "call_request") connection.send({ c: "WSE", t: "call_response", cid, p: { payload: 1 } });
  }
}

async function start(options: ClientOptions = {}) {
  const transport = new Limited();
  const client = await connect("ws://fake.test/", { transport, ...options }).ready();
  clients.push(client);
  return { client, transport };
}

const FORMATS: [string, () => ClientOptions][] = [
  ["JSON", () => ({})],
  ["MessagePack", () => ({ format: msgpack() })],
  ["JSON, signed", () => ({ signing: sign({ secret: "x".repeat(32) }) })],
  [
    "MessagePack, signed by version 1",
    () => ({ format: msgpack(), signing: sign({ secret: "x".repeat(32), version: 1 }) }),
  ],
];

describe.each(FORMATS)("%s", (_, options) => {
  test.each(["x", "é", "漢", "😀", '"', "\0"])(
    "messages of %j up to the limit are sent, larger ones are not",
    async (letter) => {
      const { client, transport } = await start(options());
      // The largest that goes, found by halving.
      let [fits, over] = [0, MAX + 1];
      while (over - fits > 1) {
        const middle = (fits + over) >> 1;
        try {
          client.send("tick", letter.repeat(middle));
          fits = middle;
        } catch (error) {
          expect(error).toMatchObject({ code: "MESSAGE_TOO_LARGE", fault: "application" });
          over = middle;
        }
      }
      client.send("end");
      const isEnd = () => transport.frames.some((frame) => Buffer.from(frame).includes("end"));
      await vi.waitUntil(isEnd);
      const sizes = transport.frames.map((frame) => Buffer.byteLength(frame));
      const step = new Set(sizes.filter((size) => size > MAX - 40));
      // One more letter has at most six bytes, as an escape.
      expect(Math.max(...sizes)).toBeGreaterThan(MAX - 7);
      expect(Math.max(...step)).toBeLessThanOrEqual(MAX);
      expect(client.state).toBe("open");
      expect(transport.connections).toHaveLength(1);
    },
  );
});

test("each call with a message that is too large fails alone, with the code that says so", async () => {
  const outbox = queue();
  const { client, transport } = await start({ queue: outbox });
  const refused: string[] = [];
  client.on("refused", ({ message, error }) => refused.push(`${message.type} ${error.code}`));
  const large = "é".repeat(MAX / 2);
  const isTooLarge = expect.objectContaining({ code: "MESSAGE_TOO_LARGE" });
  expect(() => client.send("large", large)).toThrow(isTooLarge);
  expect(() => client.trySend("large", large)).toThrow(isTooLarge);
  expect(() => client.send("large", new Uint8Array(MAX))).toThrow(isTooLarge);
  const others = [client.publish("a", 1), client.request("sum", 1), outbox.send("small", 1)];
  const calls = [
    client.publish("a", large),
    client.request("sum", large),
    outbox.send("large", large),
    outbox.publish("a", large, { type: "large_too" }),
  ];
  for (const call of calls) await expect(call).rejects.toEqual(isTooLarge);
  await Promise.all(others);
  await outbox.send("behind", 1);
  expect(refused).toEqual(["large MESSAGE_TOO_LARGE", "large_too MESSAGE_TOO_LARGE"]);
  await vi.waitUntil(() => outbox.depth === 0);
  expect(transport.connections).toHaveLength(1);
  expect(client.state).toBe("open");
});

test("a queued message of exactly the limit is sent", async () => {
  const outbox = queue();
  const { transport } = await start({ queue: outbox });
  const around = JSON.stringify({ t: "a", n: 1, cid: "q-1", p: "" }).length;
  await outbox.send("a", "x".repeat(MAX - around));
  expect(Buffer.byteLength(transport.frames.at(-1)!)).toBe(MAX);
  await expect(outbox.send("a", "x".repeat(MAX - around + 1))).rejects.toMatchObject({
    code: "MESSAGE_TOO_LARGE",
  });
  const request = { topic: "t", type: "message", priority: 5, payload: "" };
  const publish = JSON.stringify({ c: "WSE", t: "publish_request", n: 2, cid: "q-2", p: request }).length;
  await outbox.publish("t", "x".repeat(MAX - publish));
  expect(Buffer.byteLength(transport.frames.at(-1)!)).toBe(MAX);
  await expect(outbox.publish("t", "x".repeat(MAX - publish + 1))).rejects.toMatchObject({
    code: "MESSAGE_TOO_LARGE",
  });
});

test("many topics are asked for in requests that the server accepts", async () => {
  const { client, transport } = await start();
  const names = Array.from({ length: 300 }, (_, index) => `${"long.".repeat(20)}${index}`);
  client.subscribe(names);
  await vi.waitUntil(
    () => transport.frames.filter((frame) => String(frame).includes("subscription_update")).length > 1,
  );
  await vi.waitUntil(() => {
    const asked = transport.frames.flatMap(
      (frame) => (JSON.parse(String(frame)) as { p?: { topics?: string[] } }).p?.topics ?? [],
    );
    return asked.length === names.length;
  });
  expect(client.state).not.toBe("closed");
  expect(transport.connections).toHaveLength(1);
});

test("an answer to the server's call that is too large is an error of the handler", async () => {
  const { handle } = await import("../src/index.js");
  const { client, transport } = await start();
  handle(client, "all", () => "x".repeat(MAX));
  transport.connections[0]!.send({
    c: "WSE",
    t: "call_request",
    cid: "1",
    p: { type: "all", payload: null },
  });
  await vi.waitUntil(() => transport.frames.some((frame) => String(frame).includes("HANDLER_ERROR")));
  expect(client.state).toBe("open");
});
