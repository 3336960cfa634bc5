/** A client on a poor network asks for less: at the start, and when an open connection becomes poor. */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type ClientOptions, connect, type SubscribeOptions } from "../src/index.js";
import { quality } from "../src/quality.js";
import { FakeTransport } from "../src/testing.js";

interface Sent {
  t: string;
  cid: string;
  p: { action: string; topics: string[]; overload?: string; timestamp: number };
}

/** What the browser says of the network. */
let network: { saveData?: boolean; effectiveType?: string };

beforeEach(() => {
  vi.useFakeTimers();
  network = { effectiveType: "4g" };
  vi.stubGlobal("navigator", { connection: network });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

const later = (ms: number) => vi.advanceTimersByTimeAsync(ms);

/** A client with a server that answers, pings after `pongMs`. */
async function start(options: ClientOptions = {}, pongMs = 0) {
  const transport = new FakeTransport();
  transport.onConnect = (connection) => {
    connection.onMessage = (({ t, cid, p }: Sent) => {
      if (t === "subscription_update") {
        const done = { action: p.action, success_topics: p.topics, failed_topics: [], recovery: {} };
        connection.send({ c: "WSE", t, cid, p: done });
      } else if (t === "ping") {
        const pong = { client_timestamp: p.timestamp, server_timestamp: p.timestamp };
        setTimeout(() => connection.send({ c: "WSE", t: "PONG", p: pong }), pongMs);
      }
    }) as never;
    connection.accept({ limits: { rate_limit_capacity: 100, rate_limit_refill: 100 } });
  };
  const client = connect("ws://fake.test/", { transport, pingIntervalMs: 1_000, ...options });
  await later(0);
  const sent = (t: string) =>
    (transport.connections.flatMap((one) => one.sent) as Sent[]).filter((message) => message.t === t);
  /** Pings in a time. */
  const pings = async (ms: number) => {
    const before = sent("ping").length;
    await later(ms);
    return sent("ping").length - before;
  };
  /** What the request for a topic says of slow readers. */
  const overloadOf = async (topic: string, recover: boolean, own: SubscribeOptions = {}) => {
    client.subscribe(topic, { recover, ...own });
    await later(0);
    return sent("subscription_update").find(({ p }) => p.topics.includes(topic))!.p.overload;
  };
  return { client, pings, overloadOf };
}

describe.each([
  ["saveData", { saveData: true }],
  ["a slow network", { effectiveType: "slow-2g" }],
])("%s", (_, poor) => {
  test("halves pings and rate, and asks for conflation where nothing is recovered", async () => {
    Object.assign(network, poor);
    const { client, pings, overloadOf } = await start();
    expect(await pings(10_000)).toBe(5);
    expect(await overloadOf("a", false)).toBe("conflate");
    expect(await overloadOf("b", true)).toBeUndefined();
    expect(await overloadOf("c", false, { overload: "drop_oldest" })).toBe("drop_oldest");
    await client.close();
  });

  test("changes nothing with adapt: false", async () => {
    Object.assign(network, poor);
    const { client, pings, overloadOf } = await start({ adapt: false });
    expect(await pings(10_000)).toBe(10);
    expect(await overloadOf("a", false)).toBeUndefined();
    await client.close();
  });

  test("is noticed on an open connection, and its end as well", async () => {
    const { client, pings, overloadOf } = await start();
    expect(await pings(5_000)).toBe(5);
    expect(await overloadOf("before", false)).toBeUndefined();
    Object.assign(network, poor);
    // One is on its way as it was planned.
    expect(await pings(11_000)).toBe(6);
    expect(await overloadOf("while", false)).toBe("conflate");
    Object.assign(network, { saveData: false, effectiveType: "4g" });
    await pings(2_000);
    expect(await pings(5_000)).toBe(5);
    expect(await overloadOf("after", false)).toBeUndefined();
    await client.close();
  });
});

test.each([
  ["good", {}, 90],
  ["poor", { saveData: true }, 45],
])("on a %s network the client stays below the server's rate", async (_, state, burst) => {
  Object.assign(network, state);
  const { client } = await start();
  let sent = 0;
  while (client.waitingBytes === 0) {
    client.send("tick");
    sent += 1;
  }
  expect(sent - 1).toBe(burst);
  const closed = client.close();
  await later(10_000);
  await closed;
});

test("answers that come late make an open connection poor, as `quality` sees it", async () => {
  const { client, pings, overloadOf } = await start({ quality: quality() }, 11_000);
  expect(await pings(5_000)).toBe(5);
  await later(30_000);
  expect(await pings(10_000)).toBe(5);
  expect(await overloadOf("a", false)).toBe("conflate");
  await client.close();
});
