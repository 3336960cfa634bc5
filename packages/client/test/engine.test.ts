/** The client against the real engine, over real sockets. */

import { afterEach, describe, expect, test } from "vitest";
import { compress } from "../src/compress.js";
import { encrypt } from "../src/encrypt.js";
import { endpoints } from "../src/endpoints.js";
import {
  acknowledge,
  type Client,
  type ClientOptions,
  connect,
  debug,
  type Gap,
  history,
  type Message,
  open,
  presence,
  type SubscribeOptions,
  TidewireError,
  type Transport,
} from "../src/index.js";
import { msgpack } from "../src/msgpack.js";
import { type NodeSocket, nodeTransport } from "../src/node.js";
import { SECRET, token } from "./jwt.js";
import { type Engine, startEngine } from "./node/engine.js";

const QUICK: ClientOptions = { reconnect: { baseMs: 20, maxMs: 100 } };
const OPEN = ["--no-auth", "--topics-open", "--history", "kept.>=1000", "--log-level", "error"];

const engines: Engine[] = [];
const clients: Client[] = [];

async function engine(...options: string[]): Promise<Engine> {
  const started = await startEngine(...(options.length ? options : OPEN));
  engines.push(started);
  return started;
}

function client({ address }: Engine, options: ClientOptions = {}): Client {
  const made = connect(`ws://${address}/ws`, { ...QUICK, ...options });
  clients.push(made);
  return made;
}

afterEach(async () => {
  await Promise.all(clients.splice(0).map((one) => one.close()));
  await Promise.all(engines.splice(0).map((one) => one.stop()));
});

