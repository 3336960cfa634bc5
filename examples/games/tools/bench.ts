/**
 * `taskset -c 1 npm run bench`: the figures of docs/reports/games.md. The server has one core and the generator
 * another. The last line is all of them as JSON, of which bench/reports/games.py makes tables.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { type LoadResult, runLoad, spectators } from "./lab.js";
import { Players, type Target } from "./players.js";

const SPECTATORS = 10;
/** Connections of the server, below the limit of open files of a process. */
const CONNECTIONS_MAX = 19_000;
const SAMPLES = 200;
const WARM_UP_MS = 3_000;

interface Scenario {
  name: string;
  options: string[];
  /** Its games at the beginning; without machines two clients play the only one. */
  games: number;
  /** The number of its first room: a tournament has the number before. */
  first: number;
}

const tournament = (size: number): Scenario => ({
  name: `tournament of ${size}`,
  options: ["--tournament", String(size)],
  games: size / 2,
  first: 2,
});

/** What spectators watch. Each of these games has a move a second. */
const SCENARIOS: Scenario[] = [
  { name: "two players", options: [], games: 1, first: 1 },
  { name: "ten games of machines", options: ["--machine-games", "10"], games: 10, first: 1 },
  ...[8, 32, 100].map(tournament),
];

const { values } = parseArgs({
  args: process.argv.slice(3),
  options: {
    only: { type: "string" },
    games: { type: "string", default: "400,800,1200,1600,2000" },
    rounds: { type: "string", default: "3" },
    spectators: { type: "string", default: "100,500,1000" },
    "duration-s": { type: "string", default: "6" },
  },
});
const durationS = Number(values["duration-s"]);
const isWanted = (part: string) => values.only === undefined || values.only === part;

/** A server on the first core. */
class Server {
  readonly child: ChildProcess;
  readonly target: Target;
  readonly #folder: string;

  private constructor(child: ChildProcess, target: Target, folder: string) {
    this.child = child;
    this.target = target;
    this.#folder = folder;
  }

  static async start(...options: string[]): Promise<Server> {
    const folder = await mkdtemp(join(tmpdir(), "tidewire-games-"));
    const program = fileURLToPath(new URL("../run.js", import.meta.url));
    const files = ["--snapshot", join(folder, "games.json"), "--secret-file", join(folder, "secret")];
    const fixed = [
      "--port",
      "0",
      "--health-port",
      "0",
      "--max-clients",
      "20000",
      "--shards",
      "1",
      "--seed",
      "1",
    ];
    const args = [
      "-c",
      "0",
      process.execPath,
      "--expose-gc",
      program,
      "server",
      ...fixed,
      ...files,
      ...options,
    ];
    const child = spawn("taskset", args, { stdio: ["ignore", "pipe", "inherit"] });
    let output = "";
    const target = await new Promise<Target>((resolve, reject) => {
      child.stdout?.on("data", (bytes: Buffer) => {
        output += bytes.toString();
        const [url, origin] = [/ws:\S+/.exec(output), /http:\S+(?=\n)/.exec(output)];
        if (url && origin) resolve({ url: url[0], origin: origin[0] });
      });
      child.once("error", reject);
      child.once("close", () => reject(new Error(`the server has ended: ${output}`)));
    });
    return new Server(child, target, folder);
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  /** Its resident memory in bytes, without garbage. */
  async memory(): Promise<number> {
    // Memory is given back some time after the garbage is collected.
    for (let round = 0; round < 3; round += 1) {
      this.child.kill("SIGUSR2");
      await pause(500);
    }
    const status = await readFile(`/proc/${this.pid}/status`, "utf8");
    return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) * 1024;
  }

  /** Its processor time so far, in seconds. */
  async cpuS(): Promise<number> {
    const fields = (await readFile(`/proc/${this.pid}/stat`, "utf8")).split(") ")[1]?.split(" ") ?? [];
    return (Number(fields[11]) + Number(fields[12])) / 100;
  }

  async connections(): Promise<number> {
    const response = await fetch(`${this.target.origin}/health`);
    return ((await response.json()) as { connections: number }).connections;
  }

  async token(name: string): Promise<string> {
    const response = await fetch(`${this.target.origin}/login`, {
      method: "POST",
      body: JSON.stringify({ name }),
    });
    return ((await response.json()) as { token: string }).token;
  }

