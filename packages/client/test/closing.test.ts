/** Closing waits for what is on its way, for a bounded time, and rejects what the server has not answered. */

import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { type Client, type ClientOptions, connect } from "../src/index.js";
import { queue } from "../src/queue.js";
import { type FakeConnection, FakeTransport } from "../src/testing.js";

interface Sent {
  t: string;
  n?: number;
  cid?: string;
}

let transport: FakeTransport;

beforeEach(() => {
  vi.useFakeTimers();
  transport = new FakeTransport();
});

afterEach(() => void vi.useRealTimers());

const later = (ms: number) => vi.advanceTimersByTimeAsync(ms);

/** A server that answers `latencyMs` after it was asked; what `isAnswered` leaves out it does not answer. */
function serve(latencyMs: number, isAnswered: (message: Sent) => boolean = () => true): void {
  transport.onConnect = (connection: FakeConnection) => {
    const answer = (message: Sent) => {
      const { t, n, cid } = message;
      if (t === "client_hello") {
        const producer = { id: "x", epoch: "00000001", last: 0 };
        return connection.send({ c: "WSE", t: "server_hello", p: { features: {}, producer } });
      }
      if (!isAnswered(message)) return;
      setTimeout(() => {
        if (n !== undefined) connection.send({ c: "WSE", t: "message_ack", p: { last: n } });
        else if (t === "call_request")
          connection.send({ c: "WSE", t: "call_response", cid, p: { payload: 1 } });
        else if (t === "publish_request")
          connection.send({ c: "WSE", t: "publish_response", cid, p: { topic: "a" } });
      }, latencyMs);
    };
    connection.onMessage = answer as never;
    connection.accept();
    connection.onMessage = answer as never;
  };
}

async function start(options: ClientOptions = {}): Promise<Client> {
  const client = connect("ws://fake.test/", { transport, ...options });
  await later(10);
  expect(client.state).toBe("open");
  return client;
}

/** What became of calls: `done`, or the code of the error. */
const outcomes = (calls: Promise<unknown>[]) =>
  calls.map((call) =>
    call.then(
      () => "done",
      ({ code }: { code: string }) => code,
    ),
  );

test("50 publications, a request and 50 queued messages that are on their way are done when the close is", async () => {
  serve(300);
  const outbox = queue();
  const client = await start({ queue: outbox });
  const all = outcomes([
    ...Array.from({ length: 50 }, (_, index) => client.publish("a", index)),
    client.request("sum", 1),
    ...Array.from({ length: 50 }, (_, index) => outbox.send("a", index)),
  ]);
  let isClosed = false;
  const closed = client.close().then(() => {
    isClosed = true;
  });
  await later(200);
  expect(isClosed).toBe(false);
  await later(500);
  await closed;
  expect(new Set(await Promise.all(all))).toEqual(new Set(["done"]));
  expect(transport.connections[0]!.closed).toEqual({ code: 1000, reason: "" });
});

test("a close waits 5 s and no longer, and what was not answered is rejected", async () => {
  serve(0, ({ t, n }) => n !== 2 && t !== "call_request");
  const outbox = queue();
  const client = await start({ queue: outbox });
  const all = outcomes([
    client.publish("a", 1),
    client.request("sum", 1),
    outbox.send("a", 1),
    outbox.send("a", 2),
  ]);
  let isClosed = false;
  void client.close().then(() => {
    isClosed = true;
  });
  await later(4_990);
  expect(isClosed).toBe(false);
  await later(20);
  expect(isClosed).toBe(true);
  expect(await Promise.all(all)).toEqual(["done", "CONNECTION_LOST", "done", "CLOSED"]);
  expect(outbox.depth, "it stays in the queue").toBe(1);
});

test("without anything on its way a close is immediate, also with subscriptions that wait", async () => {
  serve(0);
  const client = await start();
  client.subscribe("a");
  await later(1);
  const closed = client.close();
  await later(1);
  await closed;
});

test("calls after the close are refused at once", async () => {
  serve(1_000);
  const client = await start();
  const publication = outcomes([client.publish("a", 1)]);
  const closed = client.close();
  await expect(client.publish("a", 2)).rejects.toMatchObject({ code: "CLOSED" });
  expect(() => client.send("a")).toThrow(expect.objectContaining({ code: "CLOSED" }));
  await later(1_100);
  await closed;
  expect(await Promise.all(publication)).toEqual(["done"]);
});

