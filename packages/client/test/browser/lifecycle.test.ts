/**
 * Pages that are left, cached, frozen, hidden and offline, with connections of their own and with a
 * shared one.
 */

import { once } from "node:events";
import { type AddressInfo, connect as connectTcp, createServer, type Server, type Socket } from "node:net";
import type { Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Client, connect, presence } from "../../src/index.js";
import { SECRET, token } from "../jwt.js";
import { type Engine, startEngine } from "../node/engine.js";
import { type Chromium, launch, type Site, serve } from "./page.js";
import type { Tab } from "./shared.page.js";

// What the page has as a global.
declare const tab: Tab;

/** A proxy that counts connections, and cuts them. */
interface Proxy {
  readonly port: number;
  /** Connections to the server. */
  readonly open: Set<Socket>;
  /** Connections so far. */
  accepted: number;
  cut(): void;
  /** Nothing passes any more, in either direction, and neither side learns of it. */
  stall(): void;
  close(): Promise<void>;
}

async function startProxy(address: string): Promise<Proxy> {
  const pairs = new Set<[Socket, Socket]>();
  const open = new Set<Socket>();
  const server: Server = createServer((socket) => {
    proxy.accepted++;
    const [host, port] = address.split(":") as [string, string];
    const other = connectTcp(Number(port), host);
    socket.pipe(other).pipe(socket);
    open.add(other);
    const pair: [Socket, Socket] = [socket, other];
    pairs.add(pair);
    other.on("close", () => open.delete(other));
    for (const end of pair) {
      end.on("error", () => {});
      end.on("close", () => {
        if (pairs.delete(pair)) for (const one of pair) one.destroy();
      });
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const proxy: Proxy = {
    port: (server.address() as AddressInfo).port,
    open,
    accepted: 0,
    cut() {
      for (const [socket] of pairs) socket.resetAndDestroy();
    },
    stall() {
      for (const pair of pairs) for (const end of pair) end.unpipe().resume();
      pairs.clear();
    },
    async close() {
      proxy.cut();
      server.close();
      await once(server, "close");
    },
  };
  return proxy;
}

let site: Site;
let chromium: Chromium;
let engine: Engine;
let proxy: Proxy;
let publisher: Client;
let published = 0;

beforeAll(async () => {
  [site, chromium] = await Promise.all([serve("shared.page.ts"), launch()]);
}, 60_000);

afterAll(async () => {
  await chromium?.close();
  await site?.close();
});

beforeEach(async () => {
  engine = await startEngine(
    ...["--no-auth", "--topics-open", "--history", "kept.>=100000", "--log-level", "error"],
    ...["--origin", "any", "--allow-host", "any", "--ping-interval-ms", "500", "--idle-timeout-ms", "3000"],
  );
  proxy = await startProxy(engine.address);
  publisher = connect(`ws://${engine.address}/ws`);
  published = 0;
});

afterEach(async () => {
  for (const page of chromium.context.pages()) await page.close();
  await publisher.close();
  await proxy.close();
  await engine.stop();
});

async function publish(count: number): Promise<void> {
  await Promise.all(Array.from({ length: count }, () => publisher.publish("kept.flow", published++)));
}

type Options = Parameters<Tab["start"]>[1];

async function openTab(options: Options): Promise<Page> {
  const page = await chromium.context.newPage();
  await page.goto(site.url);
  const all = { topics: ["kept.flow"], ...options };
  await page.evaluate(([url, more]) => tab.start(url, more), [
    `ws://127.0.0.1:${proxy.port}/ws`,
    all,
  ] as const);
  await page.waitForFunction(() => tab.state() === "open");
  return page;
}

async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  const deadline = performance.now() + 40_000;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`in vain: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** The page gets all publications, each once. */
async function expectAll(page: Page): Promise<void> {
  await page.waitForFunction((last) => tab.got["kept.flow"]!.at(-1) === last, published - 1);
  const numbers = await page.evaluate(() => tab.got["kept.flow"]);
  expect(numbers).toEqual(Array.from({ length: published }, (_, at) => at));
}

/** The process of a page: the one that works while the page does. */
async function processOf(page: Page): Promise<number> {
  const session = await chromium.browser.newBrowserCDPSession();
  const times = async () => {
    const { processInfo } = await session.send("SystemInfo.getProcessInfo");
    const renderers = processInfo.filter(({ type }) => type === "renderer");
    return new Map(renderers.map(({ id, cpuTime }) => [id, cpuTime]));
  };
  try {
    for (;;) {
      const before = await times();
      await page.evaluate(() => tab.work());
      // A process that is new is a spare one of the browser.
      const spent = [...(await times())].map(([id, time]) => [id, time - (before.get(id) ?? time)] as const);
      const [[id, most], [, next] = [0, 0]] = spent.toSorted(([, a], [, b]) => b - a) as [
        readonly [number, number],
        (readonly [number, number])?,
      ];
      // Another page may be busy as well; then it is not known which process is whose.
      if (most > 0 && most > 3 * next) return id;
    }
  } finally {
    await session.detach();
  }
}

/**
 * Hides the page, or shows it, as far as its scripts can see: pages that are driven are never
 * really hidden.
 */
async function hide(page: Page, isHidden: boolean): Promise<void> {
  await page.evaluate(
    (visibilityState) => {
      Object.defineProperty(document, "visibilityState", { value: visibilityState, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    },
    isHidden ? "hidden" : "visible",
  );
}

/** Listeners on the window and the document. */
async function listeners(page: Page): Promise<string[]> {
  const session = await chromium.context.newCDPSession(page);
  const all: string[] = [];
  for (const expression of ["window", "document"]) {
    const { result } = await session.send("Runtime.evaluate", { expression });
    const found = await session.send("DOMDebugger.getEventListeners", { objectId: result.objectId! });
    all.push(...found.listeners.map(({ type }) => `${expression} ${type}`));
  }
  await session.detach();
  return all.toSorted();
}

describe.each([
  ["a connection of its own", { isShared: false }],
  ["a shared connection", { isShared: true }],
])("%s", { timeout: 90_000 }, (_, options) => {
  test("a cached page closes its connection, and recovers when it is shown again", async () => {
    const page = await openTab(options);
    await publish(3);
    await expectAll(page);
    await page.goto(`${site.url}other`);
    await until(() => proxy.open.size === 0, "the server sees the end");
    await publish(3);
    void page.evaluate(() => history.back()).catch(() => {});
    await page.waitForFunction(() => tab.events.length > 0 && location.pathname === "/");
    const why = await page.evaluate(() => {
      const [entry] = performance.getEntriesByType("navigation") as unknown as [
        { notRestoredReasons: unknown },
      ];
      return { events: tab.events, reasons: JSON.stringify(entry.notRestoredReasons) };
    });
    expect(why.events, why.reasons).toContain("pageshow true");
    await page.waitForFunction(() => tab.state() === "open");
    await expectAll(page);
    expect(proxy.accepted).toBe(2);
  });

  test("nothing is left after close", async () => {
    const page = await chromium.context.newPage();
    await page.goto(site.url);
    // What drives the page has listeners as well.
    await page.waitForFunction(() => tab !== undefined);
    const before = await listeners(page);
    const url = `ws://127.0.0.1:${proxy.port}/ws`;
    const all: Options = { ...options, topics: ["kept.flow"] };
    await page.evaluate(([at, more]) => tab.start(at, more), [url, all] as const);
    await page.waitForFunction(() => tab.state() === "open");
    expect((await listeners(page)).length).toBeGreaterThan(before.length);
    await page.evaluate(() => tab.client!.close());
    expect(await listeners(page)).toEqual(before);
    await page.waitForFunction(() => Object.values(tab.left()).every((count) => count === 0));
    expect(await page.evaluate(() => tab.locks())).toBe(0);
    await until(() => proxy.open.size === 0, "the connection is closed");
  });

  test("a page whose process is stopped notices that the server has ended its session", async () => {
    const page = await openTab({ ...options, idleTimeoutMs: 3_000 });
    await publish(3);
    await expectAll(page);
    const id = await processOf(page);
    process.kill(id, "SIGSTOP");
    try {
      // The browser answers the server's pings outside the page's process, until the network is
      // gone as well.
      proxy.stall();
      await publish(3);
      await until(() => proxy.open.size === 0, "the server ends the session");
    } finally {
      process.kill(id, "SIGCONT");
    }
    await expectAll(page);
    expect(proxy.accepted).toBe(2);
  });

  test("a page whose process is stopped for longer than the idle timeout goes on", async () => {
    const page = await openTab({ ...options, idleTimeoutMs: 1_000 });
    const id = await processOf(page);
    process.kill(id, "SIGSTOP");
    try {
      for (const end = performance.now() + 2_000; performance.now() < end; ) await publish(1);
    } finally {
      process.kill(id, "SIGCONT");
    }
    await expectAll(page);
    await page.waitForFunction(() => tab.state() === "open");
  });

  test("a frozen page closes its connection, and recovers when it goes on", async () => {
    const page = await openTab(options);
    await publish(3);
    await expectAll(page);
    // A page that is driven is never really frozen; what it is told before can be told.
    await page.evaluate(() => document.dispatchEvent(new Event("freeze")));
    await until(() => proxy.open.size === 0, "the server sees the end");
    await publish(3);
    await page.evaluate(() => document.dispatchEvent(new Event("resume")));
    await expectAll(page);
  });

  test("a page that was offline reconnects at once when the network is back", async () => {
    const page = await openTab({ ...options, baseMs: 3_600_000 });
    await publish(3);
    await expectAll(page);
    await chromium.context.setOffline(true);
    proxy.cut();
    await page.waitForFunction(() => tab.state() === "waiting");
    await publish(3);
    await chromium.context.setOffline(false);
    await expectAll(page);
  });

  test("a hidden page gets its messages, and reconnects at once when it is shown", async () => {
    const page = await openTab({ ...options, baseMs: 3_600_000 });
    await hide(page, true);
    await publish(3);
    await until(() => page.evaluate(() => tab.got["kept.flow"]!.length === 3), "messages come");
    proxy.cut();
    await until(() => page.evaluate(() => tab.state() === "waiting"), "the connection is lost");
    await publish(3);
    await hide(page, false);
    await expectAll(page);
  });
});

