/** A proxy that spoils its connections at a byte that comes from a seed; see `protocol/scenarios/README.md`. */

import { connect, createServer, type Server, type Socket } from "node:net";

const MASK = (1n << 64n) - 1n;

/** Bytes between a change, which nobody may notice, and the cut. */
const PASSED_CORRUPT = 16_384;

/** What happens to one connection, and where. */
export interface Plan {
  kind: string;
  direction: "up" | "down";
  at: number;
  flip: number;
}

/** The same for every implementation (splitmix64). */
export function plan(seed: number, connection: number, kinds: string[]): Plan {
  let state = ((BigInt(seed) << 32n) + BigInt(connection)) & MASK;
  const below = (end: number): number => {
    state = (state + 0x9e3779b97f4a7c15n) & MASK;
    let mixed = state;
    mixed = ((mixed ^ (mixed >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
    mixed = ((mixed ^ (mixed >> 27n)) * 0x94d049bb133111ebn) & MASK;
    return Number((mixed ^ (mixed >> 31n)) % BigInt(end));
  };
  const kind = kinds[below(kinds.length)]!;
  const direction = below(2) ? "down" : "up";
  const bits = 5 + below(9);
  return { kind, direction, at: below(2 ** bits), flip: 1 + below(255) };
}

export class FaultyProxy {
  readonly #target: number;
  readonly #plans: Plan[];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #accepted = 0;

  constructor(target: number, plans: Plan[]) {
    this.#target = target;
    this.#plans = plans;
    this.#server = createServer({ allowHalfOpen: true }, (client) => this.#accept(client));
  }

  async listen(): Promise<number> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    return (this.#server.address() as { port: number }).port;
  }

  /** Every plan was carried out, and a connection accepted that nothing happens to. */
  get isCalm(): boolean {
    return this.#accepted > this.#plans.length;
  }

  async end(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #accept(client: Socket): void {
    const chosen = this.#plans[this.#accepted++];
    const server = connect({ port: this.#target, host: "127.0.0.1", allowHalfOpen: true });
    for (const socket of [client, server]) {
      this.#sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => this.#sockets.delete(socket));
    }
    const link = { isStalled: false };
    pass(client, server, chosen?.direction === "up" ? chosen : undefined, link);
    pass(server, client, chosen?.direction === "down" ? chosen : undefined, link);
  }
}

/** Passes on what comes from one side, and does there what the plan says. */
function pass(source: Socket, sink: Socket, chosen: Plan | undefined, link: { isStalled: boolean }): void {
  let passed = 0;
  let isOpen = true;
  let cutAt = Number.POSITIVE_INFINITY;
  let left = chosen;
  const cut = () => {
    source.destroy();
    sink.destroySoon();
  };
  source.on("data", (bytes) => {
    if (link.isStalled || !isOpen) return;
    const at = left ? left.at - passed : Number.POSITIVE_INFINITY;
    passed += bytes.length;
    if (passed >= cutAt) return cut();
    if (at >= bytes.length) return void sink.write(bytes);
    const { kind, flip } = left!;
    left = undefined;
    if (kind === "corrupt") {
      bytes[at]! ^= flip;
      cutAt = passed + PASSED_CORRUPT;
      return void sink.write(bytes);
    }
    sink.write(bytes.subarray(0, at));
    if (kind === "cut") cut();
    else if (kind === "stall") link.isStalled = true;
    else {
      isOpen = false;
      sink.end();
    }
  });
  const over = () => {
    if (link.isStalled) {
      source.destroy();
      sink.destroy();
    } else if (isOpen) sink.end();
  };
  source.on("end", over);
  source.on("close", () => sink.destroySoon());
}
