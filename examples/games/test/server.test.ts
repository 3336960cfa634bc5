/** The game server on the package `tidewire`, with clients by `@tidewire/client`. */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Client, connect, TidewireError } from "@tidewire/client";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { type SocketPlace, socketUrl } from "../src/core/addresses.js";
import type { RoomView } from "../src/core/view.js";
import { RoomStore } from "../src/page/room-store.js";
import { hostsOf } from "../src/server/site.js";
import { type Login, portOf, TestServer, tidewire } from "./support.js";

const FOOLS_MATE = ["f2f3", "e7e5", "g2g4", "d8h4"];
const wait = <T>(check: () => T | Promise<T>) => vi.waitFor(check, { timeout: 30_000, interval: 20 });

describe.skipIf(!tidewire)("the server on the package", () => {
  let server: TestServer;
  const clients: Client[] = [];

  beforeAll(async () => {
    server = await TestServer.start();
  });

  afterAll(async () => {
    await Promise.all(clients.map((client) => client.close()));
    await server?.stop();
  });

  async function enter(name: string): Promise<{ client: Client; login: Login }> {
    const login = await server.logIn(name);
    const client = connect(server.running.url, { token: login.token, reconnect: { baseMs: 50, maxMs: 500 } });
    clients.push(client);
    return { client, login };
  }

  test("carries a game to mate before a watcher who has missed a part of it", async () => {
    const [ada, bob, cleo] = await Promise.all(["Ada", "Bob", "Cleo"].map(enter));
    const { room } = await ada!.client.request<RoomView>("open_room", { name: "Tea" });
    const watching = new RoomStore(cleo!.client, room);
    await wait(() => expect(watching.get().view?.status).toBe("waiting"));
    await bob!.client.request("join", { room });
    for (const [index, move] of FOOLS_MATE.entries()) {
      // The watcher loses its connection in the middle of the game.
      if (index === 2) cleo!.client.reconnect();
      const mover = index % 2 === 0 ? ada! : bob!;
      await mover.client.request("move", { room, move, ply: index + 1 });
    }
    await wait(() => expect(watching.get().view?.result).toEqual({ winner: "black", ending: "checkmate" }));
    const asked = await ada!.client.request<RoomView>("room", { room });
    expect(watching.get().view).toEqual({ ...asked, clockAtMs: expect.any(Number) });
    expect(asked).toMatchObject({ white: ada!.login.player, black: bob!.login.player, moves: FOOLS_MATE });
    watching.close();
  });

  test("refuses with a code and a reason", async () => {
    const { client } = await enter("Ada");
    const error = await client.request("room", { room: "none" }).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(TidewireError);
    expect(error).toMatchObject({
      code: "UNKNOWN_ROOM",
      message: expect.stringContaining("there is no room none"),
    });
    await expect(client.request("dance")).rejects.toMatchObject({ code: "NOT_FOUND" });
  });

  test("lets clients publish nowhere and watch only its topics", async () => {
    const { client } = await enter("Ada");
    await expect(client.publish("rooms.1", { v: 1 })).rejects.toMatchObject({ code: "TOPIC_FORBIDDEN" });
    await expect(client.subscribe("secrets").ready()).rejects.toMatchObject({ code: "SUBSCRIPTION_FAILED" });
  });

  test("continues after a restart; who was connected comes back and sees the room", async () => {
    const { client, login } = await enter("Ada");
    const { room } = await client.request<RoomView>("open_room", { skill: 0, initialMs: 600_000 });
    await client.request("move", { room, move: "e2e4", ply: 1 });
    const store = new RoomStore(client, room);
    // The machine answers, and then the clock of Ada runs.
    await wait(() => expect(store.get().view?.moves).toHaveLength(2));
    const before = store.get().view!;
    await server.restart();
    await wait(() => client.request("move", { room, move: "d2d3", ply: 3 }, { timeoutMs: 2_000 }));
    await wait(() => expect(store.get().view?.moves.length).toBeGreaterThanOrEqual(3));
    expect(store.get().view).toMatchObject({
      white: login.player,
      moves: expect.arrayContaining(before.moves),
    });
    expect(store.get().view!.moves.slice(0, 3)).toEqual([...before.moves, "d2d3"]);
    // The machine goes on as well.
    await wait(() => expect(store.get().view?.moves).toHaveLength(4));
    store.close();
  });

  test("answers one client too many with 503 and a reason, and lets it in when another has left", async () => {
    const small = await TestServer.start({ clientsMax: 1 });
    const first = connect(small.running.url, { token: (await small.logIn("Ada")).token });
    await first.connected();
    const { token } = await small.logIn("Bob");
    const refused = await upgrade(small.running.url, token);
    expect(refused.status).toBe(503);
    expect(refused.retryAfter).toMatch(/^\d+$/);
    expect(refused.body).not.toBe("");
    await first.close();
    await wait(async () => expect((await upgrade(small.running.url, token)).status).toBe(101));
    await small.stop();
  });

  test("lets pages in by every address of the machine, and tells them only the port", async () => {
    const open = await TestServer.start({ host: "0.0.0.0" });
    const port = portOf(open.running.site.origin);
    // This address is one of the machine, but no part of the server has its name.
    const page = new URL(`http://127.0.0.2:${port}/`);
    const place = (await (await fetch(new URL("/config.json", page))).json()) as SocketPlace;
    const url = socketUrl(page, place);
    expect(url).toBe(`ws://127.0.0.2:${portOf(open.running.url)}/ws`);
    const { token } = await open.logIn("Ada");
    for (const host of hostsOf("0.0.0.0"))
      expect((await upgrade(url, token, `http://${host}:${port}`)).status, host).toBe(101);
    for (const origin of [`http://games.example:${port}`, `http://127.0.0.1:${port + 1}`])
      expect((await upgrade(url, token, origin)).status, origin).toBe(403);
    await open.stop();
  });

  test("refuses a client without a token", async () => {
    const client = connect(server.running.url, { reconnect: false });
    await expect(client.connected()).rejects.toMatchObject({ code: "AUTH_FAILED" });
  });

  test("is a program that ends with SIGTERM, with its state saved", async () => {
    const folder = await mkdtemp(join(tmpdir(), "tidewire-games-"));
    const [snapshot, secretFile] = [join(folder, "games.json"), join(folder, "secret")];
    const program = fileURLToPath(new URL("../run.js", import.meta.url));
    const files = ["--snapshot", snapshot, "--secret-file", secretFile];
    const ports = ["--port", "0", "--health-port", "0", "--tournament", "8", "--machine-move-ms", "50"];
    const child = spawn(process.execPath, [program, "server", ...ports, ...files], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    let output = "";
    child.stdout.on("data", (bytes: Buffer) => {
      output += bytes.toString();
    });
    const ended = once(child, "close");
    await wait(() => expect(output).toMatch(/page and health on http:\S+\n/));
    const origin = /http:\S+/.exec(output)![0];
    expect(await (await fetch(`${origin}/`)).text()).toContain("/page.js");
    // The four games of the first round.
    expect(await (await fetch(`${origin}/health`)).json()).toMatchObject({ isHealthy: true, rooms: 4 });
    child.kill("SIGTERM");
    expect((await ended)[0]).toBe(0);
    expect(output).toContain("stopped; the state is in");
    const again = await TestServer.start({ snapshot, secretFile });
    const { token } = await again.logIn("Ada");
    const client = connect(again.running.url, { token });
    const { tournaments } = await client.request<{ tournaments: unknown[] }>("lobby");
    expect(tournaments).toHaveLength(1);
    await client.close();
    await again.stop();
    await rm(folder, { recursive: true });
  });
});

/** Asks for an upgrade, and gives what a server says to it. */
function upgrade(
  url: string,
  token: string,
  origin?: string,
): Promise<{ status: number; retryAfter: string | undefined; body: string }> {
  return new Promise((resolve, reject) => {
    const headers = {
      connection: "Upgrade",
      upgrade: "websocket",
      "sec-websocket-version": "13",
      "sec-websocket-key": Buffer.alloc(16, 7).toString("base64"),
      authorization: `Bearer ${token}`,
      ...(origin === undefined ? {} : { origin }),
    };
    const asked = request({ host: new URL(url).hostname, port: portOf(url), path: "/ws", headers });
    asked.on("upgrade", (response, socket) => {
      socket.destroy();
      resolve({ status: response.statusCode ?? 0, retryAfter: undefined, body: "" });
    });
    asked.on("response", (response) => {
      let body = "";
      response.on("data", (bytes: Buffer) => {
        body += bytes.toString();
      });
      response.on("end", () => {
        const retryAfter = response.headers["retry-after"];
        resolve({ status: response.statusCode ?? 0, retryAfter, body });
      });
    });
    asked.on("error", reject);
    asked.end();
  });
}
