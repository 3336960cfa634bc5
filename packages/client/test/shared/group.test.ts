/** Who leads, and how the lead passes on. */

import { afterEach, expect, test } from "vitest";
import { compress } from "../../src/compress.js";
import { makeProducer } from "../../src/core/producer.js";
import type { QueueHost, QueuePort } from "../../src/core/queue-port.js";
import { encrypt } from "../../src/encrypt.js";
import { connect, debug } from "../../src/index.js";
import { msgpack } from "../../src/msgpack.js";
import { sharedIn } from "../../src/shared.js";
import { sign } from "../../src/sign.js";
import { type FakeConnection, FakeTransport } from "../../src/testing.js";
import { type Engine, startEngine } from "../node/engine.js";
import { type Tab, until, World } from "./world.js";

let world = new World();
const engines: Engine[] = [];

afterEach(async () => {
  for (const tab of world.tabs) tab.thaw();
  await Promise.all([...world.tabs].flatMap(({ clients }) => clients).map((one) => one.close()));
  await Promise.all(engines.splice(0).map((one) => one.stop()));
  world = new World();
});

const URL = "ws://test.example/ws";

/** Tabs, the first of which leads. */
async function tabs(transport: FakeTransport, ...all: Tab[]): Promise<Tab[]> {
  for (const tab of all) await tab.connect(URL, { transport }).connected();
  return all;
}

const isOpen = ({ clients }: Tab) => clients.every(({ state }) => state === "open");
const leads = ({ sockets }: Tab) => sockets.size > 0;

test("a tab that is hidden for long gives the connection to a visible one, and once", async () => {
  const realm = { hiddenMsMax: 30 };
  const all = await tabs(
    new FakeTransport(),
    world.tab(true, realm),
    world.tab(false, realm),
    world.tab(true, realm),
  );
  const [a, b, c] = all as [Tab, Tab, Tab];
  expect(all.map(leads)).toEqual([true, false, false]);
  a.show(false);
  await until(() => leads(c) && all.every(isOpen), "the visible one leads");
  expect(all.map(leads)).toEqual([false, false, true]);
  // Without a visible tab it stays where it is.
  c.show(false);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(all.map(leads)).toEqual([false, false, true]);
  b.show(true);
  await until(() => leads(b) && all.every(isOpen), "the one that is shown leads");
  expect(all.map(({ clients }) => debug(clients[0]!).state)).toEqual(["open", "open", "open"]);
});

test("tabs take the lead from one that does not answer", async () => {
  const realm = { joinMsMax: 50 };
  const [a, b] = await tabs(new FakeTransport(), world.tab(true, realm), world.tab(true, realm));
  a!.freeze();
  b!.clients[0]!.reconnect();
  await until(() => leads(b!) && isOpen(b!), "the other one leads");
  const c = world.tab(true, realm);
  await c.connect(URL, { transport: new FakeTransport() }).connected();
  expect(leads(c)).toBe(false);
  a!.thaw();
  await until(() => isOpen(a!) && !leads(a!), "the first one follows when it is back");
  expect([a!, b!, c].map(leads)).toEqual([false, true, false]);
});

test("visible tabs take the lead from one whose page hangs, and nothing is lost or doubled", async () => {
  const engine = await startEngine(
    "--no-auth",
    "--topics-open",
    "--history",
    "kept.>=1000",
    "--log-level",
    "error",
  );
  engines.push(engine);
  const url = `ws://${engine.address}/ws`;
  const realm = { silentMsMax: 100 };
  const all = [world.tab(true, realm), world.tab(true, realm), world.tab(false, realm)];
  const got = all.map(() => [] as unknown[]);
  for (const [index, tab] of all.entries()) {
    const subscription = await tab.connect(url).subscribe("kept.a").ready();
    subscription.on("message", ({ payload }) => got[index]!.push(payload));
  }
  expect(all.map(leads)).toEqual([true, false, false]);
  const writer = connect(url);
  let published = 0;
  const publish = async (count: number) => {
    for (let n = 0; n < count; n++) await writer.publish("kept.a", published++);
  };
  const numbers = () => Array.from({ length: published }, (_, n) => n);
  await publish(10);
  all[0]!.freeze();
  await publish(10);
  await until(() => got[1]!.length === 20 && got[2]!.length === 20, "the others go on");
  expect(leads(all[1]!) || leads(all[2]!)).toBe(true);
  await publish(10);
  all[0]!.thaw();
  await until(() => got.every(({ length }) => length === 30), "the first one is back");
  expect(got).toEqual([numbers(), numbers(), numbers()]);
  await until(() => all.every(isOpen) && all.filter(leads).length === 1, "one of them leads");
  await writer.close();
});

