/** The replay of a subscriber that shares a subscription: its own request to the history, which may fail. */

import { expect, test } from "vitest";
import { connect, type Gap, type TidewireError } from "../src/index.js";
import { FakeTransport } from "../src/testing.js";

interface Request {
  t: string;
  cid: string;
  p: { action: string; topics: string[] };
}

const EPOCH = "0badcafe";

/** A client that has `chat`, and whose server answers a `history_request` with `answer`. */
async function start(answer: { t: string; p: object }) {
  const transport = new FakeTransport();
  const errors: string[] = [];
  transport.onConnect = (connection) => {
    connection.onMessage = (({ t, cid, p }: Request) => {
      if (t === "history_request") connection.send({ c: "WSE", cid, ...answer });
      if (t !== "subscription_update") return;
      const recovery = { chat: { epoch: EPOCH, offset: 7, recovered: false, count: 0 } };
      const done = { action: p.action, success_topics: p.topics, failed_topics: [], recovery };
      connection.send({ c: "WSE", t, cid, p: done });
    }) as never;
    connection.accept({ features: { topics: true, history: true } });
  };
  const client = await connect("ws://fake.test/", {
    transport,
    on: { error: ({ code }: TidewireError) => errors.push(code) },
  }).connected();
  await client.subscribe("chat").ready();
  const [connection] = transport.connections;
  const publish = (o: number) => connection!.send({ c: "U", t: "line", tp: "chat", e: EPOCH, o, p: o });
  return { client, errors, publish };
}

test("that has failed is told as a gap before what is live, and the reason as an error", async () => {
  const p = { code: "SERVER_ERROR", message: "the history is away", recoverable: true };
  const { client, errors, publish } = await start({ t: "error", p });
  const told: unknown[] = [];
  const second = client.subscribe("chat", { replay: 5 });
  second.on("gap", (gap: Gap) => told.push(gap));
  second.on("message", ({ payload }) => told.push(payload));
  publish(8);
  await expect.poll(() => told.length).toBe(2);
  expect(told).toEqual([{ topic: "chat", reason: undefined, count: 0, range: undefined }, 8]);
  expect(errors).toEqual(["SERVER_ERROR"]);
  await client.close();
});

test("that has nothing to give is no gap", async () => {
  const p = {
    topic: "chat",
    epoch: EPOCH,
    offset: 7,
    oldest: 8,
    publications: [],
    more: false,
    complete: true,
  };
  const { client, errors, publish } = await start({ t: "history_response", p });
  const told: unknown[] = [];
  const second = client.subscribe("chat", { replay: 5 });
  second.on("gap", (gap: Gap) => told.push(gap));
  second.on("message", ({ payload }) => told.push(payload));
  publish(8);
  await expect.poll(() => told.length).toBe(1);
  expect([told, errors]).toEqual([[8], []]);
  await client.close();
});

test("that the end of the client cuts off is neither", async () => {
  const { client, errors } = await start({ t: "nothing", p: {} });
  const gaps: Gap[] = [];
  const second = client.subscribe("chat", { replay: 5 });
  second.on("gap", (gap: Gap) => gaps.push(gap));
  await client.close();
  expect([gaps, errors]).toEqual([[], []]);
});