async function until(condition: () => boolean, what: string): Promise<void> {
  const deadline = performance.now() + 20_000;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

/** Takes messages of a subscription until there are `count`. */
async function take(messages: AsyncIterable<Message>, count: number): Promise<Message[]> {
  const taken: Message[] = [];
  if (count === 0) return taken;
  for await (const message of messages) {
    taken.push(message);
    if (taken.length === count) break;
  }
  return taken;
}

const LAYERS: [string, ClientOptions, string[]][] = [
  ["JSON", {}, []],
  ["MessagePack", { format: msgpack() }, []],
  ["compression", { compression: compress() }, []],
  ["encryption", { encryption: encrypt() }, ["--encryption", "required"]],
  [
    "all of them",
    { format: msgpack(), compression: compress(), encryption: encrypt() },
    ["--encryption", "optional"],
  ],
];

describe.each(LAYERS)("%s", (_, options, flags) => {
  test("publications, answers and echoes in order", async () => {
    const server = await engine(...OPEN, ...flags);
    const one = client(server, options);
    const subscription = await one.subscribe<{ n: number; pad: string }>("kept.*").ready();
    const loop = take(subscription, 200);
    const pad = "x".repeat(3_000);
    const published = await Promise.all(
      Array.from({ length: 200 }, (_, n) => one.publish("kept.a", { n, pad }, { type: "tick" })),
    );
    expect(published.map(({ position }) => position?.offset)).toEqual(
      Array.from({ length: 200 }, (_, n) => n + 1),
    );
    const messages = await loop;
    expect(messages.map(({ payload }) => (payload as { n: number }).n)).toEqual(
      Array.from({ length: 200 }, (_, n) => n),
    );
    expect(messages[0]).toMatchObject({ type: "tick", topic: "kept.a", payload: { n: 0, pad } });
    const echoes: unknown[] = [];
    one.on("message", ({ payload }) => echoes.push(payload));
    for (let n = 0; n < 50; n++) one.send("echo", { n, pad });
    await until(() => echoes.length === 50, "echoes");
    expect(echoes).toEqual(Array.from({ length: 50 }, (_, n) => ({ n, pad })));
    await expect(one.request("quote", 1)).rejects.toMatchObject({ code: "NOT_FOUND", fault: "client" });
    expect(await one.ping()).toBeGreaterThan(0);
  });
});

test("what was missed while the connection was lost comes once and in order", async () => {
  const server = await engine();
  const [reader, writer] = [client(server), client(server)];
  const subscription = await reader.subscribe<number>("kept.a", { recover: true }).ready();
  const seen: number[] = [];
  subscription.on("message", ({ payload }) => seen.push(payload));
  for (let n = 0; n < 100; n++) {
    // Publications are on their way while the connection is replaced, again and again.
    if (n % 10 === 5) reader.reconnect();
    await writer.publish("kept.a", n);
  }
  await until(() => seen.length >= 100, "all publications");
  expect(seen).toEqual(Array.from({ length: 100 }, (_, n) => n));
});

test("what a pattern missed is a gap of each topic with history, and nothing is recovered", async () => {
  const server = await engine();
  const [reader, writer] = [client(server, { reorderWindowMs: 20 }), client(server)];
  const subscription = await reader.subscribe<number>("kept.*").ready();
  const told: unknown[] = [];
  subscription.on("message", ({ payload }) => told.push(payload));
  subscription.on("gap", ({ topic, count, range }) => told.push([topic, count, range?.from, range?.to]));
  subscription.on("unrecovered", (event) => told.push(event));
  await writer.publish("kept.a", 1);
  await until(() => told.length === 1, "the first");
  reader.driver.away("the test freezes the page");
  for (const n of [2, 3, 4]) await writer.publish("kept.a", n);
  reader.driver.wake();
  await until(() => reader.state === "open", "the page is back");
  await writer.publish("kept.a", 5);
  await until(() => told.length === 3, "the gap and the last");
  expect(told).toEqual([1, ["kept.a", 3, 2, 4], 5]);
});

test("a server that is killed and started again has another epoch, which is reported", async () => {
  const server = await engine();
  const port = server.address.split(":")[1]!;
  const one = client(server);
  const subscription = await one.subscribe("kept.a").ready();
  const unrecovered: unknown[] = [];
  subscription.on("unrecovered", (event) => unrecovered.push(event));
  await one.publish("kept.a", 1);
  await until(() => debug(one)["subscriptions"] === 1, "subscribed");
  await server.stop("SIGKILL");
  await until(() => ["waiting", "connecting"].includes(one.state), "the loss");
  const request = one.request("late", 1).catch((error: TidewireError) => error.code);
  const publication = one.publish("kept.a", 2);
  const again = await startEngine(...OPEN, "--listen", `127.0.0.1:${port}`);
  engines.push(again);
  expect((await publication).position?.offset).toBe(1);
  expect(await request).toBe("NOT_FOUND");
  await until(() => unrecovered.length === 1, "the other epoch");
  expect(one.state).toBe("open");
});

test("a server that drains sends its clients away, and they come back", async () => {
  const server = await engine();
  const other = await engine();
  const urls = [`ws://${server.address}/ws`, `ws://${other.address}/ws`];
  const servers = endpoints(urls, { choice: "round_robin" });
  const one = connect(servers, QUICK);
  clients.push(one);
  await one.ready();
  const codes: number[] = [];
  one.on("disconnected", ({ code }) => codes.push(code));
  void server.stop("SIGTERM");
  await until(() => one.state === "open" && codes.length > 0, "the other server");
  expect(codes[0]).toBe(4300);
  expect(debug(one)["url"]).toContain(other.address);
});

describe("tokens", () => {
  const AUTH = ["--jwt-secret", SECRET, "--topics-open", "--log-level", "error"];

  test("travel in the header, a subprotocol and the query", async () => {
    const server = await engine(
      ...[...AUTH, "--token-subprotocol-prefix", "token.", "--token-query-parameter", "token"],
    );
    for (const tokenPlacement of ["header", { subprotocol: "token." }, { query: "token" }] as const) {
      const users: unknown[] = [];
      const one = await open(`ws://${server.address}/ws`, {
        token: token({ sub: "ada" }),
        tokenPlacement,
        on: { connected: ({ user }) => users.push(user) },
      });
      clients.push(one);
      expect(users).toEqual(["ada"]);
    }
  });

  test("that are wrong end the client, or are asked for anew", async () => {
    const server = await engine(...AUTH);
    const url = `ws://${server.address}/ws`;
    for (const [wrong, reason] of [
      ["a.b.c", "the token is malformed"],
      [token({ sub: "ada", expiresInS: -60 }), "the token has expired"],
      [`${token({ sub: "ada" }).slice(0, -4)}AAAA`, "the token's signature is wrong"],
      [undefined, "a token is needed"],
    ]) {
      await expect(open(url, wrong ? { token: wrong } : {})).rejects.toMatchObject({
        code: "AUTH_FAILED",
        fault: "application",
        message: `${url}: the server refused the connection: 401 Unauthorized: ${reason}`,
      });
    }
    let asked = 0;
    const one = client(server, { token: () => (++asked < 3 ? "a.b.c" : token({ sub: "ada" })) });
    await one.connected();
    expect(asked).toBe(3);
  });

  test("that are refused in band say so to a client that sees no status", async () => {
    const server = await engine(...AUTH, "--auth-failure-after-upgrade");
    const failed = open(`ws://${server.address}/ws`, { token: "a.b.c" });
    await expect(failed).rejects.toMatchObject({ code: "AUTH_FAILED", closeCode: 4401 });
  });

  test("are refreshed in the session before they expire", async () => {
    const server = await engine(...AUTH, "--token-grace-s", "1", "--token-warning-s", "60");
    let asked = 0;
    const one = client(server, {
      token: async () => token({ sub: "ada", expiresInS: ++asked === 1 ? 4 : 3600 }),
    });
    await one.connected();
    const ends: unknown[] = [];
    one.on("disconnected", (event) => ends.push(event));
    await until(() => asked === 2, "the warning");
    // The first token and its grace end after 5 s.
    const end = performance.now() + 6_000;
    while (performance.now() < end) {
      await one.ping();
      await new Promise((done) => setTimeout(done, 20));
    }
    expect(ends).toEqual([]);
  });
});

test("history for newcomers, before what is live", async () => {
  const server = await engine();
  const [writer, reader] = [client(server), client(server)];
  for (let n = 1; n <= 20; n++) await writer.publish("kept.a", n);
  const page = await history<number>(reader, "kept.a", { limit: 5, order: "newest" });
  expect(page.publications.map(({ payload }) => payload)).toEqual([20, 19, 18, 17, 16]);
  expect(page).toMatchObject({ position: { offset: 20 }, oldest: 1, hasMore: true, isComplete: true });
  const first = reader.subscribe<number>("kept.a", { replay: 3 });
  const loop = take(first, 4);
  await first.ready();
  await writer.publish("kept.a", 21);
  expect((await loop).map(({ payload }) => payload)).toEqual([18, 19, 20, 21]);
  // A second subscriber shares the subscription on the wire and gets its own replay.
  const second = reader.subscribe<number>("kept.a", { replay: 2 });
  const other = take(second, 3);
  await second.ready();
  // Its history was asked for before this one, so that it cannot hold what is published after this answer.
  await history(reader, "kept.a", { limit: 1 });
  await writer.publish("kept.a", 22);
  expect((await other).map(({ payload }) => payload)).toEqual([20, 21, 22]);
});

test("a queue group gives each publication to one member, again if it is lost", async () => {
  const server = await engine(...OPEN, "--client-queue-group-allow", ">");
  const [writer, one, two] = [client(server), client(server), client(server)];
  const options = { queueGroup: "workers", acknowledge: true, window: 4 };
  const seen = new Map<number, number>();
  const work = async (member: Client, isLazy: boolean) => {
    const subscription = member.subscribe<number>("jobs", options);
    subscription.on("message", (message) => {
      seen.set(message.payload, (seen.get(message.payload) ?? 0) + 1);
      if (!isLazy) acknowledge(member, message);
    });
    await subscription.ready();
  };
  await work(one, false);
  await work(two, true);
  for (let n = 0; n < 20; n++) await writer.publish("jobs", n);
  await until(() => seen.size === 20, "all jobs");
  expect([...seen.values()].every((count) => count === 1)).toBe(true);
  // Those that the second member has not acknowledged go to the first.
  await two.close();
  await until(() => [...seen.values()].reduce((sum, count) => sum + count) > 20, "jobs again");
});

test("presence names who is there, and events follow", async () => {
  const server = await engine(
    "--jwt-secret",
    SECRET,
    "--topics-open",
    "--presence",
    "room.>",
    "--log-level",
    "error",
  );
  const ada = client(server, { token: token({ sub: "ada" }) });
  const bob = client(server, { token: token({ sub: "bob" }) });
  const room = ada.subscribe("room.1", { presence: { name: "Ada" } });
  await room.ready();
  const events: string[] = [];
  room.on("presence", ({ change, user, data }) => events.push(`${user} ${change} ${JSON.stringify(data)}`));
  await bob.subscribe("room.1", { presence: { name: "Bob" } }).ready();
  const there = await presence(ada, "room.1");
  expect(Object.keys(there["room.1"]!.members).sort()).toEqual(["ada", "bob"]);
  await bob.close();
  await until(() => events.some((event) => event.startsWith("bob leave")), "bob's end");
  expect(events).toContain('bob join {"name":"Bob"}');
});

test("refusals name the topic and the reason", async () => {
  const server = await engine("--no-auth", "--client-subscribe-allow", "open.>", "--log-level", "error");
  const one = client(server);
  await expect(one.subscribe("secret").ready()).rejects.toMatchObject({
    code: "SUBSCRIPTION_FAILED",
    message: "the server does not give secret: TOPIC_FORBIDDEN: this topic is not allowed",
    cause: { code: "TOPIC_FORBIDDEN" },
  });
  await expect(one.publish("open.a", 1)).rejects.toMatchObject({ code: "TOPIC_FORBIDDEN", fault: "client" });
  await one.subscribe("open.a").ready();
  expect(() => one.subscribe("open.a", { filter: { a: 1 } })).toThrow(TidewireError);
  expect(() => one.subscribe("open.a", { fliter: {} } as never)).toThrow(/did you mean subscribe: filter/);
  await expect(one.subscribe("open.b", { filter: { a: { $nope: 1 } } }).ready()).rejects.toMatchObject({
    code: "INVALID_SUBSCRIPTION",
  });
});

describe("a reader that is slow", () => {
  /** Together more than the sockets between the server and a client hold. */
  const COUNT = 400;
  const PAD = "x".repeat(50_000);
  const KEYS = 10;

  interface Item {
    n: number;
    pad: string;
  }

  /** What a client gets that does not read while all is published, and reads then. */
  async function readLate(
    server: Engine,
    overload: NonNullable<SubscribeOptions["overload"]>,
    topics = ["kept.slow"],
  ) {
    const base = nodeTransport();
    const sockets: NodeSocket[] = [];
    const transport: Transport = {
      ...base,
      open(...args) {
        const socket = base.open(...args);
        sockets.push(socket);
        return socket;
      },
    };
    const reader = client(server, { transport });
    const subscription = await reader.subscribe<Item>(topics, { overload }).ready();
    const numbers: number[] = [];
    const gaps: Gap[] = [];
    const codes: number[] = [];
    subscription.on("message", ({ payload }) => numbers.push(payload.n));
    subscription.on("gap", (gap) => gaps.push(gap));
    reader.on("disconnected", ({ code }) => codes.push(code));
    sockets[0]!.pause();
    const writer = client(server);
    for (let n = 0; n < COUNT; n++) {
      const topic = topics[n % topics.length]!;
      await writer.publish(topic, { n, pad: PAD }, { key: String(n % KEYS) });
    }
    sockets[0]!.resume();
    await until(() => numbers.includes(COUNT - 1), "the newest");
    await until(() => reader.state === "open", "all that was missed is asked for");
    const missed = gaps.reduce((sum, { count }) => sum + count, 0);
    return { numbers, gaps, codes, missed, connections: sockets.length };
  }

  test("loses the oldest with drop_oldest, and is told how many", async () => {
    const { numbers, gaps, codes, missed } = await readLate(await engine(), "drop_oldest");
    expect(missed).toBeGreaterThan(0);
    expect(new Set(gaps.map(({ reason }) => reason))).toEqual(new Set(["dropped"]));
    expect(numbers.length + missed).toBe(COUNT);
    expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
    expect(codes).toEqual([]);
  });

  test("gets the newest of each key with conflate, and is told how many were replaced", async () => {
    const { numbers, gaps, codes, missed } = await readLate(await engine(), "conflate");
    expect(missed).toBeGreaterThan(0);
    expect(new Set(gaps.map(({ reason }) => reason))).toEqual(new Set(["conflated"]));
    expect(numbers.length + missed).toBe(COUNT);
    const newest = new Map(numbers.map((n) => [n % KEYS, n]));
    for (let key = 0; key < KEYS; key++) expect(newest.get(key)).toBe(COUNT - KEYS + key);
    expect(codes).toEqual([]);
  });

  test("is sent away with disconnect, comes back, and recovers all", async () => {
    const server = await engine(...OPEN, "--outbox-bytes-max", "1000000");
    // The history of one topic alone is too small.
    const topics = Array.from({ length: KEYS }, (_, n) => `kept.slow-${n}`);
    const { numbers, gaps, codes, connections } = await readLate(server, "disconnect", topics);
    await until(() => numbers.length >= COUNT, "all of them");
    expect([...numbers].sort((a, b) => a - b)).toEqual(Array.from({ length: COUNT }, (_, n) => n));
    expect(gaps).toEqual([]);
    // The close frame itself may have found no room.
    expect([4310, 1006]).toContain(codes[0]);
    expect(connections).toBeGreaterThan(1);
  });
});

test("a silent server is given up, and a connection to it opened again", async () => {
  const server = await engine();
  const one = client(server, { idleTimeoutMs: 300, connectTimeoutMs: 500 });
  await one.ready();
  await server.freeze();
  await until(() => one.state === "waiting", "the silence is noticed");
  server.process.kill("SIGCONT");
  await until(() => one.state === "open", "the way back");
});
