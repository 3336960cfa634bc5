/** The lines between a worker and its controller. */

import { writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { clockNs } from "./clock.js";
import type { Asides } from "./contract.js";

/** A controller that has been silent for so long is gone. */
const SILENCE_MS = 10_000;

type Order = Record<string, unknown> & { do: string };

/** The `stop` or `abandon` that the controller has sent for the newest order. */
let said: "stop" | "abandon" | undefined;

/** Returns the `stop` or `abandon` that the controller has sent for the newest order. */
export const wish = (): "stop" | "abandon" | undefined => said;

/** Writes a line. */
export function say(kind: string, figures: object): void {
  let line = Buffer.from(`${JSON.stringify({ say: kind, ...figures })}\n`);
  try {
    while (line.length > 0) line = line.subarray(writeSome(line));
  } catch {
    // Nobody is there to work for.
    process.exit(1);
  }
}

function writeSome(line: Buffer): number {
  try {
    return writeSync(1, line);
  } catch (error) {
    // The pipe is full, and its other end reads.
    if ((error as NodeJS.ErrnoException).code === "EAGAIN") return 0;
    throw error;
  }
}

/** Runs the controller's orders one by one and handles asides at once. Ends the process with the controller. */
export function serve(asides: Omit<Asides, "clock">, obey: (order: Order) => Promise<void>): void {
  const all: Asides = { ...asides, clock: ({ id }) => say("clock", { id, clock_ns: clockNs() }) };
  let heardMs = performance.now();
  let working: Promise<void> = Promise.resolve();
  const lines = createInterface({ input: process.stdin });
  lines.on("line", (line) => {
    heardMs = performance.now();
    const order = parsed(line);
    if (order.do === "quit") process.exit(0);
    const aside = (all as unknown as Record<string, ((order: Order) => void) | undefined>)[order.do];
    if (order.do === "stop" || order.do === "abandon") said = order.do;
    if (aside !== undefined) return aside(order);
    said = undefined;
    working = working.then(() => obey(order)).catch(fail);
  });
  lines.on("close", () => process.exit(0));
  setInterval(() => {
    if (performance.now() - heardMs > SILENCE_MS) process.exit(1);
  }, 500);
}

function parsed(line: string): Order {
  try {
    return JSON.parse(line) as Order;
  } catch (error) {
    fail(error);
  }
}

/** Reports to the controller that this worker cannot continue, and ends the process. */
function fail(error: unknown): never {
  say("failed", { reason: error instanceof Error ? error.message : String(error) });
  process.exit(1);
}
