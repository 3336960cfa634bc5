/** A process of the generator: holds connections and executes the commands of the leading process. */

import { Account, type Opened, type Used } from "./account.js";
import { runActivity } from "./activities.js";
import { clockNs } from "./clock.js";
import type { Answer, Command, FromWorker, ToWorker, Word } from "./commands.js";
import { type FanOutLink, runFanOut, subscribe } from "./fan_out.js";
import { Histogram } from "./histogram.js";
import { busiestBetween, threadTimes, waitingTimes } from "./machine.js";
import type { Target } from "./plan.js";
import { Opener, type Session } from "./session.js";

/** How long connections may take to close. */
const CLOSE_MS = 6000;

const sessions: Session[] = [];
let others = Number.MAX_SAFE_INTEGER;
let total: number | undefined;

const link: FanOutLink = {
  tell: (slowest) => say({ kind: "slowest", slowest }),
  othersSlowest: () => others,
  onOthers: () => {},
  finish: (count) => say({ kind: "total", total: count }),
  total: () => total,
};

function say(word: FromWorker): void {
  process.send?.(word);
}

/** Ends when the leading process is gone, however it ended. */
process.once("disconnect", () => process.exit(1));
// Ctrl-C is for the leading process, which then ends this one.
process.on("SIGINT", () => {});

process.on("message", (told: ToWorker) => {
  if ("do" in told) void answer(told);
  else hear(told);
});

function hear(word: Word): void {
  if (word.kind === "total") total = word.total;
  if (word.kind === "others") {
    others = word.slowest;
    link.onOthers();
  }
}

async function answer(command: Command): Promise<void> {
  try {
    say(await obey(command));
  } catch (error) {
    say({ kind: "failed", reason: error instanceof Error ? error.message : String(error) });
  }
}

async function obey(command: Command): Promise<Answer> {
  switch (command.do) {
    case "open":
      return { kind: "opened", opened: await openAll(command) };
    case "reconnect":
      return { kind: "opened", opened: await reconnect(command) };
    case "subscribe":
      await Promise.all(sessions.slice(0, sessions.length - command.but).map(subscribe));
      return { kind: "done" };
    case "close":
      await closeAll();
      return { kind: "done" };
    case "run": {
      const { activity } = command;
      const account = new Account(activity.beganNs, sessions.length);
      total = undefined;
      others = Number.MAX_SAFE_INTEGER;
      const used = watch();
      if (activity.kind === "fan-out") {
        if (activity.publishes && activity.connections > sessions.length) others = 0;
        await runFanOut(activity, sessions, account, link);
      } else {
        await runActivity(activity, sessions, account);
      }
      for (const session of sessions) session.events = {};
      return { kind: "counts", counts: { ...account.finish(), used: used() } };
    }
  }
}

/** Opens connections, some of them at once, each until it is ready. */
async function openAll(command: Command & { do: "open" }): Promise<Opened> {
  const opener = new ConnectionOpener(command.target);
  let next = 0;
  const some = async () => {
    while (next < command.count) {
      next += 1;
      const session = await opener.one(command.first + next - 1);
      if (session !== undefined) sessions.push(session);
    }
  };
  await Promise.all(Array.from({ length: Math.min(command.atOnce, command.count) }, some));
  return opener.finish();
}

/** Opens a connection, closes it, and again. */
async function reconnect(command: Command & { do: "reconnect" }): Promise<Opened> {
  const opener = new ConnectionOpener(command.target);
  for (let round = 0; round < command.rounds; round += 1) {
    const session = await opener.one(command.first + round);
    session?.close();
    await session?.closed;
  }
  return opener.finish();
}

/** Connections that are being opened, and how long that takes. */
class ConnectionOpener {
  readonly #opener: Opener;
  readonly #latencies = new Histogram();
  readonly #used = watch();
  readonly #opened: Opened = {
    attempted: 0,
    connected: 0,
    failures: {},
    latencies: new Histogram().pack(),
    beganNs: clockNs(),
    endedNs: 0,
    server: undefined,
    used: { cpuS: 0, busiestS: 0, waitedS: 0 },
  };

  constructor(target: Target) {
    this.#opener = new Opener(target);
  }

  async one(number: number): Promise<Session | undefined> {
    const opened = this.#opened;
    opened.attempted += 1;
    const beganNs = clockNs();
    try {
      const session = await this.#opener.open(number);
      this.#latencies.record(clockNs() - beganNs);
      opened.connected += 1;
      opened.server ??= session.server;
      return session;
    } catch (error) {
      const reason = (error instanceof Error ? error.message : String(error)).slice(0, 120);
      opened.failures[reason] = (opened.failures[reason] ?? 0) + 1;
      return undefined;
    }
  }

  finish(): Opened {
    return { ...this.#opened, endedNs: clockNs(), latencies: this.#latencies.pack(), used: this.#used() };
  }
}

async function closeAll(): Promise<void> {
  const all = sessions.splice(0);
  for (const session of all) session.close();
  const patience = new Promise((resolve) => setTimeout(resolve, CLOSE_MS).unref());
  await Promise.race([Promise.all(all.map((session) => session.closed)), patience]);
}

/** The processor time of this process from now until the function that is returned is called. */
function watch(): () => Used {
  const cpu = process.cpuUsage();
  const threads = threadTimes(process.pid);
  const waits = waitingTimes(process.pid);
  return () => {
    const used = process.cpuUsage(cpu);
    return {
      cpuS: (used.user + used.system) / 1e6,
      busiestS: busiestBetween(threads, threadTimes(process.pid)),
      waitedS: busiestBetween(waits, waitingTimes(process.pid)),
    };
  };
}
