/**
 * The process that starts the server of a run without a URL. It ends the server when the bench is gone, however the bench
 * ended, and keeps Ctrl-C of the terminal away from it.
 */

import { spawn } from "node:child_process";

/** The server to start. */
export interface ServeCommand {
  program: string;
  arguments: string[];
  jwtSecret: string;
}

/** The result of the start. */
export type ServeAnswer =
  | { kind: "serving"; pid: number; url: string; statsUrl: string }
  | { kind: "ended"; reason: string };

/** How much of the server's words are kept for the reason of its end. */
const WORDS_MAX = 4000;

process.on("SIGINT", () => {});
process.on("SIGTERM", () => {});

process.once("message", (command: ServeCommand) => {
  const child = spawn(command.program, command.arguments, {
    // A group of its own: the terminal's Ctrl-C is for the bench.
    detached: true,
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, TIDEWIRE_JWT_SECRET: command.jwtSecret },
  });
  let words = "";
  let isServing = false;
  const end = (reason: string) => {
    if (process.connected)
      process.send?.({ kind: "ended", reason } satisfies ServeAnswer, () => process.exit(1));
    else process.exit(1);
  };
  const read = (bytes: Buffer) => {
    words = (words + bytes.toString()).slice(-WORDS_MAX);
    const url = /^listening on (ws\S+)$/m.exec(words)?.[1];
    const statsUrl = /^operations on (http\S+)$/m.exec(words)?.[1];
    if (isServing || url === undefined || statsUrl === undefined) return;
    isServing = true;
    process.send?.({ kind: "serving", pid: child.pid!, url, statsUrl } satisfies ServeAnswer);
  };
  child.stdout.on("data", read);
  child.stderr.on("data", read);
  child.once("error", (error) => end(`the server did not start: ${error.message}`));
  child.once("close", (code, signal) => {
    const how = signal === null ? `exit code ${code}` : signal;
    const last = isServing ? "" : `: ${words.trim().split("\n").at(-1) ?? ""}`;
    end(`the server ended with ${how}${last}`);
  });
  process.once("disconnect", () => {
    child.kill("SIGKILL");
    process.exit(0);
  });
});
