/** Shared parts of the tests of the whole server. */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineOptions, GameEngine } from "../src/server/engine.js";
import { type Options, readOptions } from "../src/server/options.js";
import { type Running, startServer } from "../src/server/server.js";
import type { SiteOptions } from "../src/server/site.js";
import { loadPackage, tidewireEngine } from "../src/server/tidewire.js";

/** The package `tidewire`; without it, tests that need it are left out. */
export const tidewire = await loadPackage();

if (!tidewire) {
  console.warn(
    "the package tidewire is not built here, so no tests of the game server on it: see bindings/node",
  );
}

export interface Login {
  player: string;
  token: string;
}

/** A server with files in a directory of its own. */
export class TestServer {
  readonly folder: string;
  readonly options: Options;
  running: Running;
  readonly #makeEngine: (options: EngineOptions) => GameEngine;
  readonly #files: SiteOptions["files"];

  private constructor(
    folder: string,
    options: Options,
    running: Running,
    makeEngine: (options: EngineOptions) => GameEngine,
    files: SiteOptions["files"],
  ) {
    this.folder = folder;
    this.options = options;
    this.running = running;
    this.#makeEngine = makeEngine;
    this.#files = files;
  }

  static async start(
    changes: Partial<Options> = {},
    makeEngine = (options: EngineOptions) => tidewireEngine(tidewire!, options),
    files: SiteOptions["files"] = new Map(),
  ): Promise<TestServer> {
    const folder = await mkdtemp(join(tmpdir(), "tidewire-games-"));
    const files_ = { snapshot: join(folder, "games.json"), secretFile: join(folder, "secret") };
    const options = { ...readOptions([]), port: 0, healthPort: 0, seed: 1, ...files_, ...changes };
    const running = await startServer(options, makeEngine, files);
    return new TestServer(folder, options, running, makeEngine, files);
  }

  async logIn(name: string, token?: string): Promise<Login> {
    const response = await this.post(JSON.stringify({ name, token }));
    return (await response.json()) as Login;
  }

  post(body: string): Promise<Response> {
    return fetch(`${this.running.site.origin}/login`, { method: "POST", body });
  }

  /** Stops it, and starts it again at the same addresses with what it has saved. */
  async restart(pause: () => Promise<void> = async () => {}): Promise<void> {
    const [port, healthPort] = [portOf(this.running.url), portOf(this.running.site.origin)];
    await this.running.stop(200);
    await pause();
    this.running = await startServer({ ...this.options, port, healthPort }, this.#makeEngine, this.#files);
  }

  async stop(): Promise<void> {
    await this.running.stop(200);
    await rm(this.folder, { recursive: true, force: true });
  }
}

export function portOf(url: string): number {
  return Number(new URL(url).port) || 0;
}
