/**
 * The whole server: the engine, the service, the HTTP side and the snapshots, started and stopped
 * together.
 */

import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import type { SocketPlace } from "../core/addresses.js";
import { Hall } from "../core/hall.js";
import type { EngineOptions, GameEngine } from "./engine.js";
import type { Options } from "./options.js";
import { GameService } from "./service.js";
import { type Site, type SiteOptions, serveSite } from "./site.js";
import { loadSnapshot, SnapshotKeeper } from "./snapshots.js";

export interface Running {
  /** Where clients connect. */
  readonly url: string;
  readonly site: Site;
  readonly service: GameService;
  /**
   * Lets the clients leave, saves the state, and ends; resolves with the number of clients that
   * were left.
   */
  stop(drainMs?: number): Promise<number>;
}

/** Whole milliseconds since 1970 by a monotonic clock. */
const now = () => Math.floor(performance.timeOrigin + performance.now());

const TOURNAMENT_CONTROL = { initialMs: 180_000, incrementMs: 2_000 };

export async function startServer(
  options: Options,
  makeEngine: (options: EngineOptions) => GameEngine,
  files: SiteOptions["files"],
): Promise<Running> {
  const secret = await readSecret(options.secretFile);
  const saved = await loadSnapshot(options.snapshot);
  const hall = saved ? Hall.restore(options, saved, now()) : new Hall(options);
  let isDraining = false;
  let service: GameService | undefined;
  let keeper: SnapshotKeeper | undefined;
  let engine: GameEngine | undefined;
  const health = () => ({
    isHealthy: service !== undefined && !isDraining,
    connections: engine?.connections ?? 0,
    clientsMax: options.clientsMax,
    rooms: hall.roomCount,
    droppedEvents: service?.droppedEvents ?? 0,
    snapshotAgeMs: keeper?.savedAtMs === undefined ? null : Math.round(performance.now() - keeper.savedAtMs),
  });
  // The site is there first, because its origin is one of those that the engine accepts.
  const site = await serveSite({ host: options.host, port: options.healthPort, secret, files, health });
  try {
    const { host, port, clientsMax, shards } = options;
    const origins = [...site.origins, ...options.origins];
    engine = makeEngine({
      host,
      port,
      clientsMax,
      secret,
      origins,
      ...(shards === undefined ? {} : { shards }),
    });
    const running = new GameService(hall, engine, now);
    await engine.start();
    const { port: socketPort, pathname } = new URL(engine.url);
    const place: SocketPlace = { port: Number(socketPort), path: pathname };
    files.set("/config.json", ["application/json", JSON.stringify(place)]);
    service = running;
    running.start();
    keeper = new SnapshotKeeper(
      options.snapshot,
      () => hall.saveParts(now()),
      () => running.changes,
      (error) => console.error(`the snapshot ${options.snapshot} cannot be written:`, error),
    );
    keeper.start();
    if (!saved) for (const size of options.tournaments) openTournament(running, size, options);
  } catch (error) {
    await site.close();
    throw error;
  }
  const started = { engine, service, keeper };
  return {
    url: started.engine.url,
    site,
    service: started.service,
    async stop(drainMs = 5_000) {
      isDraining = true;
      started.service.stop();
      const left = await started.engine.drain(drainMs);
      await started.keeper.stop();
      await site.close();
      return left;
    },
  };
}

function openTournament(service: GameService, size: number, { machineSkill }: Options): void {
  service.run((hall, nowMs) => {
    const tournament = hall.openTournament(null, {
      name: `Open of ${size}`,
      size,
      control: TOURNAMENT_CONTROL,
    });
    hall.fillWithMachines(null, tournament.id, machineSkill, nowMs);
  });
}

/** The secret in a file, so that tokens stay good over a restart; the first start makes it. */
async function readSecret(path: string): Promise<string> {
  try {
    const secret = (await readFile(path, "utf8")).trim();
    if (secret.length < 32)
      throw new Error(`the secret in ${path} is too short: it must have at least 32 characters`);
    return secret;
  } catch (error) {
    if ((error as { code?: string }).code !== "ENOENT") throw error;
    const secret = randomBytes(32).toString("hex");
    await writeFile(path, `${secret}\n`, { mode: 0o600, flag: "wx" });
    return secret;
  }
}
