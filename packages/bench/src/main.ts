#!/usr/bin/env node
/**
 * The entry point of `tidewire-bench-ts`: the bench with the TypeScript client, with the options of `tidewire bench`. It
 * starts the program `tidewire`, whose workers are processes of this Node.
 */

import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

const EXIT_USAGE = 2;
const INSTALL =
  "the program `tidewire` is needed: install it (docs/bench.md), or name it with --program FILE or TIDEWIRE_PROGRAM";

/** The words without an option, and the option's value. */
function taken(words: readonly string[], name: string): [rest: string[], value: string | undefined] {
  const rest: string[] = [];
  let value: string | undefined;
  for (let at = 0; at < words.length; at += 1) {
    const word = words[at]!;
    if (word.startsWith(`${name}=`)) value = word.slice(name.length + 1);
    else if (word === name) {
      at += 1;
      value = words[at];
      if (value === undefined) throw new Error(`${name} needs a value`);
    } else rest.push(word);
  }
  return [rest, value];
}

/** The program, found by an option, a variable or `PATH`. */
function programOf(named: string | undefined): string {
  const program = named ?? process.env.TIDEWIRE_PROGRAM ?? "tidewire";
  const folders = program.includes("/") ? [""] : (process.env.PATH ?? "").split(delimiter);
  const found = folders.map((folder) => join(folder, program)).find(isProgram);
  if (found === undefined) throw new Error(`${program} is no program: ${INSTALL}`);
  return found;
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}

/** The command line of the program, and the command of its workers. */
function commandOf(given: readonly string[]): [program: string, words: string[], worker: string] {
  const [withMessages, named] = taken(given, "--program");
  const [words, messages] = taken(withMessages, "--messages");
  if (messages !== undefined && messages !== "made" && messages !== "prepared") {
    throw new Error(`--messages ${messages}: expected made or prepared`);
  }
  const program = programOf(named);
  const file = fileURLToPath(new URL("./worker.js", import.meta.url));
  const prepared = messages === "prepared" ? " --prepared" : "";
  const worker = `exec ${quoted(process.execPath)} ${quoted(file)}${prepared}`;
  // However this process ends, its end is the end of the bench's standard input.
  return [program, ["bench", "--end-with-stdin", "--client", "typescript", ...words], worker];
}

try {
  const [program, words, worker] = commandOf(process.argv.slice(2));
  const env = { ...process.env, TIDEWIRE_WORKER_TYPESCRIPT: worker };
  const bench = spawn(program, words, { env, stdio: ["pipe", "inherit", "inherit"] });
  // The bench then ends its run with a report. A terminal has sent it the signal, too; two signals would end it at once.
  for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => bench.stdin?.end());
  bench.once("exit", (code, signal) => {
    process.exitCode = signal === null ? (code ?? 1) : 1;
  });
} catch (error) {
  console.error(`tidewire-bench-ts: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = EXIT_USAGE;
}
