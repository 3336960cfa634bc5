/** The engine by the npm package `tidewire`. */

import { existsSync } from "node:fs";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Refusal } from "../core/errors.js";
import type { EngineOptions, GameEngine } from "./engine.js";

/** The part of the package that this server uses. */
export interface Package {
  Server: new (options: Record<string, unknown>) => PackageServer;
  CallError: new (message: string, fields: { code: string }) => Error;
  BusyError: new (message: string) => Error;
  StoppedError: new (message: string) => Error;
}

export interface PackageServer {
  readonly url: string;
  readonly connections: number;
  start(): Promise<unknown>;
  drain(timeoutMs: number): Promise<number>;
  handle(
    type: string,
    handler: (request: { user: string | undefined; payload: unknown }) => unknown,
  ): unknown;
  publish(topic: string, payload: unknown, options: { type: string }): unknown;
}

/** The newest publications of each topic that a client which was away can recover. */
const HISTORY = { lobby: 64, "rooms.*": 64, "tournaments.*": 8 };

/**
 * The package: `TIDEWIRE_NODE`, or that of this repository if it is built, or an installed one;
 * `undefined` without one.
 */
export async function loadPackage(): Promise<Package | undefined> {
  const own = fileURLToPath(new URL("../../../../bindings/node/index.mjs", import.meta.url));
  const named = process.env.TIDEWIRE_NODE;
  if (named) return (await import(pathToFileURL(named).href)) as Package;
  const isBuilt = existsSync(
    fileURLToPath(new URL("../../../../bindings/node/tidewire.node", import.meta.url)),
  );
  const name = isBuilt ? pathToFileURL(own).href : "tidewire";
  try {
    return (await import(name)) as Package;
  } catch (error) {
    if ((error as { code?: string }).code === "ERR_MODULE_NOT_FOUND") return undefined;
    throw error;
  }
}

/** The engine with the options of a game server; it listens after `start`. */
export function tidewireEngine(tidewire: Package, options: EngineOptions): GameEngine {
  const server = new tidewire.Server({
    host: options.host,
    port: options.port,
    connectionsMax: options.clientsMax,
    jwtSecret: options.secret,
    // A page cannot send headers, so that its token travels in a subprotocol; and it cannot read
    // the status 401.
    tokenSubprotocolPrefix: "token.",
    authFailureAfterUpgrade: true,
    origin: options.origins,
    // Clients watch; whatever changes something is a request.
    clientSubscribeAllow: Object.keys(HISTORY),
    history: HISTORY,
    messageBytesMax: 16 * 1024,
    rateLimitCapacity: 100,
    rateLimitRefillPerS: 20,
    ...(options.shards === undefined ? {} : { shards: options.shards }),
  });
  return {
    get url() {
      return server.url;
    },
    get connections() {
      return server.connections;
    },
    async start() {
      await server.start();
    },
    handle(type, handler) {
      server.handle(type, ({ user, payload }) => {
        try {
          return handler(user ?? "", payload);
        } catch (error) {
          if (error instanceof Refusal) throw new tidewire.CallError(error.message, { code: error.code });
          throw error;
        }
      });
    },
    publish(topic, type, payload) {
      try {
        server.publish(topic, payload, { type });
        return true;
      } catch (error) {
        if (error instanceof tidewire.BusyError) return false;
        // Nobody is connected any more.
        if (error instanceof tidewire.StoppedError) return true;
        throw error;
      }
    },
    drain: (timeoutMs) => server.drain(timeoutMs),
  };
}