describe("presence of a page", { timeout: 90_000 }, () => {
  const idleTimeoutMs = { never: 600_000, soon: 1_500 };
  let room: Engine;
  let way: Proxy;
  let watcher: Client;
  /** What the watcher learns of the page's user. */
  let events: string[];

  /** A server with presence that ends silent sessions after a time, and somebody who watches the room. */
  async function startRoom(endsAfterMs: number): Promise<void> {
    room = await startEngine(
      ...["--jwt-secret", SECRET, "--token-query-parameter", "token", "--topics-open", "--presence", "room"],
      ...["--origin", "any", "--allow-host", "any", "--log-level", "error"],
      ...["--ping-interval-ms", "300", "--idle-timeout-ms", String(endsAfterMs)],
    );
    way = await startProxy(room.address);
    watcher = connect(`ws://${room.address}/ws`, { token: token({ sub: "watcher" }) });
    events = [];
    const subscription = watcher.subscribe("room");
    subscription.on("presence", ({ user, change }) => user === "ada" && events.push(change));
    await subscription.ready();
  }

  afterEach(async () => {
    // What stalls ends with its page.
    for (const page of chromium.context.pages()) await page.close();
    await watcher?.close();
    await way?.close();
    await room?.stop();
  });

  async function enter(options: Options): Promise<Page> {
    const page = await chromium.context.newPage();
    await page.goto(site.url);
    const url = `ws://127.0.0.1:${way.port}/ws?token=${token({ sub: "ada" })}`;
    const all = { topics: ["room"], presence: { name: "Ada" }, ...options };
    await page.evaluate(([at, more]) => tab.start(at, more), [url, all] as const);
    await until(() => events.includes("join"), "the page is in the room");
    return page;
  }

  const isThere = async () => {
    const { room: found } = await presence(watcher, "room");
    return Object.keys(found?.members ?? {}).includes("ada");
  };

  test.each([
    ["a connection of its own", false],
    ["a shared connection", true],
  ])("that is frozen ends at once, with %s", async (_, isShared) => {
    await startRoom(idleTimeoutMs.never);
    const page = await enter({ isShared });
    await page.evaluate(() => document.dispatchEvent(new Event("freeze")));
    await until(() => events.includes("leave"), "the page has left");
    expect(await isThere()).toBe(false);
    await page.evaluate(() => document.dispatchEvent(new Event("resume")));
    await until(isThere, "the page is back");
    expect(events).toEqual(["join", "leave", "join"]);
  });

  test("that cannot close stays, as long as the browser answers for it, and then until the server's timeout", async () => {
    await startRoom(idleTimeoutMs.soon);
    const page = await enter({ isShared: false });
    const id = await processOf(page);
    process.kill(id, "SIGSTOP");
    try {
      // Twice as long as the server waits for a sign of life: the browser answers its pings outside the page.
      for (const end = performance.now() + 2 * idleTimeoutMs.soon; performance.now() < end; ) {
        expect(await isThere()).toBe(true);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
      expect(events).toEqual(["join"]);
      way.stall();
      await until(() => events.includes("leave"), "the server ends the session");
    } finally {
      process.kill(id, "SIGCONT");
    }
  });
});

describe("the leading tab of a shared connection", { timeout: 90_000 }, () => {
  const options = { isShared: true, idleTimeoutMs: 2_000 };

  test("when it is cached, another one leads, and it joins when it is shown again", async () => {
    const first = await openTab(options);
    const second = await openTab(options);
    await publish(3);
    await first.goto(`${site.url}other`);
    await publish(3);
    await expectAll(second);
    await until(() => proxy.open.size === 1, "the second leads");
    void first.evaluate(() => history.back()).catch(() => {});
    await first.waitForFunction(() => tab.client !== undefined && tab.state() === "open");
    await publish(3);
    await expectAll(first);
    await expectAll(second);
    expect(proxy.open.size).toBe(1);
    expect(await first.evaluate(() => tab.left().sockets)).toBe(0);
  });

  test("when its process is stopped, another one leads, and it follows when it goes on", async () => {
    const first = await openTab(options);
    const second = await openTab(options);
    const id = await processOf(first);
    expect(await processOf(second)).not.toBe(id);
    process.kill(id, "SIGSTOP");
    try {
      await publish(3);
      await expectAll(second);
      expect(await second.evaluate(() => tab.left().sockets)).toBe(1);
    } finally {
      process.kill(id, "SIGCONT");
    }
    await publish(3);
    await expectAll(first);
    await expectAll(second);
    await until(() => proxy.open.size === 1, "one connection is left");
  });
});
