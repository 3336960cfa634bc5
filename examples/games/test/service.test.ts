import { readFile, writeFile } from "node:fs/promises";
import { afterEach, describe, expect, test, vi } from "vitest";
import { Refusal } from "../src/core/errors.js";
import { Hall } from "../src/core/hall.js";
import type { RoomView } from "../src/core/view.js";
import { readOptions } from "../src/server/options.js";
import { Publisher } from "../src/server/publisher.js";
import { GameService } from "../src/server/service.js";
import { loadSnapshot, saveSnapshot } from "../src/server/snapshots.js";
import { login, playerOf, tokenFor } from "../src/server/tokens.js";
import { MemoryEngine } from "./memory-engine.js";
import { TestServer } from "./support.js";

const SECRET = "0123456789abcdef0123456789abcdef";

afterEach(() => {
  vi.useRealTimers();
});

describe("the service", () => {
  function start(machineGames = 0) {
    vi.useFakeTimers({ now: 1_000_000 });
    const engine = new MemoryEngine();
    const service = new GameService(new Hall({ seed: 1, machineGames }), engine, () => Date.now());
    service.start();
    return { engine, service };
  }

  test("answers requests and publishes what they change", () => {
    const { engine, service } = start();
    const { room } = engine.request("ada", "open_room") as RoomView;
    engine.request("bob", "join", { room });
    engine.request("ada", "move", { room, move: "e2e4", ply: 1 });
    expect(engine.published.map(({ topic, type }) => `${topic} ${type}`)).toEqual([
      `rooms.${room} seats`,
      "lobby room",
      `rooms.${room} seats`,
      `rooms.${room} start`,
      "lobby room",
      `rooms.${room} move`,
    ]);
    expect(() => engine.request("ada", "move", { room, move: "e2e4", ply: 2 })).toThrow(Refusal);
    service.stop();
  });

  test("ends a game when its time is over, and not before", () => {
    const { engine, service } = start();
    const { room } = engine.request("ada", "open_room", { initialMs: 5_000, incrementMs: 0 }) as RoomView;
    engine.request("bob", "join", { room });
    vi.advanceTimersByTime(4_999);
    expect(engine.published.map(({ type }) => type)).not.toContain("over");
    vi.advanceTimersByTime(1);
    expect(engine.published.map(({ type }) => type)).toContain("over");
    service.stop();
  });

  test("moves machine players, and stops with them", () => {
    const { engine, service } = start(40);
    vi.advanceTimersByTime(3_000);
    const moves = engine.published.filter(({ type }) => type === "move").length;
    expect(moves).toBeGreaterThanOrEqual(40 * 2);
    service.stop();
    vi.advanceTimersByTime(3_000);
    expect(engine.published.filter(({ type }) => type === "move")).toHaveLength(moves);
  });
});

describe("the publisher", () => {
  test("keeps the order while the engine has no room", () => {
    vi.useFakeTimers();
    const engine = new MemoryEngine();
    const publisher = new Publisher(engine);
    const event = (n: number) => ({ topic: "lobby", type: "room", payload: n });
    publisher.publish([event(1)]);
    engine.isBusy = true;
    publisher.publish([event(2), event(3)]);
    publisher.publish([event(4)]);
    vi.advanceTimersByTime(1_000);
    expect(publisher.waiting).toBe(3);
    engine.isBusy = false;
    publisher.publish([event(5)]);
    vi.advanceTimersByTime(1_000);
    expect(engine.published.map(({ payload }) => payload)).toEqual([1, 2, 3, 4, 5]);
    expect(publisher.waiting).toBe(0);
  });

  test("drops the oldest events past its limit, and counts them", () => {
    vi.useFakeTimers();
    const engine = new MemoryEngine();
    engine.isBusy = true;
    const publisher = new Publisher(engine);
    const events = Array.from({ length: 60_000 }, (_, n) => ({ topic: "lobby", type: "room", payload: n }));
    publisher.publish(events);
    expect(publisher.dropped).toBe(10_000);
    engine.isBusy = false;
    vi.advanceTimersByTime(1_000);
    expect(engine.published[0]?.payload).toBe(10_000);
    expect(engine.published).toHaveLength(50_000);
  });
});

