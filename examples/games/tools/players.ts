/**
 * Players for measurements: games at one move a second, each by two clients that play a prepared
 * game.
 */

import { type Client, connect } from "@tidewire/client";
import { Game } from "../src/core/game.js";
import { chooseMove } from "../src/core/machine.js";
import { Random } from "../src/core/random.js";
import type { RoomEvents, RoomView } from "../src/core/view.js";

/** Where the server is. */
export interface Target {
  /** The address of the page and of `/login`. */
  origin: string;
  /** The address of the WebSocket. */
  url: string;
}

const LOGINS_AT_ONCE = 32;
const PLIES = 80;
const MOVE_MS = 1_000;

interface Table {
  room: string;
  players: [Client, Client];
  moves: readonly string[];
  /** Moves that were sent. */
  sent: number;
  /** When the next move is due, on the clock of `performance`. */
  dueMs: number;
  /** When each sent move was due, by its number. */
  dues: Map<number, number>;
  isWaiting: boolean;
}

/** Times in milliseconds, each from when a move was due. */
export interface Times {
  /** Until the mover had its answer. */
  answered: number[];
  /** Until the opponent had the move. */
  opponent: number[];
  /** Until a spectator of the sample had the move. */
  spectator: number[];
  /** Until the generator had sent the move. */
  sent: number[];
}

const noTimes = (): Times => ({ answered: [], opponent: [], spectator: [], sent: [] });

/** A legal game of random moves that does not end within N moves. */
export function longGame(seed: number, plies = PLIES): string[] {
  for (let attempt = seed; ; attempt += 1_000_003) {
    const game = Game.start({ initialMs: 1, incrementMs: 0 }, 0);
    const random = new Random(attempt);
    while (!game.result && game.ply < plies) game.move(game.turn, chooseMove(game.position, 0, random), 0);
    if (!game.result) return game.moves;
  }
}

export class Players {
  readonly #target: Target;
  readonly #tables: Table[] = [];
  readonly #samples: Client[] = [];
  #times = noTimes();
  #failures: string[] = [];
  #timer: NodeJS.Timeout | undefined;

  constructor(target: Target) {
    this.#target = target;
  }

  get rooms(): string[] {
    return this.#tables.map(({ room }) => room);
  }

  get failures(): readonly string[] {
    return this.#failures;
  }

  /** Opens games, and a sample of spectators of them. */
  async open(games: number, samples: number): Promise<void> {
    const scripts = Array.from({ length: 16 }, (_, seed) => longGame(seed + 1));
    await inGroups(games, async (index) => {
      const [white, black] = await Promise.all([this.#client(`W${index}`), this.#client(`B${index}`)]);
      const control = { initialMs: 600_000, incrementMs: 0 };
      const { room } = await white.request<RoomView>("open_room", control);
      await black.request("join", { room });
      const table: Table = {
        room,
        players: [white, black],
        moves: scripts[index % scripts.length] ?? [],
        sent: 0,
        dueMs: 0,
        dues: new Map(),
        isWaiting: false,
      };
      await this.#watch(white, table, (ply) => ply % 2 === 0, "opponent");
      await this.#watch(black, table, (ply) => ply % 2 === 1, "opponent");
      this.#tables.push(table);
    });
    const random = new Random(games);
    await inGroups(samples, async (index) => {
      const client = await this.#client(`S${index}`);
      const table = this.#tables[random.below(this.#tables.length)];
      if (table) await this.#watch(client, table, () => true, "spectator");
      this.#samples.push(client);
    });
  }

  /** Begins to play: the games are spread evenly over the second. */
  start(): void {
    const startMs = performance.now();
    for (const [index, table] of this.#tables.entries())
      table.dueMs = startMs + MOVE_MS * (1 + index / this.#tables.length);
    let next = 0;
    const step = () => {
      // The games keep their order: each is due a second after its last move.
      for (;;) {
        const table = this.#tables[next];
        if (!table || table.dueMs > performance.now()) break;
        this.#due(table);
        next = (next + 1) % this.#tables.length;
      }
      this.#timer = setTimeout(step, 1);
    };
    step();
  }

  /** The times since the last call. */
  take(): Times {
    const times = this.#times;
    this.#times = noTimes();
    return times;
  }

  async close(): Promise<void> {
    clearTimeout(this.#timer);
    const clients = [...this.#tables.flatMap(({ players }) => players), ...this.#samples];
    await Promise.all(clients.map((client) => client.close()));
  }

  #due(table: Table): void {
    table.dues.set(table.dues.size + 1, table.dueMs);
    table.dueMs += MOVE_MS;
    if (!table.isWaiting) this.#send(table);
  }

  /**
   * Sends the next move that is due. One game has one move on its way, because the next one must
   * see it.
   */
  #send(table: Table): void {
    const ply = table.sent + 1;
    const [dueMs, move] = [table.dues.get(ply), table.moves[ply - 1]];
    if (dueMs === undefined || move === undefined) return;
    table.sent = ply;
    table.isWaiting = true;
    const mover = table.players[(ply - 1) % 2] ?? table.players[0];
    this.#times.sent.push(performance.now() - dueMs);
    mover.request("move", { room: table.room, move, ply }).then(
      () => {
        this.#times.answered.push(performance.now() - dueMs);
        table.isWaiting = false;
        this.#send(table);
      },
      (error: Error) => this.#failures.push(error.message),
    );
  }

  async #watch(
    client: Client,
    table: Table,
    isMeant: (ply: number) => boolean,
    kind: "opponent" | "spectator",
  ): Promise<void> {
    const subscription = client.subscribe<RoomEvents["move"]>(`rooms.${table.room}`);
    subscription.on("message", ({ type, payload }) => {
      if (type !== "move" || !isMeant(payload.ply)) return;
      const dueMs = table.dues.get(payload.ply);
      if (dueMs !== undefined) this.#times[kind].push(performance.now() - dueMs);
    });
    await subscription.ready();
  }

  async #client(name: string): Promise<Client> {
    const response = await fetch(`${this.#target.origin}/login`, {
      method: "POST",
      body: JSON.stringify({ name }),
    });
    const { token } = (await response.json()) as { token: string };
    return connect(this.#target.url, { token }).connected();
  }
}

async function inGroups(count: number, action: (index: number) => Promise<void>): Promise<void> {
  for (let start = 0; start < count; start += LOGINS_AT_ONCE) {
    const size = Math.min(LOGINS_AT_ONCE, count - start);
    await Promise.all(Array.from({ length: size }, (_, index) => action(start + index)));
  }
}