test("a tab whose own page stood still does not take the lead from one that is there", async () => {
  const realm = { silentMsMax: 60 };
  const [a, b] = await tabs(new FakeTransport(), world.tab(true, realm), world.tab(true, realm));
  const disconnected: unknown[] = [];
  for (const tab of [a!, b!]) tab.clients[0]!.on("disconnected", ({ reason }) => disconnected.push(reason));
  // Both stand still: this is one process.
  const endMs = performance.now() + 400;
  while (performance.now() < endMs);
  await new Promise((resolve) => setTimeout(resolve, 400));
  expect([[a!, b!].map(leads), disconnected]).toEqual([[true, false], []]);
});

test("a tab that does not read is dropped, and comes back", async () => {
  const transport = new FakeTransport();
  const [, b] = await tabs(transport, world.tab(), world.tab());
  const disconnected: unknown[] = [];
  b!.clients[0]!.on("disconnected", ({ code }) => disconnected.push(code));
  b!.freeze();
  const text = "x".repeat(1024 * 1024);
  for (let count = 0; count < 20; count++) transport.connections[0]!.send({ t: "news", p: text });
  await new Promise((resolve) => setTimeout(resolve, 50));
  b!.thaw();
  await until(() => disconnected.length === 1 && isOpen(b!), "it is back");
  expect(disconnected).toEqual([4310]);
  expect(transport.connections).toHaveLength(1);
});