describe("tokens", () => {
  test("name a player, and a kept token the same player again", () => {
    const first = login("Ada", undefined, SECRET, 0)!;
    expect(first.player).toMatch(/^Ada~.{8}$/);
    expect(playerOf(first.token, SECRET)).toBe(first.player);
    expect(login("Ada", first.token, SECRET, 1e9)?.player).toBe(first.player);
    expect(login("Ada", undefined, SECRET, 0)?.player).not.toBe(first.player);
  });

  test.each(["", "~", "a~b", "x".repeat(25), "<b>", 5, null, undefined])(
    "are not given for the name %j",
    (name) => {
      expect(login(name, undefined, SECRET, 0)).toBeUndefined();
    },
  );

  test("of another secret, or changed, are worth nothing", () => {
    const token = tokenFor("Ada~1", SECRET, 0);
    const forged = `${token.split(".")[0]}.${Buffer.from('{"sub":"Bob~1"}').toString("base64url")}.${token.split(".")[2]}`;
    for (const bad of [forged, tokenFor("Bob~1", `${SECRET}x`, 0), "", "a.b", "a.b.c", `${token}x`])
      expect(playerOf(bad, SECRET)).toBeUndefined();
  });
});

describe("the command line", () => {
  test("is that of the README", () => {
    const options = readOptions(["--port", "3847", "--health-port", "3848", "--max-clients", "100"]);
    expect(options).toMatchObject({ port: 3847, healthPort: 3848, clientsMax: 100 });
  });

  test.each([
    ["--port", "70000"],
    ["--max-clients", "0"],
    ["--max-clients", "many"],
    ["--machine-skill", "3"],
    ["--tournament", ""],
    ["--max-client", "5"],
  ])("refuses %s %s", (...args) => {
    expect(() => readOptions(args)).toThrow(args[0]);
  });
});

describe("the server on an engine in memory", () => {
  test("says how it is, and gives tokens", async () => {
    const server = await TestServer.start({ clientsMax: 7 }, () => new MemoryEngine());
    const { origin } = server.running.site;
    const health = await fetch(`${origin}/health`);
    expect(health.status).toBe(200);
    expect(await health.json()).toMatchObject({ isHealthy: true, connections: 0, clientsMax: 7, rooms: 0 });
    expect((await server.logIn("Ada")).player).toMatch(/^Ada~/);
    expect((await server.post('{"name":"~"}')).status).toBe(400);
    expect((await server.post("{")).status).toBe(400);
    expect((await server.post("null")).status).toBe(400);
    expect((await server.post("x".repeat(5_000))).status).toBe(413);
    expect((await fetch(`${origin}/login`)).status).toBe(404);
    expect((await fetch(`${origin}/health`, { method: "DELETE" })).status).toBe(405);
    await server.stop();
  });

  test("keeps rooms, and tokens, over a restart", async () => {
    let engine = new MemoryEngine();
    const server = await TestServer.start({}, () => (engine = new MemoryEngine()));
    const { player, token } = await server.logIn("Ada");
    const { room } = engine.request(player, "open_room", { name: "the first" }) as RoomView;
    await server.restart();
    expect(engine.request(player, "room", { room })).toMatchObject({ name: "the first", white: player });
    expect((await server.logIn("Ada", token)).player).toBe(player);
    await server.stop();
  });

  test("leaves the old snapshot when a new one cannot be made", async () => {
    const server = await TestServer.start({}, () => new MemoryEngine());
    const path = server.options.snapshot;
    await saveSnapshot(path, ['{"format":1,', '"rooms":[', "]}"]);
    expect(await loadSnapshot(path)).toEqual({ format: 1, rooms: [] });
    const failing = function* () {
      yield "{";
      throw new Error("no more");
    };
    await expect(saveSnapshot(path, failing())).rejects.toThrow("no more");
    expect(await loadSnapshot(path)).toEqual({ format: 1, rooms: [] });
    await server.stop();
  });

  test("saves by itself when something has changed", async () => {
    let engine = new MemoryEngine();
    const server = await TestServer.start({}, () => (engine = new MemoryEngine()));
    engine.request("ada", "open_room", { name: "saved" });
    await vi.waitFor(
      async () => expect(await readFile(server.options.snapshot, "utf8")).toContain('"saved"'),
      20_000,
    );
    await server.stop();
  });

  test("does not start on a snapshot that it cannot read", async () => {
    const server = await TestServer.start({}, () => new MemoryEngine());
    const restarted = server.restart(() => writeFile(server.options.snapshot, '{"format":1,'));
    await expect(restarted).rejects.toThrow("is not JSON; move it away");
  });
});
