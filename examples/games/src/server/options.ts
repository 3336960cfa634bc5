/** The command line of the server. */

import { parseArgs } from "node:util";
import type { Skill } from "../core/machine.js";

export interface Options {
  host: string;
  port: number;
  healthPort: number;
  clientsMax: number;
  /**
   * The snapshot file, and the file of the secret of the tokens; both are made when they are
   * missing.
   */
  snapshot: string;
  secretFile: string;
  machineGames: number;
  machineMoveMs: number;
  machineSkill: Skill;
  /** Sizes of tournaments of machine players that start with a server that has no snapshot. */
  tournaments: number[];
  seed: number;
  /** Origins of pages besides that of the health port. */
  origins: string[];
  shards: number | undefined;
}

export const USAGE = `usage: npm start -- [OPTIONS]

  --port N             where WebSocket clients connect (3847; 0 takes a free port)
  --health-port N      where the page, /login and /health are (3848; 0 takes a free port)
  --host ADDRESS       the address of both (127.0.0.1; 0.0.0.0 lets other machines play)
  --max-clients N      clients at the same time; the next one gets HTTP 503 (10000)
  --snapshot FILE      where the state is kept (games.json)
  --secret-file FILE   the secret of the tokens (games.secret)
  --machine-games N    games of machine against machine that run at any time (0)
  --machine-move-ms N  the time between two moves of a machine player (1000)
  --machine-skill N    0, 1 or 2: the skill of the players of --machine-games (1)
  --tournament SIZE    a tournament of machine players that starts with a server that has no snapshot; can be given
                       several times
  --seed N             the seed of machine players (random)
  --origin ORIGIN      another origin whose pages may connect, such as http://games.example:3848; can be given
                       several times
  --shards N           event loops of the engine (one for each core)
`;

const option = { type: "string" } as const;
const list = { type: "string", multiple: true } as const;

/** Reads the command line, or throws an error that says what is wrong. */
export function readOptions(args: string[]): Options {
  const { values } = parseArgs({
    args,
    options: {
      port: option,
      "health-port": option,
      host: option,
      "max-clients": option,
      snapshot: option,
      "secret-file": option,
      "machine-games": option,
      "machine-move-ms": option,
      "machine-skill": option,
      tournament: list,
      seed: option,
      origin: list,
      shards: option,
    },
  });
  const whole = (
    name: Exclude<keyof typeof values, "tournament" | "origin">,
    fallback: number,
    min: number,
    max: number,
  ) => (values[name] === undefined ? fallback : wholeNumber(name, values[name], min, max));
  return {
    host: values.host ?? "127.0.0.1",
    port: whole("port", 3847, 0, 65_535),
    healthPort: whole("health-port", 3848, 0, 65_535),
    clientsMax: whole("max-clients", 10_000, 1, 1_000_000),
    snapshot: values.snapshot ?? "games.json",
    secretFile: values["secret-file"] ?? "games.secret",
    machineGames: whole("machine-games", 0, 0, 20_000),
    machineMoveMs: whole("machine-move-ms", 1_000, 1, 3_600_000),
    machineSkill: whole("machine-skill", 1, 0, 2) as Skill,
    tournaments: (values.tournament ?? []).map((size) => wholeNumber("tournament", size, 2, 128)),
    seed: whole("seed", Math.floor(Math.random() * 2 ** 32), 0, 2 ** 32 - 1),
    origins: values.origin ?? [],
    shards: values.shards === undefined ? undefined : wholeNumber("shards", values.shards, 1, 1_024),
  };
}

function wholeNumber(name: string, value: string, min: number, max: number): number {
  const number = Number(value);
  if (value.trim() === "" || !Number.isInteger(number) || number < min || number > max)
    throw new Error(`--${name} must be a whole number from ${min} to ${max}, not ${value}`);
  return number;
}