test("a tab is told to wait while the network is busy", async () => {
  const transport = new FakeTransport();
  let isFull = true;
  const open = transport.open.bind(transport);
  let drained = () => {};
  transport.open = (options, handler) => {
    const socket = open(options, handler);
    drained = handler.onDrain;
    return {
      ...socket,
      get bufferedBytes() {
        return isFull ? 2 ** 21 : 0;
      },
    } as typeof socket;
  };
  const tab = world.tab();
  const client = await tab.connect(URL, { transport, outboxBytesMax: 500_000 }).connected();
  const payload = "x".repeat(100_000);
  await client.ready();
  let sent = 0;
  while (client.send("news", payload) && sent < 100) sent++;
  expect(sent).toBeLessThan(10);
  await until(() => transport.connections[0]!.sent.length >= sent, "what was sent has left");
  let isReady = false;
  void client.ready().then(() => {
    isReady = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(isReady).toBe(false);
  isFull = false;
  drained();
  await until(() => isReady, "there is room again");
});

/** A queue with one message that belongs to one tab at a time. */
function fakeQueue(messages: string[]): QueuePort & { own(): void; last: number[] } {
  let host: QueueHost | undefined;
  const queue = {
    producerId: undefined as string | undefined,
    last: [] as number[],
    producer: makeProducer,
    window: 10,
    depth: 0,
    async open(given: QueueHost) {
      host = given;
    },
    own() {
      queue.producerId = "p";
      host?.wake();
    },
    async add() {
      return { acknowledged: Promise.resolve() };
    },
    async resume(producer: { last: number } | undefined) {
      if (producer) queue.last.push(producer.last);
    },
    async take(count: number) {
      return messages.splice(0, count).map((type, index) => ({
        n: (queue.last.at(-1) ?? 0) + index + 1,
        type,
        payload: "1",
        priority: 5 as const,
      }));
    },
    acknowledge() {},
    refused() {},
    rewind: () => true,
    async close() {},
  };
  return queue;
}

test("numbered messages of the tab that owns the queue", async () => {
  const transport = new FakeTransport();
  let last = 0;
  transport.onConnect = (connection: FakeConnection) => {
    let producer: object | undefined;
    connection.onMessage = ((message: { t: string; n?: number; p: { producer?: { id: string } } }) => {
      if (message.n === undefined) return;
      last = Math.max(last, message.n);
      connection.send({ c: "WSE", t: "message_ack", p: { last } });
    }) as never;
    const answer = connection.onMessage;
    connection.accept();
    const accepted = connection.onMessage as unknown as (message: {
      t: string;
      p: { producer?: { id: string } };
    }) => void;
    connection.onMessage = ((message: { t: string; p: { producer?: { id: string } } }) => {
      if (message.t !== "client_hello") return accepted(message);
      const { id } = message.p.producer ?? {};
      if (id) producer = { id, epoch: "0badcafe", last };
      connection.onMessage = answer;
      connection.send({ c: "WSE", t: "server_hello", p: { features: {}, producer } });
    }) as never;
  };
  const [first, second] = [fakeQueue([]), fakeQueue(["one", "two"])];
  const [a, b] = [world.tab(), world.tab()];
  await a.connect(URL, { transport, queue: first }).connected();
  await b.connect(URL, { transport, queue: second }).connected();
  second.own();
  await until(() => last === 2, "the messages are acknowledged");
  expect(second.last).toEqual([0]);
  expect(first.last).toEqual([]);
  const numbered = transport.connections.flatMap(({ sent }) => sent as { t: string; n?: number }[]);
  expect(numbered.filter(({ n }) => n !== undefined).map(({ t, n }) => [t, n])).toEqual([
    ["one", 1],
    ["two", 2],
  ]);
  // The next owner goes on where the server is.
  await b.clients[0]!.close();
  first.own();
  await until(() => first.last.length === 1, "the other tab owns the queue");
  expect(first.last).toEqual([2]);
});

test("without locks each client has its own connection, and tells", async () => {
  const transport = new FakeTransport();
  const degraded: unknown[] = [];
  const client = connect(URL, {
    transport,
    shared: sharedIn(undefined),
    on: { degraded: (event) => degraded.push(event) },
  });
  await client.connected();
  expect(degraded).toEqual([{ what: "shared", reason: expect.stringContaining("Web Locks") }]);
  await client.close();
});

const SECRET = "0123456789abcdef0123456789abcdef";

test.each([
  ["MessagePack", { format: msgpack() }, []],
  ["compression", { compression: compress() }, []],
  ["encryption", { encryption: encrypt() }, ["--encryption", "required"]],
  [
    "all",
    { format: msgpack(), compression: compress(), encryption: encrypt() },
    ["--encryption", "required"],
  ],
])("layers of the shared connection: %s", async (_, options, flags) => {
  const flagsOpen = ["--no-auth", "--topics-open", "--history", "kept.>=1000", "--log-level", "error"];
  const engine = await startEngine(...flagsOpen, ...flags);
  engines.push(engine);
  const url = `ws://${engine.address}/ws`;
  const clients = [world.tab(), world.tab()].map((tab) => tab.connect(url, options));
  const pad = "x".repeat(3_000);
  const got = clients.map((client) => {
    const messages: unknown[] = [];
    client
      .subscribe<{ n: number; pad: string }>("kept.a")
      .on("message", ({ payload }) => messages.push(payload));
    return messages;
  });
  await Promise.all(clients.map((client) => client.subscribe("kept.a").ready()));
  for (let n = 0; n < 10; n++) await clients[n % 2]!.publish("kept.a", { n, pad });
  await until(() => got.every(({ length }) => length === 10), "both have all");
  for (const messages of got) {
    expect(messages).toEqual(Array.from({ length: 10 }, (_, n) => ({ n, pad })));
  }
  expect([...world.tabs].map(leads).toSorted()).toEqual([false, true]);
});

test("signed messages of all tabs are accepted", async () => {
  const { writeFile, mkdtemp, rm } = await import("node:fs/promises");
  const { tmpdir } = await import("node:os");
  const dir = await mkdtemp(`${tmpdir()}/tidewire-`);
  await writeFile(`${dir}/secret`, SECRET);
  const engine = await startEngine(
    ...["--no-auth", "--topics-open", "--log-level", "error", "--require-signatures"],
    ...["--signature-secret-file", `${dir}/secret`],
  );
  engines.push(engine);
  await rm(dir, { recursive: true });
  const options = { signing: sign({ secret: SECRET }) };
  const clients = [world.tab(), world.tab()].map((tab) => tab.connect(`ws://${engine.address}/ws`, options));
  await Promise.all(clients.map((client) => client.publish("x", 1)));
  expect([...world.tabs].map(leads).toSorted()).toEqual([false, true]);
});