  async stop(): Promise<void> {
    const ended = once(this.child, "close");
    this.child.kill("SIGTERM");
    const timer = setTimeout(() => this.child.kill("SIGKILL"), 15_000);
    await ended;
    clearTimeout(timer);
    await rm(this.#folder, { recursive: true, force: true });
  }
}

const pause = (milliseconds: number) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function percentile(times: readonly number[], share: number): number {
  const sorted = [...times].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

interface Watched {
  scenario: string;
  games: number;
  connections: number;
  result: LoadResult;
  /** The share of a core that the server used while they connected, watched and asked. */
  serverShare: number;
}

/** Spectators of each scenario, each of whom watches one of its games and has a question a second. */
async function loads(): Promise<Watched[]> {
  const rows: Watched[] = [];
  for (const scenario of SCENARIOS)
    for (const connections of (values.spectators ?? "").split(",").map(Number))
      rows.push(await load(scenario, connections));
  return rows;
}

async function load({ name, options, games, first }: Scenario, connections: number): Promise<Watched> {
  const server = await Server.start(...options);
  const players = new Players(server.target);
  if (options.length === 0) {
    await players.open(games, 0);
    players.start();
  }
  const args = spectators({
    url: server.target.url,
    token: await server.token("Load"),
    connections,
    rampPerS: 100,
    messagesPerS: 1,
    durationS: connections / 100 + 5,
    topic: `rooms.{{rand:${first}:${first + games - 1}}}`,
    room: String(first),
    serverPid: server.pid,
  });
  const [cpuS, startMs] = [await server.cpuS(), performance.now()];
  const result = await runLoad(args);
  const serverShare = ((await server.cpuS()) - cpuS) / ((performance.now() - startMs) / 1_000);
  const { connecting, memory, notes } = result;
  console.log(name, connections, JSON.stringify({ ...connecting, memory, notes, serverShare }, short));
  await players.close();
  await server.stop();
  return { scenario: name, games, connections, result, serverShare };
}

/** Leaves the long lists of a report out. */
function short(name: string, value: unknown): unknown {
  return name === "points" ? undefined : value;
}

interface Memory {
  connections: number;
  serverBytes: number;
  clientBytes?: number | undefined;
}

/** The memory of both sides with quiet spectators. */
async function memories(): Promise<Memory[]> {
  const rows: Memory[] = [];
  const server = await Server.start("--machine-games", "1");
  const token = await server.token("Load");
  rows.push({ connections: 0, serverBytes: await server.memory() });
  for (const connections of [1_000, 5_000, 15_000]) {
    const args = spectators({
      url: server.target.url,
      token,
      connections,
      rampPerS: 0,
      messagesPerS: 0,
      durationS: 8,
      topic: "lobby",
      room: "1",
      serverPid: server.pid,
    });
    const running = runLoad(args);
    while ((await server.connections()) < connections) await pause(50);
    const serverBytes = await server.memory();
    const { memory } = await running;
    rows.push({ connections, serverBytes, clientBytes: memory?.client_rss_bytes });
    console.log(JSON.stringify({ ...rows.at(-1), reported: memory }));
    while ((await server.connections()) > 0) await pause(50);
  }
  await server.stop();
  return rows;
}

interface Capacity {
  games: number;
  connections: number;
  movesPerS: number;
  deliveredPerS: number;
  answered: number[];
  opponent: number[];
  spectator: number[];
  late: number[];
  /** Shares of a core. */
  serverShare: number;
  playersShare: number;
  labShare: number;
  failures: number;
}

/** Games of two players with ten spectators each. */
async function capacity(games: number): Promise<Capacity> {
  const server = await Server.start();
  const players = new Players(server.target);
  await players.open(games, Math.min(SAMPLES, games));
  const own = 2 * games + Math.min(SAMPLES, games);
  // Past the limit of open files one connection watches several games.
  const watched = Math.ceil((SPECTATORS * games) / (CONNECTIONS_MAX - own));
  const connections = Math.floor((SPECTATORS * games) / watched);
  const rooms = players.rooms.map(Number);
  const topic = `rooms.{{rand:${Math.min(...rooms)}:${Math.max(...rooms)}}}`;
  const args = spectators({
    url: server.target.url,
    token: await server.token("Load"),
    connections,
    rampPerS: 0,
    messagesPerS: 0,
    durationS: durationS + WARM_UP_MS / 1_000 + 4,
    topic,
    room: "1",
    serverPid: server.pid,
  });
  const subscription = args[args.indexOf("--subscribe") + 1] ?? "";
  for (let more = 1; more < watched; more += 1) args.push("--subscribe", subscription);
  const lab = runLoad(args);
  while ((await server.connections()) < own + connections) await pause(100);
  players.start();
  await pause(WARM_UP_MS);
  players.take();
  const [cpuS, startMs, usedBefore] = [await server.cpuS(), performance.now(), process.cpuUsage()];
  await pause(durationS * 1_000);
  const times = players.take();
  const seconds = (performance.now() - startMs) / 1_000;
  const serverShare = ((await server.cpuS()) - cpuS) / seconds;
  const used = process.cpuUsage(usedBefore);
  const { received, cpu, duration_s: labS } = await lab;
  const failures = players.failures.length;
  await players.close();
  await server.stop();
  const four = (list: number[]) => [0.5, 0.95, 0.99, 1].map((share) => percentile(list, share));
  const result = {
    games,
    connections: own + connections,
    movesPerS: times.answered.length / seconds,
    deliveredPerS: times.opponent.length / seconds + received.per_s,
    answered: four(times.answered),
    opponent: four(times.opponent),
    spectator: four(times.spectator),
    late: four(times.sent),
    serverShare,
    playersShare: (used.user + used.system) / 1e6 / seconds,
    labShare: cpu.client_s / labS,
    failures,
  };
  console.log(
    JSON.stringify(result, (_, value) => (typeof value === "number" ? Number(value.toFixed(3)) : value)),
  );
  return result;
}

/** The rounds of each number of games, which take turns. */
async function capacities(): Promise<Capacity[][]> {
  const steps = (values.games ?? "").split(",").map(Number);
  const rounds: Capacity[][] = steps.map(() => []);
  for (let round = 0; round < Number(values.rounds); round += 1)
    for (const [index, games] of steps.entries()) rounds[index]?.push(await capacity(games));
  return rounds;
}

console.log(
  JSON.stringify({
    spectators: isWanted("load") ? await loads() : [],
    memory: isWanted("memory") ? await memories() : [],
    games: isWanted("games") ? await capacities() : [],
  }),
);
