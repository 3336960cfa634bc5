/** A queue whose messages the server refuses, or would refuse: whoever wrote them, they block nobody. */

import { expect, test, vi } from "vitest";
import { connect } from "../src/index.js";
import { MemoryStorage } from "../src/queue/memory.js";
import { Queue } from "../src/queue/queue.js";
import { waitingOrder } from "../src/queue/storage.js";
import { FakeTransport } from "../src/testing.js";

interface Sent {
  t: string;
  n?: number;
  cid?: string;
  p: { producer?: object; topic?: string; payload?: unknown };
}

/** A server that accepts numbers in order; `judge` says why it refuses a message, and whether that takes its number. */
function serve(
  judge: (message: Sent) => { code: string; isNumbered: boolean } | undefined = () => undefined,
) {
  const transport = new FakeTransport();
  const accepted: unknown[] = [];
  let last = 0;
  transport.onConnect = (connection) => {
    const answer = (message: Sent) => {
      const { t, n, cid, p } = message;
      if (t === "client_hello") {
        const producer = { id: "x", epoch: "00000001", last };
        return connection.send({ c: "WSE", t: "server_hello", p: { features: {}, producer } });
      }
      if (n === undefined) return;
      const error = (code: string) =>
        connection.send({ c: "WSE", t: "error", cid, p: { code, message: "no", recoverable: true } });
      const refusal = n === last + 1 ? judge(message) : undefined;
      if (refusal) {
        error(refusal.code);
        if (refusal.isNumbered) last = n;
      } else if (n === last + 1) {
        last = n;
        accepted.push(t === "publish_request" ? [p.topic, p.payload] : [t, p]);
      } else if (n > last) error("MESSAGE_GAP");
      connection.send({ c: "WSE", t: "message_ack", p: { last } });
    };
    connection.onMessage = answer as never;
    connection.accept();
    connection.onMessage = answer as never;
  };
  return { transport, accepted };
}

function start(transport: FakeTransport, storage = new MemoryStorage()) {
  const outbox = new Queue({}, () => ({ storage }));
  const refused: string[] = [];
  const client = connect("ws://fake.test/", {
    transport,
    queue: outbox,
    reconnect: { baseMs: 1 },
    on: { refused: ({ message, error }) => refused.push(`${message.type} ${error.code}`) },
  });
  return { client, outbox, refused };
}

test("entries that another program has left in the file leave it by an event, and the others are sent", async () => {
  const storage = new MemoryStorage();
  await storage.open("x");
  const deep = `${"[".repeat(64)}${"]".repeat(64)}`;
  const entries: [string, string, string?][] = [
    ["ping", "1"],
    ["pong", "1"],
    ["client_hello", "{}"],
    ["batch", '{"messages":[]}'],
    ["", "1"],
    ["\ud83d", "1"],
    ["error", "1"],
    ["message_ack", "1"],
    ["half", '{"text":"hello \\ud83d"}'],
    ["deep", deep],
    ["deep_publication", deep.slice(1, -1), "a"],
    ["broken", `{"text":"\\ud83d"`],
    ["good", '{"text":"\\ud83d\\ude00"}'],
    ["good", '{"n":1.10}', "a"],
  ];
  const rows = entries.map(([type, payload, topic]) => {
    const entry = { type, payload, priority: 5 as const, ...(topic !== undefined && { topic }) };
    return { ...entry, state: 0, order: waitingOrder(entry), bytes: payload.length };
  });
  await storage.add(rows, { messagesMax: 100, bytesMax: 1e6 });
  const { transport, accepted } = serve();
  const { client, outbox, refused } = start(transport, storage);
  await outbox.send("last", 1);
  expect(accepted).toEqual([
    ["good", { text: "😀" }],
    ["a", { n: 1.1 }],
    ["last", 1],
  ]);
  expect(refused).toEqual(entries.slice(0, 12).map(([type]) => `${type} INVALID_ARGUMENT`));
  // What a reader with better numbers can keep is kept.
  const texts = JSON.stringify(transport.connections[0]!.sent);
  expect(texts).toContain("good");
  await vi.waitUntil(() => outbox.depth === 0);
  await client.close();
});

test.each([true, false])(
  "a refusal by the server ends one message; with its number: %s",
  async (isNumbered) => {
    const { transport, accepted } = serve(({ t }) =>
      t === "bad" ? { code: "INVALID_MESSAGE", isNumbered } : undefined,
    );
    const { client, outbox, refused } = start(transport);
    const all = ["a", "bad", "b", "bad", "c"].map((type) => outbox.send(type, 1));
    const codes = await Promise.all(
      all.map((one) =>
        one.then(
          () => "done",
          ({ code }: { code: string }) => code,
        ),
      ),
    );
    expect(codes).toEqual(["done", "INVALID_MESSAGE", "done", "INVALID_MESSAGE", "done"]);
    expect(accepted).toEqual([
      ["a", 1],
      ["b", 1],
      ["c", 1],
    ]);
    expect(refused).toEqual(["bad INVALID_MESSAGE", "bad INVALID_MESSAGE"]);
    await vi.waitUntil(() => outbox.depth === 0);
    expect(transport.connections.length > 1).toBe(!isNumbered);
    await client.close();
  },
);

test("what the server has no room for is sent again, and done when it is accepted", async () => {
  let refusals = 0;
  const { transport, accepted } = serve(({ t }) =>
    t === "busy" && refusals++ < 2 ? { code: "QUEUE_FULL", isNumbered: false } : undefined,
  );
  const { client, outbox, refused } = start(transport);
  await outbox.send("busy", 1);
  expect([accepted, refusals, refused]).toEqual([[["busy", 1]], 3, []]);
  await client.close();
});

test("a refusal for the moment that took the number is an error of the call", async () => {
  const { transport, accepted } = serve(() => ({ code: "BACKEND_UNAVAILABLE", isNumbered: true }));
  const { client, outbox, refused } = start(transport);
  await expect(outbox.publish("a", 1)).rejects.toMatchObject({ code: "BACKEND_UNAVAILABLE" });
  expect([accepted, refused]).toEqual([[], ["message BACKEND_UNAVAILABLE"]]);
  await client.close();
});

test.each(["RATE_LIMITED", "MESSAGE_GAP"])(
  "%s with the number of a message is no end of it",
  async (code) => {
    let refusals = 0;
    const { transport, accepted } = serve(() => (refusals++ < 1 ? { code, isNumbered: false } : undefined));
    const { client, outbox, refused } = start(transport);
    await outbox.send("a", 1);
    expect([accepted, refused]).toEqual([[["a", 1]], []]);
    await client.close();
  },
);