describe("the server at the point where a call is told that it is done", () => {
  /** What a server may do with a message in place of the answer. */
  const ENDS: [string, (connection: FakeConnection, cid: string | undefined) => void][] = [
    [
      "refuses",
      (connection, cid) =>
        connection.send({
          c: "WSE",
          t: "error",
          cid,
          p: { code: "TOPIC_FORBIDDEN", message: "no", recoverable: true },
        }),
    ],
    ["drops the connection for good", (connection) => connection.close(1006)],
    ["restarts", (connection) => connection.close(1012)],
    ["closes for good", (connection) => connection.close(1008, "no")],
    ["says nothing", () => undefined],
  ];
  type Call = (client: Client, outbox: ReturnType<typeof queue>) => Promise<unknown>;
  const CALLS: [string, string, Call, string[]][] = [
    [
      "publish",
      "publish_request",
      (client) => client.publish("a", 1),
      // After a restart it is published again, and the next server does not answer either.
      ["TOPIC_FORBIDDEN", "TIMEOUT", "TIMEOUT", "CLOSED", "TIMEOUT"],
    ],
    [
      "request",
      "call_request",
      (client) => client.request("sum", 1),
      ["TOPIC_FORBIDDEN", "CONNECTION_LOST", "CONNECTION_LOST", "CONNECTION_LOST", "TIMEOUT"],
    ],
    [
      "ping",
      "ping",
      (client) => client.ping(),
      ["TIMEOUT", "CONNECTION_LOST", "CONNECTION_LOST", "CONNECTION_LOST", "TIMEOUT"],
    ],
    [
      "subscribe",
      "subscription_update",
      (client) => client.subscribe("a").ready(),
      ["TOPIC_FORBIDDEN", "TIMEOUT", "TIMEOUT", "CLOSED", "TIMEOUT"],
    ],
    [
      "outbox.send",
      "order",
      (_, outbox) => outbox.send("order", 1),
      // It stays in the queue, and its promise waits with it, until the client is closed.
      ["TOPIC_FORBIDDEN", "CLOSED", "CLOSED", "CLOSED", "CLOSED"],
    ],
    [
      "outbox.publish",
      "publish_request",
      (_, outbox) => outbox.publish("a", 1),
      ["TOPIC_FORBIDDEN", "CLOSED", "CLOSED", "CLOSED", "CLOSED"],
    ],
  ];
  const cases = CALLS.flatMap(([name, type, call, codes]) =>
    ENDS.map(([end, act], index) => [name, end, type, call, act, codes[index]!] as const),
  );

  test.each(cases)("%s: %s, and the caller is told", async (_, _end, type, call, act, code) => {
    let isFirst = true;
    transport.onConnect = (connection) => {
      const answer = ({ t, cid }: Sent) => {
        if (t === "client_hello") {
          const producer = { id: "x", epoch: "00000001", last: 0 };
          connection.send({ c: "WSE", t: "server_hello", p: { features: {}, producer } });
        } else if (t === type && isFirst) {
          isFirst = false;
          act(connection, cid);
        }
      };
      connection.onMessage = answer as never;
      connection.accept();
      connection.onMessage = answer as never;
    };
    const outbox = queue();
    const client = await start({ queue: outbox });
    const [outcome] = outcomes([call(client, outbox)]);
    await later(60_000);
    const closed = client.close();
    await later(20_000);
    await closed;
    expect(await outcome).toBe(code);
  });
});

test("a refusal for the rate that names its requests ends those that are not sent again, at once", async () => {
  let refused = false;
  transport.onConnect = (connection) => {
    const answer = ({ t, cid }: Sent) => {
      if (t === "client_hello") connection.send({ c: "WSE", t: "server_hello", p: { features: {} } });
      else if (t === "publish_request" && refused)
        connection.send({ c: "WSE", t: "publish_response", cid, p: { topic: "a" } });
    };
    connection.onMessage = answer as never;
    connection.accept();
    connection.onMessage = answer as never;
  };
  const client = await start();
  const all = outcomes([client.request("sum", 1), client.publish("a", 1), client.request("other", 1)]);
  await later(1);
  refused = true;
  const [connection] = transport.connections as [FakeConnection];
  const [sum, publish] = (connection.sent as Sent[]).slice(-3);
  const p = { code: "RATE_LIMITED", message: "no", recoverable: true, retry_after: 1, refused: 2 };
  connection.send({ c: "WSE", t: "error", p: { ...p, cids: [sum!.cid, publish!.cid, "unknown", 7] } });
  expect(await all[0]).toBe("RATE_LIMITED");
  await later(2_000);
  expect(await all[1]).toBe("done");
  await later(9_000);
  expect(await all[2]).toBe("TIMEOUT");
  const closed = client.close();
  await later(10);
  await closed;
});

describe("the way to be told of what has no promise", () => {
  test("a queued message that is refused is an event, and those behind it are sent", async () => {
    const outbox = queue();
    serve(0, ({ n }) => n !== 1);
    const client = await start({ queue: outbox });
    const events: string[] = [];
    client.on("refused", ({ message, error }) => events.push(`${message.type} ${error.code}`));
    await outbox.sendLater("bad", 1);
    await later(10);
    const [connection] = transport.connections as [FakeConnection];
    const p = { code: "INVALID_MESSAGE", message: "no", recoverable: true };
    connection.send({ c: "WSE", t: "error", cid: "q-1", p });
    connection.send({ c: "WSE", t: "message_ack", p: { last: 1 } });
    expect(events).toEqual(["bad INVALID_MESSAGE"]);
    const sent = outbox.send("good", 1);
    await later(10);
    await sent;
    expect(outbox.depth).toBe(0);
    await client.close();
  });

  test("a send that the server refuses is an event", async () => {
    serve(0);
    const client = await start();
    const errors: string[] = [];
    client.on("error", ({ code }) => errors.push(code));
    expect(client.send("a", 1)).toBe(true);
    const p = { code: "HANDLER_ERROR", message: "no", recoverable: true };
    transport.connections[0]!.send({ c: "WSE", t: "error", p });
    expect(errors).toEqual(["HANDLER_ERROR"]);
    await client.close();
  });
});
