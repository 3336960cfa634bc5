/** The processes of the generator, from the side of the one that leads them. */

import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { Counts, Opened } from "./account.js";
import type { Activity } from "./activities.js";
import { clockNs, NS_PER_S } from "./clock.js";
import type { Answer, Command, FromWorker, ToWorker, Word } from "./commands.js";
import { share, type Target } from "./plan.js";

/** Connections that are opened at once, by all processes together. */
const OPENING_AT_ONCE = 64;
/** So that all processes begin together. */
const HEAD_START_NS = 0.05 * NS_PER_S;

/** A process of the generator ended, or could not execute a command. */
export class WorkerFailed extends Error {
  override readonly name = "WorkerFailed";
}

/** The part of an activity that is the same for all processes. */
export type Work = Omit<Activity, "beganNs" | "number" | "connections" | "publishes">;

/** Some processes with connections, started once and used for all tests. */
export class Fleet {
  readonly #workers: Worker[];
  #target: Target;
  #opened = 0;
  /** Connections of each process. */
  #members: number[];

  constructor(target: Target, processes: number) {
    this.#target = target;
    this.#members = new Array<number>(processes).fill(0);
    this.#workers = Array.from(
      { length: processes },
      (_, slot) => new Worker((word) => this.#pass(slot, word)),
    );
  }

  get processes(): number {
    return this.#workers.length;
  }

  /** The processes that live. */
  get pids(): number[] {
    return this.#workers.map((worker) => worker.pid);
  }

  /** Opens N connections, divided among the first `parts` processes; what each has opened. */
  async open(connections: number, parts = this.processes): Promise<Opened[]> {
    const answers = await this.#ask(parts, (slot) => {
      const count = share(connections, parts, slot);
      const first = this.#opened;
      this.#opened += count;
      const atOnce = Math.max(1, Math.floor(OPENING_AT_ONCE / parts));
      return { do: "open", target: this.#target, count, first, atOnce };
    });
    const opened = answers.map(asOpened);
    for (const [slot, one] of opened.entries()) this.#members[slot]! += one.connected;
    return opened;
  }

  /** Opens and closes connections one after another in one process. */
  async reconnect(rounds: number): Promise<Opened> {
    const answers = await this.#ask(1, () => ({ do: "reconnect", target: this.#target, rounds, first: 0 }));
    return asOpened(answers[0]!);
  }

  /** Subscribes all connections but the publisher, which is the last of the last process. */
  async subscribe(): Promise<void> {
    const last = this.processes - 1;
    await this.#ask(this.processes, (slot) => ({ do: "subscribe", but: slot === last ? 1 : 0 }));
  }

  /** Runs an activity on all connections, begun together; what each process has counted. */
  async run(work: Work, parts = this.processes): Promise<Counts[]> {
    const beganNs = clockNs() + HEAD_START_NS;
    const connections = this.#members.slice(0, parts).reduce((sum, members) => sum + members, 0);
    let number = 0;
    this.#slowest = this.#workers.map(() => 0);
    const answers = await this.#ask(parts, (slot) => {
      const publishes = work.kind === "fan-out" && slot === parts - 1;
      const activity = { ...work, beganNs, number, connections, publishes };
      number += this.#members[slot]!;
      return { do: "run", activity };
    });
    return answers.map(asCounts);
  }

  /** Closes all connections; the processes stay. */
  async close(): Promise<void> {
    await this.#ask(this.processes, () => ({ do: "close" }));
    this.#members = this.#members.map(() => 0);
  }

  /** Ends the processes at once. */
  stop(): void {
    for (const worker of this.#workers) worker.stop();
  }

  /** How far the slowest subscriber of each process is. */
  #slowest: number[] = [];

  /** Forwards the messages of a process to the others. */
  #pass(from: number, word: Word): void {
    const last = this.#workers.length - 1;
    if (word.kind === "total") {
      for (const worker of this.#workers) worker.tell(word);
    } else if (word.kind === "slowest" && from !== last) {
      this.#slowest[from] = word.slowest;
      const slowest = Math.min(...this.#slowest.slice(0, last));
      this.#workers[last]!.tell({ kind: "others", slowest });
    }
  }

  /** Tells the first `parts` processes what to do, and waits for all answers. */
  async #ask(parts: number, command: (slot: number) => Command): Promise<Answer[]> {
    const asked = this.#workers.slice(0, parts);
    const answers = await Promise.all(asked.map((worker, slot) => worker.ask(command(slot))));
    const failed = answers.find((answer) => answer.kind === "failed");
    if (failed !== undefined) throw new WorkerFailed(failed.reason);
    return answers;
  }
}

/** One process. */
class Worker {
  readonly #process: ChildProcess;
  #settle: { resolve: (answer: Answer) => void; reject: (error: Error) => void } | undefined;
  #end: WorkerFailed | undefined;

  constructor(onWord: (word: Word) => void) {
    const program = fileURLToPath(new URL("./worker.js", import.meta.url));
    this.#process = fork(program, [], {
      serialization: "advanced",
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
    this.#process.on("message", (said: FromWorker) => {
      if (said.kind === "slowest" || said.kind === "others" || said.kind === "total") onWord(said);
      else this.#take()?.resolve(said);
    });
    this.#process.once("error", (error) => this.#fail(`a process of the generator failed: ${error.message}`));
    this.#process.once("exit", (code, signal) => {
      const how = signal === null ? `exit code ${code}` : signal;
      this.#fail(`a process of the generator ended with ${how}`);
    });
  }

  get pid(): number {
    return this.#process.pid ?? 0;
  }

  tell(word: ToWorker): void {
    if (this.#end === undefined && this.#process.connected) this.#process.send(word, () => {});
  }

  ask(command: Command): Promise<Answer> {
    if (this.#end !== undefined) return Promise.reject(this.#end);
    return new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
      this.tell(command);
    });
  }

  stop(): void {
    this.#process.kill("SIGKILL");
  }

  #fail(reason: string): void {
    this.#end ??= new WorkerFailed(reason);
    this.#take()?.reject(this.#end);
  }

  #take() {
    const settle = this.#settle;
    this.#settle = undefined;
    return settle;
  }
}

function asOpened(answer: Answer): Opened {
  if (answer.kind !== "opened") throw new WorkerFailed("a process of the generator answered something else");
  return answer.opened;
}

function asCounts(answer: Answer): Counts {
  if (answer.kind !== "counts") throw new WorkerFailed("a process of the generator answered something else");
  return answer.counts;
}
