/** The engine's program, started by tests on a free port. */

import { type ChildProcess, spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";

export interface Engine {
  /** `127.0.0.1:PORT`. */
  readonly address: string;
  /** Where `/stats` is, if `--ops-listen` was given. */
  readonly opsAddress: string | undefined;
  readonly process: ChildProcess;
  /** Stops the process for a while (SIGSTOP); resolves when none of its threads runs any more. */
  freeze(): Promise<void>;
  /** Ends the process by its id and waits for its end. */
  stop(signal?: NodeJS.Signals): Promise<void>;
}

/** The built program: `TIDEWIRE_PROGRAM`, or that of the workspace's `target`. */
export function program(): string {
  const root = fileURLToPath(new URL("../../../../", import.meta.url));
  const places = [
    process.env.TIDEWIRE_PROGRAM,
    `${root}target/release/tidewire`,
    `${root}target/debug/tidewire`,
  ];
  const found = places.find((place) => place !== undefined && existsSync(place));
  if (found === undefined) {
    throw new Error("no program to test with; run `cargo build -p tidewire-cli` or set TIDEWIRE_PROGRAM");
  }
  return found;
}

/**
 * A free port below those that the system gives to outgoing connections: one of these could take it while a server that
 * listened there is started again.
 */
async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(20_000, 32_000);
    // Nobody may listen yet at a port that another server of this run was given.
    if (given.has(port)) continue;
    const probe = createServer().listen(port, "127.0.0.1");
    try {
      await once(probe, "listening");
    } catch {
      continue;
    }
    probe.close();
    await once(probe, "close");
    given.add(port);
    return port;
  }
}

const given = new Set<number>();

/** Starts `tidewire serve` with these options, and waits until it listens. */
export async function startEngine(...options: string[]): Promise<Engine> {
  const listen = options.includes("--listen") ? [] : ["--listen", `127.0.0.1:${await freePort()}`];
  const child = spawn(program(), ["serve", ...listen, ...options], { stdio: ["ignore", "pipe", "pipe"] });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  let output = "";
  const wanted = options.includes("--ops-listen") ? 2 : 1;
  const addresses = await new Promise<string[]>((resolve, reject) => {
    const look = (bytes: Buffer) => {
      output += bytes.toString();
      const found = [...output.matchAll(/127\.0\.0\.1:[0-9]+(?=[/\n])/g)].map((match) => match[0]);
      const distinct = [...new Set(found)].filter((one) => !one.endsWith(":0"));
      if (distinct.length >= wanted) resolve(distinct);
    };
    child.stdout.on("data", look);
    child.stderr.on("data", look);
    child.once("error", reject);
    child.once("close", () => reject(new Error(`the engine ended: ${output}`)));
  });
  return {
    address: addresses[0]!,
    opsAddress: addresses[1],
    process: child,
    freeze: async () => {
      child.kill("SIGSTOP");
      // The signal takes effect when a thread of the process gets a processor, which may take a while.
      while (!/\) T /.test(readFileSync(`/proc/${child.pid}/stat`, "utf8"))) await delay(1);
    },
    stop: (signal = "SIGKILL") => {
      child.kill(signal);
      return ended;
    },
  };
}
