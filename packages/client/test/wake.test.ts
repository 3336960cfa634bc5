/** When a page that is focused, shown or online again connects: not before the server wants it, and not in a storm. */

import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type ClientOptions, connect } from "../src/index.js";
import { type FakeConnection, FakeTransport } from "../src/testing.js";

let transport: FakeTransport;

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("window", new EventTarget());
  vi.stubGlobal("document", Object.assign(new EventTarget(), { visibilityState: "visible" }));
  vi.spyOn(Math, "random").mockReturnValue(0.5);
  transport = new FakeTransport();
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

const later = (ms: number) => vi.advanceTimersByTimeAsync(ms);

/** What a browser tells a page that its user looks at again. */
function lookAgain(): void {
  window.dispatchEvent(new Event("focus"));
  window.dispatchEvent(new Event("online"));
  document.dispatchEvent(new Event("visibilitychange"));
}

async function start(options: ClientOptions = {}) {
  const client = connect("ws://fake.test/", { transport, ...options });
  await later(0);
  return client;
}

const last = () => transport.connections.at(-1)!;

/** A server that is not there. */
const refuse = (connection: FakeConnection) => connection.close(1006);

const ASKED: [string, () => void][] = [
  ["Retry-After", () => last().close(1006, "503", { status: 503, retryAfterMs: 60_000 })],
  [
    "retry_after",
    () => {
      last().accept();
      const p = { code: "RATE_LIMITED", message: "too many", recoverable: false, retry_after: 60 };
      last().send({ c: "WSE", t: "error", p });
      last().close(4429);
    },
  ],
  [
    "reconnect",
    () => {
      last().accept();
      last().send({ c: "WSE", t: "reconnect", p: { after_ms: 60_000 } });
      last().close(4300);
    },
  ],
];

test.each(ASKED)("a wait that the server has asked for by %s is not shortened", async (_, ask) => {
  transport.onConnect = () => {};
  const client = await start({ reconnect: { baseMs: 1_000 } });
  ask();
  for (let second = 0; second < 60; second++) {
    lookAgain();
    await later(999);
    expect(transport.connections.length, `after ${second} s`).toBe(1);
    await later(1);
  }
  // What was random of the wait is over, too.
  await later(1_000);
  expect(transport.connections).toHaveLength(2);
  await client.close();
});

test("a wait of the client's own ends when the page is looked at again", async () => {
  transport.onConnect = refuse;
  const client = await start({ reconnect: { baseMs: 3_600_000, maxMs: 3_600_000 } });
  await later(10_000);
  expect([transport.connections.length, client.state]).toEqual([1, "waiting"]);
  transport.onConnect = (connection) => connection.accept();
  lookAgain();
  await later(0);
  expect([transport.connections.length, client.state]).toEqual([2, "open"]);
  await client.close();
});

test("switching between windows does not make a storm on a server that is not there", async () => {
  transport.onConnect = refuse;
  const client = await start({ reconnect: { baseMs: 3_600_000, maxMs: 3_600_000 } });
  for (let step = 0; step < 599; step++) {
    lookAgain();
    await later(100);
  }
  // One at the start, one at once, and one for each further 5 s of this minute.
  expect(transport.connections).toHaveLength(13);
  // The wakes have not put the next attempt aside for ever.
  lookAgain();
  await later(5_000);
  expect(transport.connections).toHaveLength(14);
  await client.close();
});

test("a server that accepts and closes at once is not stormed either", async () => {
  transport.onConnect = (connection) => {
    connection.accept();
    setTimeout(() => connection.close(4500), 10);
  };
  const client = await start({ reconnect: { baseMs: 3_600_000, maxMs: 3_600_000 } });
  for (let step = 0; step < 200; step++) {
    await later(100);
    lookAgain();
  }
  expect(transport.connections.length).toBeLessThanOrEqual(6);
  await client.close();
});

test("a page that was connected returns as often as its user likes", async () => {
  const client = await start();
  for (let turn = 1; turn <= 4; turn++) {
    document.dispatchEvent(new Event("freeze"));
    await later(100);
    expect(client.state).toBe("waiting");
    document.dispatchEvent(new Event("resume"));
    await later(0);
    expect([transport.connections.length, client.state]).toEqual([turn + 1, "open"]);
  }
  await client.close();
});

test("a page that was frozen while the server wanted it to wait waits on its return", async () => {
  const client = await start();
  last().send({ c: "WSE", t: "reconnect", p: { after_ms: 60_000 } });
  document.dispatchEvent(new Event("freeze"));
  await later(1_000);
  document.dispatchEvent(new Event("resume"));
  await later(58_000);
  expect(transport.connections).toHaveLength(1);
  await later(2_000);
  expect([transport.connections.length, client.state]).toEqual([2, "open"]);
  await client.close();
});

test("the application itself may connect at any time", async () => {
  transport.onConnect = () => {};
  const client = await start();
  last().close(1006, "503", { status: 503, retryAfterMs: 60_000 });
  await later(10);
  client.reconnect();
  await later(0);
  expect(transport.connections).toHaveLength(2);
  await client.close();
});
