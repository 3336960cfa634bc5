// One server of a comparison under load: it runs on core 0 with all its threads, the load generator on core 1.
// TIDEWIRE_PROGRAM is the program `tidewire`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";

const program =
  process.env.TIDEWIRE_PROGRAM ?? fileURLToPath(new URL("../../../target/release/tidewire", import.meta.url));

const WARM_UP_MS = 700;

const FIELDS = { id: 123456, symbol: "ACME", price: 101.25, side: "buy" };
const NOTE_BYTES = 175 - JSON.stringify({ ...FIELDS, note: "" }).length;
/** A message of 175 bytes. */
export const message = JSON.stringify({ ...FIELDS, note: "x".repeat(NOTE_BYTES) });

/**
 * Messages a second, and the microseconds of processor time for each, of a server of `server.mjs`. `command` starts Node; `load` makes
 * the words of the load generator from the port.
 */
export async function measure(command, peer, task, load, seconds) {
  const file = fileURLToPath(new URL("server.mjs", import.meta.url));
  const server = spawn("taskset", ["-c", "0", ...command, file, peer, task]);
  const lines = createInterface({ input: server.stdout })[Symbol.asyncIterator]();
  server.stderr.pipe(process.stderr);
  const port = (await lines.next()).value;
  const look = async () => {
    server.stdin.write("\n");
    return JSON.parse((await lines.next()).value);
  };
  const words = [...load(port, peer), "--threads", "1"].map(String);
  const generator = spawn("taskset", ["-c", "1", program, ...words], { stdio: "ignore" });
  try {
    await pause(WARM_UP_MS);
    const before = await look();
    await pause(seconds * 1000);
    const after = await look();
    const count = after.received - before.received;
    const cpuUs = after.cpuUs - before.cpuUs;
    const ms = after.ms - before.ms;
    return { perS: (count / ms) * 1000, cpuUs: cpuUs / count, busy: cpuUs / ms / 1000 };
  } finally {
    generator.kill("SIGKILL");
    server.kill("SIGKILL");
    await Promise.all([once(generator, "exit"), once(server, "exit")]);
  }
}
