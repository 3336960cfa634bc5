/** What the server gets where a handler of its calls fails in unusual ways. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { handle } from "../src/calls.js";
import { type Client, connect } from "../src/index.js";
import { msgpack } from "../src/msgpack.js";
import { type FakeConnection, FakeTransport } from "../src/testing.js";

const rejections: unknown[] = [];
const noteRejection = (error: unknown) => rejections.push(error);
const clients: Client[] = [];

beforeEach(() => void process.on("unhandledRejection", noteRejection));

afterEach(async () => {
  await Promise.all(clients.splice(0).map((one) => one.close()));
  process.off("unhandledRejection", noteRejection);
  expect(rejections.splice(0)).toEqual([]);
});

type Answer = { t: string; cid: string; p: { payload?: unknown; error?: { code: string; message: string } } };

async function start(options = {}) {
  const transport = new FakeTransport();
  const client = await connect("ws://fake.test/", { transport, ...options }).connected();
  clients.push(client);
  const [connection] = transport.connections as [FakeConnection];
  const call = (payload: object) =>
    connection.send({ c: "WSE", t: "call_request", cid: "1", p: { type: "sum", ...payload } });
  return { client, connection, call };
}

async function answerOf({ sent }: FakeConnection): Promise<Answer> {
  const find = () => sent.find((message) => (message as Answer).t === "call_response");
  return (await vi.waitUntil(find)) as Answer;
}

const circle: { self?: unknown } = {};
circle.self = circle;

test.each([
  ["a bigint", { n: 1n }],
  ["a circle", circle],
])("a result that JSON does not have, %s, is an error of the handler", async (_, result) => {
  const { client, connection, call } = await start();
  handle(client, "sum", () => result);
  call({});
  expect((await answerOf(connection)).p).toEqual({
    error: { code: "HANDLER_ERROR", message: expect.stringContaining("cannot be sent") },
  });
});

test("a result with too many levels for MessagePack is an error of the handler", async () => {
  const { client, connection, call } = await start({ format: msgpack() });
  let deep: unknown = 1;
  for (let level = 0; level < 70; level++) deep = [deep];
  handle(client, "sum", () => deep);
  const before = connection.sent.length;
  call({});
  await vi.waitUntil(() => connection.sent.length > before);
  const text = Buffer.from(connection.sent.at(-1) as Uint8Array).toString("latin1");
  expect(text).toContain("call_response");
  expect(text).toContain("HANDLER_ERROR");
});

test("an error that has no text is an error of the handler too", async () => {
  const { client, connection, call } = await start();
  handle(client, "sum", () => {
    throw Object.create(null);
  });
  call({});
  expect((await answerOf(connection)).p.error).toMatchObject({ code: "HANDLER_ERROR" });
});

test.each([
  [5_000_000_000, false],
  [1.5, false],
  [-1, true],
  [0, true],
  [null, false],
])("a call with a timeout of %s ms is answered; its signal is aborted: %s", async (timeout_ms, isAborted) => {
  const { client, connection, call } = await start();
  handle(client, "sum", async (_: never, { signal }) => {
    const early = signal.aborted;
    if (isAborted) await vi.waitUntil(() => signal.aborted);
    return { early, isAborted: signal.aborted };
  });
  call({ timeout_ms });
  expect((await answerOf(connection)).p).toEqual({ payload: { early: false, isAborted } });
});

test("the signal of a handler is aborted when the connection of its call is over, and no other's", async () => {
  const { client, connection, call } = await start({ reconnect: { baseMs: 0 } });
  const signals: AbortSignal[] = [];
  handle(client, "sum", (_: never, { signal }) => {
    signals.push(signal);
    return new Promise(() => {});
  });
  call({});
  await vi.waitUntil(() => signals.length === 1);
  // What else happens on the connection ends no call.
  await client.subscribe("chat").unsubscribe();
  expect(signals[0]!.aborted).toBe(false);
  connection.close(1006);
  expect(signals[0]!.aborted).toBe(true);
  expect(signals[0]!.reason).toMatchObject({ code: "CONNECTION_LOST" });
  await client.ready();
});
