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
