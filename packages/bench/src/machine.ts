/** Processor time and memory of processes, and limits of this machine, as Linux reports them; nothing elsewhere. */

import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { cpus, release, totalmem, type } from "node:os";

/** The unit of processor time in `/proc`, which Linux fixes for programs. */
const TICKS_PER_S = 100;

/** The processor time of some processes up to one moment. */
export interface Sample {
  cpuS: number;
  rssBytes: number;
  /** Seconds of each thread, by process and thread. */
  threads: Map<string, number>;
}

/** The processor time of the processes; `undefined` where it cannot be read. */
export function sample(pids: readonly number[]): Sample | undefined {
  const threads = new Map<string, number>();
  let cpuS = 0;
  let rssBytes = 0;
  let seen = 0;
  for (const pid of pids) {
    const total = cpuOf(read(`/proc/${pid}/stat`));
    const status = read(`/proc/${pid}/status`);
    if (total === undefined || status === undefined) continue;
    seen += 1;
    cpuS += total;
    rssBytes += Number(/^VmRSS:\s+([0-9]+) kB/m.exec(status)?.[1] ?? 0) * 1024;
    for (const [thread, seconds] of threadTimes(pid)) threads.set(`${pid} ${thread}`, seconds);
  }
  return seen === 0 ? undefined : { cpuS, rssBytes, threads };
}

/** Processor time of the thread that was busiest between two samples. */
export function busiestBetween(before: Map<string, number>, after: Map<string, number>): number {
  let most = 0;
  for (const [thread, seconds] of after) most = Math.max(most, seconds - (before.get(thread) ?? 0));
  return most;
}

/** Processor time of each thread of a process, in seconds. */
export function threadTimes(pid: number): Map<string, number> {
  const times = new Map<string, number>();
  for (const [thread, words] of ofThreads(pid, "stat")) times.set(thread, cpuOf(words) ?? 0);
  return times;
}

/** How long each thread of a process was ready to run without a core, in seconds. */
export function waitingTimes(pid: number): Map<string, number> {
  const times = new Map<string, number>();
  for (const [thread, words] of ofThreads(pid, "schedstat")) {
    times.set(thread, Number(words.split(" ")[1] ?? 0) / 1e9);
  }
  return times;
}

/** Processes and everything that they have started. */
export function tree(roots: readonly number[]): number[] {
  const children = new Map<number, number[]>();
  for (const pid of allPids()) {
    const parent = Number(fields(read(`/proc/${pid}/stat`) ?? "")[1] ?? 0);
    children.set(parent, [...(children.get(parent) ?? []), pid]);
  }
  const found = new Set<number>();
  const waiting = [...roots];
  for (let pid = waiting.pop(); pid !== undefined; pid = waiting.pop()) {
    if (found.has(pid)) continue;
    found.add(pid);
    waiting.push(...(children.get(pid) ?? []));
  }
  return [...found].sort((one, other) => one - other);
}

/** The processes that listen on a port of this machine. */
export function listenersOf(port: number): number[] {
  const inodes = new Set<string>();
  for (const file of ["/proc/net/tcp", "/proc/net/tcp6"]) {
    for (const line of (read(file) ?? "").split("\n").slice(1)) {
      const words = line.trim().split(/\s+/);
      const isListening = words[3] === "0A";
      const local = Number.parseInt(words[1]?.split(":")[1] ?? "", 16);
      if (isListening && local === port && words[9] !== undefined) inodes.add(`socket:[${words[9]}]`);
    }
  }
  return allPids().filter((pid) => openFiles(pid).some((target) => inodes.has(target)));
}

/** The cores that a process may run on. */
export function coresOf(pid: number | "self"): Set<number> {
  const list = /^Cpus_allowed_list:\s+(\S+)/m.exec(read(`/proc/${pid}/status`) ?? "")?.[1];
  const cores = new Set<number>();
  for (const range of list?.split(",") ?? []) {
    const [first, last] = range.split("-").map(Number);
    for (let core = first!; core <= (last ?? first!); core += 1) cores.add(core);
  }
  if (list === undefined) for (let core = 0; core < cpus().length; core += 1) cores.add(core);
  return cores;
}

/** How long these cores have worked for anybody since the machine was started, in seconds. */
export function coresBusyS(cores: ReadonlySet<number>): number | undefined {
  const text = read("/proc/stat");
  if (text === undefined) return undefined;
  let ticks = 0;
  for (const line of text.split("\n")) {
    const core = /^cpu([0-9]+) /.exec(line)?.[1];
    if (core === undefined || !cores.has(Number(core))) continue;
    const words = line.split(" ").map(Number);
    // User, nice, system, irq and softirq; the others are idle, or other machines.
    ticks += words[1]! + words[2]! + words[3]! + words[6]! + words[7]!;
  }
  return ticks / TICKS_PER_S;
}

/** Files that a process may open; Node raises the limit of its own as far as it may. */
export function openFilesMax(): number {
  const limit = /^Max open files\s+(\S+)/m.exec(read("/proc/self/limits") ?? "")?.[1];
  return limit === undefined || limit === "unlimited" ? Number.POSITIVE_INFINITY : Number(limit);
}

/** Source ports for connections from one address to one address and port. */
export function sourcePorts(): number {
  const [first, last] = (read("/proc/sys/net/ipv4/ip_local_port_range") ?? "0 65535")
    .trim()
    .split(/\s+/)
    .map(Number);
  return last! - first! + 1;
}

/** The queue of connections that a listener may have. */
export function backlogMax(): number | undefined {
  const text = read("/proc/sys/net/core/somaxconn");
  return text === undefined ? undefined : Number(text);
}

/** The machine as a report has it. */
export function machine(): Record<string, string | number> {
  const name = /^PRETTY_NAME="?([^"\n]*)/m.exec(read("/etc/os-release") ?? "")?.[1];
  const model = cpus()[0]?.model;
  return {
    ...(model ? { cpu: model } : {}),
    cores: coresOf("self").size,
    memory_bytes: totalmem(),
    os: name ?? type(),
    kernel: release(),
  };
}

function allPids(): number[] {
  return list("/proc").map(Number).filter(Number.isInteger);
}

function openFiles(pid: number): string[] {
  return list(`/proc/${pid}/fd`).map((file) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${file}`);
    } catch {
      return "";
    }
  });
}

function* ofThreads(pid: number, file: string): Generator<[thread: string, words: string]> {
  for (const thread of list(`/proc/${pid}/task`)) {
    const words = read(`/proc/${pid}/task/${thread}/${file}`);
    if (words !== undefined) yield [thread, words];
  }
}

function cpuOf(stat: string | undefined): number | undefined {
  if (stat === undefined) return undefined;
  const words = fields(stat);
  return (Number(words[11]) + Number(words[12])) / TICKS_PER_S;
}

/** The fields of a `stat` file behind the name, which stands in brackets and may hold anything. */
function fields(stat: string): string[] {
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ");
}

function list(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return [];
  }
}

function read(file: string): string | undefined {
  try {
    return readFileSync(file, "utf8");
  } catch {
    return undefined;
  }
}
