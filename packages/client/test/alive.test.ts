/** A network that is dead without a word: noticed by the calls that it leaves unanswered. Time is simulated. */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type ClientOptions, connect } from "../src/index.js";
import { type FakeConnection, FakeTransport } from "../src/testing.js";

let transport: FakeTransport;

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(Math, "random").mockReturnValue(0);
  transport = new FakeTransport();
});

afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const later = (ms: number) => vi.advanceTimersByTimeAsync(ms);

type Sent = { t: string; cid?: string; p: { timestamp: number } };

const pings = (connection: FakeConnection) =>
  (connection.sent as Sent[]).filter(({ t }) => t === "ping").length;

async function start(options: ClientOptions = {}) {
  const client = connect("ws://fake.test/", { transport, ...options });
  await later(0);
  const [connection] = transport.connections as [FakeConnection];
  const gone: string[] = [];
  client.on("disconnected", ({ reason }) => gone.push(reason));
  return { client, connection, gone };
}

/** Calls that a dead network leaves without an answer, each with how long it waits. */
const CALLS: [string, (client: ReturnType<typeof connect>) => Promise<unknown>][] = [
  ["a request", (client) => client.request("sum", 1)],
  ["a publication", (client) => client.publish("a", 1)],
  ["a ping", (client) => client.ping()],
  ["a request with a time of its own", (client) => client.request("sum", 1, { timeoutMs: 10_000 })],
];

describe.each([10_000, 2_000, 1_000])("requestTimeoutMs %i", (requestTimeoutMs) => {
  test.each(CALLS.slice(0, requestTimeoutMs === 10_000 ? 4 : 3))(
    "%s that is not answered has the server asked, and a dead network is noticed within twice the time",
    async (_, call) => {
      const { client, connection, gone } = await start({ requestTimeoutMs });
      const before = pings(connection);
      const failed = expect(call(client)).rejects.toMatchObject({ code: "TIMEOUT", fault: "network" });
      const own = pings(connection) - before;
      await later(requestTimeoutMs - 1);
      expect([pings(connection) - before, gone]).toEqual([own, []]);
      await later(1);
      await failed;
      expect(pings(connection) - before, "it is asked at once").toBe(own + 1);
      await later(requestTimeoutMs);
      expect(gone).toEqual(["the server has been silent for too long"]);
      await later(1);
      expect(transport.connections.length).toBeGreaterThan(1);
      await client.close();
    },
  );
});

test("a server that answers the ping keeps its connection, however slow its application is", async () => {
  const { client, connection, gone } = await start();
  connection.onMessage = (({ t, p }: Sent) => {
    if (t !== "ping") return;
    connection.send({ c: "WSE", t: "PONG", p: { client_timestamp: p.timestamp, server_timestamp: 1 } });
  }) as never;
  for (let round = 0; round < 5; round++) {
    const failed = expect(client.request("slow", 1)).rejects.toMatchObject({ code: "TIMEOUT" });
    await later(10_000);
    await failed;
    await later(7_000);
  }
  expect(gone).toEqual([]);
  expect(transport.connections).toHaveLength(1);
  await client.close();
});

test("any message is a sign of life", async () => {
  const { client, connection, gone } = await start();
  const failed = expect(client.request("slow", 1)).rejects.toMatchObject({ code: "TIMEOUT" });
  await later(10_000);
  await failed;
  await later(4_000);
  connection.send({ c: "U", t: "tick", p: 1 });
  await later(20_000);
  expect(gone).toEqual([]);
  await client.close();
});

test("a call that waits for a connection in vain says nothing of the server", async () => {
  transport.onConnect = () => undefined;
  const client = connect("ws://fake.test/", { transport, connectTimeoutMs: 60_000 });
  const failed = expect(client.request("sum", 1)).rejects.toMatchObject({ code: "TIMEOUT" });
  await later(10_000);
  await failed;
  await later(10_000);
  expect(transport.connections).toHaveLength(1);
  await client.close();
});

test("a timer that comes late does not judge what has not been read yet", async () => {
  const { client, connection, gone } = await start();
  const failed = expect(client.request("slow", 1)).rejects.toMatchObject({ code: "TIMEOUT" });
  await later(10_000);
  await failed;
  // The program was busy for 8 s; the answer lies in the socket and is read after the timer.
  vi.setSystemTime(Date.now() + 8_000);
  const real = performance.now();
  const spy = vi.spyOn(performance, "now").mockImplementation(() => real + 8_000);
  await later(5_000);
  expect(gone).toEqual([]);
  connection.send({ c: "U", t: "tick", p: 1 });
  spy.mockRestore();
  await client.close();
});
