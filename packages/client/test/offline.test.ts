import { afterEach, expect, test, vi } from "vitest";
import { connect } from "../src/index.js";
import { FakeTransport } from "../src/testing.js";

afterEach(() => vi.unstubAllGlobals());

test("a page that goes offline gives a silent connection up in seconds, also in the first minute of the page", {
  timeout: 60_000,
}, async () => {
  vi.stubGlobal("window", new EventTarget());
  vi.stubGlobal("document", Object.assign(new EventTarget(), { visibilityState: "visible" }));
  const transport = new FakeTransport();
  const client = await connect("ws://fake.test/", { transport, idleTimeoutMs: 3_600_000 }).connected();
  const [connection] = transport.connections;
  const reasons: string[] = [];
  client.on("disconnected", ({ reason }) => reasons.push(reason));
  window.dispatchEvent(new Event("offline"));
  await vi.waitUntil(() => connection!.sent.some((message) => (message as { t: string }).t === "ping"));
  await vi.waitUntil(() => reasons.length > 0, { timeout: 50_000 });
  expect(reasons).toEqual(["the server has been silent for too long"]);
  await client.close();
});

test("a server that answers keeps the connection", { timeout: 60_000 }, async () => {
  vi.stubGlobal("window", new EventTarget());
  vi.stubGlobal("document", Object.assign(new EventTarget(), { visibilityState: "visible" }));
  const transport = new FakeTransport();
  transport.onConnect = (connection) => {
    connection.onMessage = ((message: { t: string; p: { timestamp: number } }) => {
      if (message.t !== "ping") return;
      const { timestamp } = message.p;
      connection.send({
        c: "WSE",
        t: "PONG",
        p: { client_timestamp: timestamp, server_timestamp: timestamp },
      });
    }) as never;
    connection.accept();
  };
  const client = await connect("ws://fake.test/", { transport, idleTimeoutMs: 6_000 }).connected();
  window.dispatchEvent(new Event("offline"));
  // What the server says after the check counts as life for as long as ever.
  await client.ping();
  expect(client.state).toBe("open");
  expect(transport.connections).toHaveLength(1);
  await client.close();
});

/** A client whose server is silent after its hello, with the pings that it gets. */
async function silent() {
  const transport = new FakeTransport();
  const client = await connect("ws://fake.test/", { transport }).ready();
  const [connection] = transport.connections;
  const pings = () => connection!.sent.filter((message) => (message as { t: string }).t === "ping").length;
  return { client, connection: connection!, pings };
}

test("a ping can be aborted after it was sent", async () => {
  const { client, pings } = await silent();
  const call = new AbortController();
  const ping = client.ping({ signal: call.signal });
  await vi.waitUntil(() => pings() === 1);
  call.abort();
  await expect(ping).rejects.toMatchObject({ code: "ABORTED" });
  await client.close();
});

test("a ping without an answer ends in time, and the late answer belongs to it", async () => {
  const { client, connection, pings } = await silent();
  await expect(client.ping({ timeoutMs: 10 })).rejects.toMatchObject({ code: "TIMEOUT" });
  // The client asks again by itself, to know whether the server is there.
  await vi.waitUntil(() => pings() === 2);
  const third = client.ping();
  await vi.waitUntil(() => pings() === 3);
  const pong = { c: "WSE", t: "PONG", p: { client_timestamp: 1, server_timestamp: 1 } };
  let isAnswered = false;
  void third.then(() => {
    isAnswered = true;
  });
  for (const _ of ["the first", "the second"]) {
    connection.send(pong);
    await new Promise((resolve) => setTimeout(resolve));
    expect(isAnswered).toBe(false);
  }
  connection.send(pong);
  expect(await third).toBeGreaterThanOrEqual(0);
  await client.close();
});

test("a ping waits for a connection, but not for ever, and fails with a connection that is lost", async () => {
  const { client, connection, pings } = await silent();
  const lost = client.ping();
  await vi.waitUntil(() => pings() === 1);
  connection.close(1006);
  await expect(lost).rejects.toMatchObject({ code: "CONNECTION_LOST" });
  await client.close();
  const transport = new FakeTransport();
  transport.onConnect = () => {};
  const waiting = connect("ws://fake.test/", { transport, requestTimeoutMs: 10 });
  await expect(waiting.ping()).rejects.toMatchObject({ code: "TIMEOUT" });
  await waiting.close();
});
