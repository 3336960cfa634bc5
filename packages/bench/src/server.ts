/** The server under load: one that this program starts, or one that is there. */

import { fork } from "node:child_process";
import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import { type Counters, readCounters, settledCounters } from "./counters.js";
import { coresOf, type Sample, sample, tree } from "./machine.js";
import type { ServeAnswer, ServeCommand } from "./serving.js";

/** The observable facts about the server. */
export class Server {
  /** The processes that listen; those that they have started count with them. */
  readonly #roots: readonly number[];
  readonly #statsUrl: string | undefined;
  /** Memory without connections. */
  readonly #rssBytesEmpty: number | undefined;
  /** Whether tests have made it grow that leave memory behind. */
  isLoaded = false;
  connectedMost = 0;

  constructor(roots: readonly number[], statsUrl: string | undefined) {
    this.#roots = roots;
    this.#statsUrl = statsUrl;
    this.#rssBytesEmpty = this.sample()?.rssBytes;
  }

  /** The processor time it has used so far. */
  sample(): Sample | undefined {
    return this.#roots.length === 0 ? undefined : sample(this.#pids());
  }

  /** The cores that it may run on. */
  cores(): Set<number> {
    return new Set(this.#pids().flatMap((pid) => [...coresOf(pid)]));
  }

  /** Its counters; `undefined` without counters that can be read. */
  async counters(): Promise<Counters | undefined> {
    return this.#statsUrl === undefined ? undefined : readCounters(this.#statsUrl);
  }

  /** Its counts since then. */
  countersSince(before: Counters, isSettled: (counters: Counters) => boolean): Promise<Counters> {
    return settledCounters(this.#statsUrl!, before, isSettled);
  }

  /** Memory with connections that have said little, as a report has it. */
  idleMemory(rssBytes: number, connections: number): Record<string, number> {
    const isTheirs = !this.isLoaded && connections >= Math.max(1, this.connectedMost);
    const empty = this.#rssBytesEmpty;
    if (!isTheirs || empty === undefined) return { server_rss_bytes: rssBytes };
    return {
      server_rss_bytes: rssBytes,
      per_connection_bytes: Math.max(0, rssBytes - empty) / Math.max(1, connections),
    };
  }

  #pids(): number[] {
    const all = tree(this.#roots);
    // A server that has started the bench is not loaded by itself.
    if (!all.includes(process.pid)) return all;
    const own = new Set(tree([process.pid]));
    return all.filter((pid) => !own.has(pid));
  }
}

/** A server that this program has started. */
export interface OwnServer {
  readonly url: string;
  readonly statsUrl: string;
  readonly pid: number;
  readonly jwtSecret: string;
  /** Why it has ended by itself; `undefined` while it runs. */
  end(): string | undefined;
  stop(): void;
}

/** Starts `tidewire serve` with a random secret, all topics open and the rate limit off; rejects with its reason. */
export function startServer(program: string, shards: number | undefined): Promise<OwnServer> {
  const jwtSecret = randomBytes(32).toString("hex");
  const options = [
    "--listen",
    "127.0.0.1:0",
    "--ops-listen",
    "127.0.0.1:0",
    "--app",
    "sink",
    "--topics-open",
  ];
  options.push("--rate-limit-capacity", "0", "--handshakes-max", "4096", "--log-level", "warn");
  if (shards !== undefined) options.push("--shards", String(shards));
  const guard = fork(fileURLToPath(new URL("./serving.js", import.meta.url)), [], {
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  });
  let end: string | undefined;
  const command: ServeCommand = { program, arguments: ["serve", ...options], jwtSecret };
  guard.send(command);
  return new Promise((resolve, reject) => {
    guard.on("message", (answer: ServeAnswer) => {
      if (answer.kind === "ended") {
        end = answer.reason;
        reject(new Error(answer.reason));
        return;
      }
      const { url, statsUrl, pid } = answer;
      resolve({
        url,
        statsUrl,
        pid,
        jwtSecret,
        end: () => end,
        stop: () => guard.connected && guard.disconnect(),
      });
    });
    guard.once("exit", () => {
      end ??= "the process that watches the server ended";
      reject(new Error(end));
    });
  });
}
