/**
 * `npm run load`: spectators who watch one game and ask for its state, against a running server.
 *
 * `tidewire load` is the generator: its connections cost less than those of a client in JavaScript,
 * so that it is not the limit before the server is.
 */

import { parseArgs } from "node:util";
import { connect } from "@tidewire/client";
import { type SocketPlace, socketUrl } from "../src/core/addresses.js";
import type { Replies } from "../src/core/requests.js";
import type { RoomView } from "../src/core/view.js";
import { runLoad, spectators } from "./lab.js";
import { reportLines } from "./report.js";

const USAGE = `usage: npm run load -- [OPTIONS]

  --connections N      spectators (100)
  --ramp-per-s N       new connections in a second (100)
  --messages-per-s N   questions of each spectator in a second (1)
  --duration-s N       seconds (30); the ramp is a part of them
  --memory             weigh the client and the server
  --server URL         the page and health address of the server (http://127.0.0.1:3848)
  --room ID            the room that is watched (a game that is played, or a new room)
`;

const option = { type: "string" } as const;

if (process.argv.includes("--help")) {
  process.stdout.write(USAGE);
} else {
  try {
    process.exitCode = await main();
  } catch (error) {
    console.error(`games: ${(error as Error).message}`);
    process.exitCode = 2;
  }
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    args: process.argv.slice(3),
    options: {
      connections: option,
      "ramp-per-s": option,
      "messages-per-s": option,
      "duration-s": option,
      memory: { type: "boolean" },
      server: option,
      room: option,
    },
  });
  const number = (name: Exclude<keyof typeof values, "memory" | "server" | "room">, fallback: number) => {
    const value = Number(values[name] ?? fallback);
    if (!(value > 0)) throw new Error(`--${name} must be a number above 0, not ${values[name]}`);
    return value;
  };
  const server = values.server ?? "http://127.0.0.1:3848";
  const { url, token } = await logIn(server, "Load");
  const room = values.room ?? (await chooseRoom(url, token));
  const result = await runLoad(
    spectators({
      url,
      token,
      connections: number("connections", 100),
      rampPerS: number("ramp-per-s", 100),
      messagesPerS: number("messages-per-s", 1),
      durationS: number("duration-s", 30),
      topic: `rooms.${room}`,
      room,
    }),
  );
  console.log(`spectators of room ${room} on ${url}`);
  for (const line of reportLines(result, values.memory === true)) console.log(line);
  return result.failed === 0 && result.requests.failed === 0 ? 0 : 1;
}

async function logIn(server: string, name: string): Promise<{ url: string; token: string }> {
  try {
    const [login, config] = await Promise.all([
      fetch(`${server}/login`, { method: "POST", body: JSON.stringify({ name }) }),
      fetch(`${server}/config.json`),
    ]);
    const { token } = (await login.json()) as { token: string };
    return { url: socketUrl(new URL(server), (await config.json()) as SocketPlace), token };
  } catch (error) {
    throw new Error(`no game server answers on ${server}; start one: npm start`, { cause: error });
  }
}

/** A game that is played, or else a room that is opened for this. */
async function chooseRoom(url: string, token: string): Promise<string> {
  const client = connect(url, { token });
  try {
    const { rooms } = await client.request<Replies["lobby"]>("lobby");
    const played = rooms.find(({ status }) => status === "playing");
    if (played) return played.room;
    return (await client.request<RoomView>("open_room", { name: "Load" })).room;
  } finally {
    await client.close();
  }
}
