/** Tabs that share a connection to the real engine. */

import { afterEach, expect, test } from "vitest";
import { type Client, connect, type Message } from "../../src/index.js";
import { type Engine, startEngine } from "../node/engine.js";
import { seeded } from "../random.js";
import { type Tab, until, World } from "./world.js";

const OPEN = ["--no-auth", "--topics-open", "--history", "kept.>=10000", "--presence", "kept.rooms.>"];

const engines: Engine[] = [];
let world = new World();
const others: Client[] = [];

async function engine(...options: string[]): Promise<Engine> {
  const started = await startEngine(
    ...OPEN,
    "--log-level",
    "error",
    "--ops-listen",
    "127.0.0.1:0",
    ...options,
  );
  engines.push(started);
  return started;
}

afterEach(async () => {
  await Promise.all([...world.tabs].flatMap(({ clients }) => clients).map((one) => one.close()));
  await Promise.all(others.splice(0).map((one) => one.close()));
  await Promise.all(engines.splice(0).map((one) => one.stop()));
  world = new World();
});

const url = ({ address }: Engine) => `ws://${address}/ws`;

function outsider(server: Engine): Client {
  const client = connect(url(server));
  others.push(client);
  return client;
}

async function connections({ opsAddress }: Engine): Promise<number> {
  const stats = (await (await fetch(`http://${opsAddress}/stats`)).json()) as {
    total: Record<string, number>;
  };
  return stats.total.connections_open!;
}

const sockets = () => [...world.tabs].reduce((sum, { sockets }) => sum + sockets.size, 0);

/** What a subscription has got: the payloads, in order. */
function record(client: Client, topic: string, options = {}): unknown[] {
  const got: unknown[] = [];
  client.subscribe(topic, options).on("message", ({ payload }: Message) => got.push(payload));
  return got;
}

const count = (to: number, from = 0) => Array.from({ length: to - from }, (_, index) => from + index);

test("all tabs use one connection, and each gets what it subscribed", async () => {
  const server = await engine();
  const tabs = [world.tab(), world.tab(), world.tab()];
  const clients = tabs.map((tab) => tab.connect(url(server)));
  await Promise.all(clients.map((one) => one.connected()));
  expect(await connections(server)).toBe(1);
  const [a, b, c] = clients as [Client, Client, Client];
  const got = [record(a, "kept.x"), record(b, "kept.x"), record(c, "kept.*"), record(b, "plain")];
  await Promise.all(clients.map((one) => one.subscribe("ready").ready()));
  for (const n of count(20)) await clients[n % 3]!.publish("kept.x", n);
  await a.publish("plain", "p");
  await until(() => got.every((one, index) => one.length === (index === 3 ? 1 : 20)), "all have all");
  expect(got).toEqual([count(20), count(20), count(20), ["p"]]);
  expect(await Promise.all(clients.map((one) => one.ping()))).toHaveLength(3);
  await a.close();
  await until(() => b.state === "open" && c.state === "open" && sockets() === 1, "the next tab leads");
  await outsider(server).publish("kept.x", 20);
  await until(() => got[1]!.length === 21 && got[2]!.length === 21, "the others go on");
  expect(got[0]).toHaveLength(20);
  await b.close();
  await c.close();
  await until(() => sockets() === 0, "nothing is left");
  expect(world.lockNames).toEqual([]);
  expect(await connections(server)).toBe(1);
});

test("tabs crash in any order while publications flow: none is lost or doubled", async () => {
  const server = await engine();
  const publisher = outsider(server);
  let tabs: Tab[] = [];
  const got = new Map<Tab, unknown[]>();
  const add = () => {
    const tab = world.tab();
    tabs.push(tab);
    got.set(tab, record(tab.connect(url(server)), "kept.flow", { replay: 0 }));
  };
  for (const _ of count(5)) add();
  await Promise.all(tabs.map(({ clients }) => clients[0]!.connected()));
  await until(() => tabs.every(({ clients }) => clients[0]!.state === "open"), "all are there");
  let n = 0;
  for (const round of count(12)) {
    for (const _ of count(50)) publisher.publish("kept.flow", n++).catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, round * 3));
    const leader = round % 3 ? tabs.find(({ sockets }) => sockets.size) : undefined;
    const victim = leader ?? tabs[round % tabs.length]!;
    victim.crash();
    tabs = tabs.filter((tab) => tab !== victim);
    const fresh = world.tab();
    tabs.push(fresh);
    got.set(fresh, record(fresh.connect(url(server)), "kept.flow"));
  }
  const last = n++;
  await until(() => tabs.every(({ clients }) => clients[0]!.state === "open"), "all are back");
  await publisher.publish("kept.flow", last);
  await until(() => tabs.every((tab) => got.get(tab)!.at(-1) === last), "all have the last");
  for (const tab of tabs) {
    const messages = got.get(tab) as number[];
    expect(messages).toEqual(count(n, messages[0]));
  }
  expect(sockets()).toBe(1);
});

test.each([1, 2, 3])("tabs that come, go, freeze, hide and publish lose nothing: seed %i", async (seed) => {
  const random = seeded(seed);
  const server = await engine("--ping-interval-ms", "200");
  const realm = { hiddenMsMax: 100, joinMsMax: 100 };
  const got = new Map<Tab, number[]>();
  const degraded: string[] = [];
  let tabs: Tab[] = [];
  let n = 0;
  const add = () => {
    const tab = world.tab(random() < 0.7, realm);
    const client = tab.connect(url(server), {
      idleTimeoutMs: 1_000,
      on: { degraded: ({ reason }) => degraded.push(reason) },
    });
    tabs.push(tab);
    got.set(tab, record(client, "kept.fuzz") as number[]);
  };
  const publisher = outsider(server);
  for (const _ of count(3)) add();
  for (const _ of count(60)) {
    for (const _ of count(10)) publisher.publish("kept.fuzz", n++).catch(() => undefined);
    const tab = tabs[Math.floor(random() * tabs.length)]!;
    const chance = random();
    if (chance < 0.15 || tabs.length < 3) add();
    else if (chance < 0.3) tab.crash();
    else if (chance < 0.4) {
      tab.thaw();
      await tab.clients[0]!.close();
      world.tabs.delete(tab);
    } else if (chance < 0.5) tab.freeze();
    else if (chance < 0.7) tab.thaw();
    else tab.show(chance < 0.85);
    tabs = tabs.filter((one) => world.tabs.has(one));
    await new Promise((resolve) => setTimeout(resolve, random() * 30));
  }
  for (const tab of tabs) tab.thaw();
  await Promise.all(tabs.map(({ clients }) => clients[0]!.subscribe("kept.fuzz").ready()));
  await publisher.publish("kept.fuzz", n++);
  await until(() => tabs.every((tab) => got.get(tab)!.at(-1) === n - 1), "all have the last");
  for (const tab of tabs) {
    const messages = got.get(tab)!;
    expect(messages).toEqual(count(n, messages[0]));
  }
  expect(degraded).toEqual([]);
  await until(() => sockets() === 1, "one connection is left");
  // Each tab waits for the lead once, and holds the lock of its pipe, which the leading one waits
  // for.
  await until(() => world.requests <= 3 * tabs.length, "no request for a lock is left over");
});
