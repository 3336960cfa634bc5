import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { type Engine, program, startEngine } from "../../client/test/node/engine.js";
import type { TestServer } from "../../client/test/node/server.js";
import { buildProgram, removeProgram } from "./build.js";
import { startLiar } from "./lying.js";
import { isAlive, run, start, until, useProgram } from "./program.js";

vi.setConfig({ testTimeout: 300_000, hookTimeout: 300_000 });

let built: string;
const engines: Engine[] = [];
const servers: TestServer[] = [];

beforeAll(async () => {
  built = await buildProgram();
  useProgram(built);
});

afterAll(() => removeProgram(built));

afterEach(async () => {
  await Promise.all([...engines.splice(0), ...servers.splice(0)].map((one) => one.stop()));
});

async function engine(...options: string[]): Promise<Engine> {
  const started = await startEngine(
    "--no-auth",
    "--app",
    "sink",
    "--topics-open",
    "--rate-limit-capacity",
    "0",
    ...options,
  );
  engines.push(started);
  return started;
}

async function liar(lie: Parameters<typeof startLiar>[0]): Promise<string> {
  const server = await startLiar(lie);
  servers.push(server);
  return server.url;
}

/** Figures of a machine that does something else beside the tests may be the generator's, but are right. */
const RIGHT = ["valid", "noisy", "generator_bound"];

test("the worker keeps the contract", () => {
  const worker = `${process.execPath} ${join(built, "worker.js")}`;
  const said = spawnSync(program(), ["worker", "--check", worker], { encoding: "utf8" });
  expect(said.status, said.stdout + said.stderr).toBe(0);
});

describe("all tests", () => {
  test("run against a server of their own, are right, and their report is one", async () => {
    const { code, report, output, reportFile } = await run("--quick");
    expect(report.tool).toMatchObject({ name: "tidewire", language: "typescript" });
    expect(report.target).toMatchObject({ embedded: true, server: "tidewire/0.1.0" });
    expect(report.partial).toBe(false);
    const tests = [...new Set(report.results.map((result: { test: string }) => result.test))];
    expect(tests).toEqual(report.plan.tests);
    expect(tests.length).toBe(8);
    for (const result of report.results) {
      expect(RIGHT, `${result.test}: ${result.notes.join(" ")}`).toContain(result.verdict);
      if (result.messages === undefined) continue;
      expect(result.messages.offered).toBeGreaterThan(0);
      expect(result.messages.confirmed).toBe(result.messages.offered);
      expect(result.messages.delivered).toBe(result.messages.offered);
      expect(result.messages.lost).toBe(0);
    }
    expect(code).toBe(worstExit(report.results));
    expect(output).toContain("format-comparison");
    const shown = spawnSync(program(), ["report", reportFile], { encoding: "utf8" });
    expect(shown.status).toBe(0);
    expect(shown.stdout).toContain("fan-out");
  });

  test("that only some ask for run too, and name what each process did", async () => {
    const tests = "connect-latency,rapid-reconnect,sustained-throughput,throughput,fan-out";
    const { report } = await run("--quick", "--processes", "2", "--test", tests);
    expect(report.plan.threads).toBe(2);
    expect(report.results.map((result: { test: string }) => result.test)).toEqual(tests.split(","));
    for (const result of report.results) {
      expect(RIGHT, `${result.test}: ${result.notes.join(" ")}`).toContain(result.verdict);
    }
    const { processes, messages } = report.results.find((one: { test: string }) => one.test === "throughput");
    expect(processes.count).toBe(2);
    expect(processes.rates_per_s.length).toBe(2);
    expect(messages.delivered).toBe(messages.offered);
  });

  test.each([
    [[]],
    [["--rate-per-s", "300"]],
    [["--rate-per-s", "300", "--poisson"]],
    [["--payload", "trades"]],
  ])("of echoes %j compare each reply", async (words) => {
    const { report } = await run("--quick", "--test", "echo", "--payload-bytes", "700", ...words);
    const [result] = report.results;
    expect(RIGHT, result.notes.join(" ")).toContain(result.verdict);
    expect(result.messages.confirmed).toBe(result.messages.offered);
    expect(result.latency_us.count).toBe(result.messages.offered);
    expect(result.replies).toMatchObject({ wrong: 0, missing: 0, doubled: 0, reordered: 0 });
  });

  test("may be compressed, each message by permessage-deflate", async () => {
    const { report } = await run("--quick", "--test", "echo", "--payload-bytes", "700", "--deflate");
    const [result] = report.results;
    expect(RIGHT, result.notes.join(" ")).toContain(result.verdict);
    expect(result.extensions).toEqual(["permessage-deflate"]);
    expect(result.messages.confirmed).toBe(result.messages.offered);
    expect(result.replies).toMatchObject({ wrong: 0, missing: 0, doubled: 0, reordered: 0 });
  });

  test("fail by name if the server does not accept permessage-deflate", async () => {
    const { address } = await engine();
    const { code, report } = await run(
      `ws://${address}/ws`,
      "--quick",
      "--test",
      "connect-latency",
      "--deflate",
    );
    expect(code).toBe(1);
    expect(report.results[0].verdict).toBe("failed");
    expect(report.results[0].notes.join(" ")).toContain("does not accept permessage-deflate");
  });

  test("compare the formats that the others have, too", async () => {
    const { report } = await run("--quick", "--test", "format-comparison");
    expect(report.results.map((result: { format: string }) => result.format)).toEqual([
      "json",
      "msgpack",
      "zlib",
    ]);
    for (const result of report.results) expect(result.messages.delivered).toBe(result.messages.offered);
  });

  test("take a URL, a token, the server's counters and a rate", async () => {
    const secret = "a secret of the tests, thirty-two bytes and more";
    const started = await startEngine("--jwt-secret", secret, "--app", "sink", "--ops-listen", "127.0.0.1:0");
    engines.push(started);
    const { report } = await run(
      `ws://${started.address}/ws`,
      ...[
        "--jwt-secret",
        secret,
        "--stats-url",
        `http://${started.opsAddress}`,
        "--quick",
        "--test",
        "throughput",
      ],
      ...["--rate-per-s", "500", "--connections", "5", "--messages", "prepared"],
    );
    const [result] = report.results;
    expect(RIGHT, result.notes.join(" ")).toContain(result.verdict);
    expect(result.pace).toMatchObject({ loop: "open", planned_per_s: 500 });
    expect(result.messages.delivered).toBe(result.messages.offered);
    expect(result.cpu.server_s ?? 0).toBeGreaterThanOrEqual(0);
    expect(JSON.stringify(report)).not.toContain(secret);
    expect(report.target).toMatchObject({ embedded: false });
  });

  test("count what the rate limit refuses, and not as confirmed", async () => {
    const started = await startEngine(
      ...["--no-auth", "--app", "sink", "--ops-listen", "127.0.0.1:0"],
      ...["--rate-limit-capacity", "50", "--rate-limit-refill-per-s", "50", "--errors-max", "1000000000"],
    );
    engines.push(started);
    const url = `ws://${started.address}/ws`;
    const { report } = await run(
      url,
      ...[
        "--stats-url",
        `http://${started.opsAddress}`,
        "--quick",
        "--test",
        "throughput",
        "--connections",
        "2",
      ],
    );
    const [result] = report.results;
    expect(result.messages.refused).toBeGreaterThan(0);
    expect(result.messages.confirmed + result.messages.refused).toBe(result.messages.offered);
    expect(result.messages.delivered).toBe(result.messages.confirmed);
    expect(result.refused_by.rate).toBe(result.messages.refused);
  });
});

describe("the three clients", () => {
  test("are compared by one command", () => {
    const out = mkdtempSync(join(built, "all-"));
    const bin = join(out, "bin");
    mkdirSync(bin);
    // As they are found where the packages are installed.
    const worker = join(built, "worker.js");
    writeFileSync(join(bin, "tidewire-worker-ts"), `#!/bin/sh\nexec "${process.execPath}" "${worker}"\n`, {
      mode: 0o755,
    });
    const python = fileURLToPath(new URL("../../../bindings/python/.venv/bin", import.meta.url));
    const said = spawnSync(
      program(),
      ["bench", "--client", "all", "--quick", "--test", "throughput", "--quiet", "--out", out],
      { encoding: "utf8", env: { ...process.env, PATH: `${bin}:${python}:${process.env.PATH}` } },
    );
    expect([0, 3, 4], said.stderr).toContain(said.status);
    for (const client of ["rust", "python", "typescript"]) {
      const report = JSON.parse(readFileSync(join(out, client, "report.json"), "utf8"));
      expect(report.tool.language).toBe(client);
      const [{ messages }] = report.results;
      expect(messages.delivered).toBe(messages.offered);
    }
    expect(said.stdout).toContain("typescript");
    expect(existsSync(join(out, "comparison.html"))).toBe(true);
  });
});

/** Whether an engine has N connections, and has had messages. */
async function isLoaded(started: Engine, connections: number): Promise<boolean> {
  const answer = await fetch(`http://${started.opsAddress}/stats`);
  const { shards } = (await answer.json()) as { shards: Record<string, number>[] };
  const sum = (name: string) => shards.reduce((total, shard) => total + shard[name]!, 0);
  return sum("connections_open") === connections && sum("messages_delivered") > 0;
}

function workersOf(pids: number[]): number[] {
  const isWorker = (pid: number) => commandOf(pid).split("\0")[1]?.endsWith("/worker.js") === true;
  return pids.filter(isWorker).sort((one, other) => one - other);
}

function commandOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8");
  } catch {
    return "";
  }
}

function worstExit(results: { verdict: string }[]): number {
  if (results.some((result) => result.verdict === "generator_bound")) return 3;
  return results.some((result) => result.verdict === "noisy") ? 4 : 0;
}

describe("a mistake in the command line", () => {
  test.each([
    [["--proceses", "2"], /--processes/],
    [["--processes", "0"], /a number from 1/],
    [["--messages", "none"], /made or prepared/],
    [["--test", "fanout"], /fan-out/],
    [["--encrypt", "--quick"], /typescript client has no layer `encryption`, only: [a-z, ]+\n$/],
    [["http://localhost/"], /ws:\/\/ or wss:\/\//],
    [
      ["--program", "/nonexistent/tidewire"],
      /^tidewire-bench-ts: \/nonexistent\/tidewire is no program.*TIDEWIRE_PROGRAM/,
    ],
  ])("%j is told in one line with exit code 2", async (words, line) => {
    const { code, errors, output, report } = await run(...words);
    expect(errors).toMatch(line);
    expect(errors.trimEnd().split("\n").length).toBe(1);
    expect(output).toBe("");
    expect(code).toBe(2);
    expect(report).toBeUndefined();
  });
});

describe("the end", () => {
  test.each(["SIGINT", "SIGTERM"] as const)(
    "by %s leaves a partial report and no process",
    async (signal) => {
      const running = start(
        "--test",
        "ping-latency,throughput",
        "--connections",
        "5",
        "--duration-s",
        "600",
        "--processes",
        "2",
      );
      await until(() => running.errors().includes("throughput, 5"));
      await until(() => running.children().length >= 4);
      const children = running.children();
      running.process.kill(signal);
      const { code, report } = await running.end;
      expect(code).toBe(130);
      expect(report.partial).toBe(true);
      expect(report.partial_reason).toBe("the run was interrupted");
      expect(report.results[0]).toMatchObject({ test: "ping-latency" });
      expect(report.results.at(-1).doubts).toContain("interrupted");
      await until(() => !children.some(isAlive));
    },
  );

  test("by SIGKILL leaves no process", async () => {
    const running = start(
      "--test",
      "throughput",
      "--connections",
      "5",
      "--duration-s",
      "600",
      "--processes",
      "2",
    );
    await until(() => running.children().length >= 4);
    const children = running.children();
    running.process.kill("SIGKILL");
    await running.end;
    await until(() => !children.some(isAlive));
  });

  test("of one of its processes fails the test, names it, and the others go on", async () => {
    const started = await engine("--ops-listen", "127.0.0.1:0");
    const running = start(
      `ws://${started.address}/ws`,
      ...[
        "--profile",
        "v1",
        "--test",
        "throughput",
        "--connections",
        "4",
        "--duration-s",
        "3",
        "--processes",
        "2",
      ],
    );
    await until(() => workersOf(running.children()).length === 2);
    while (!(await isLoaded(started, 4))) await new Promise((resolve) => setTimeout(resolve, 5));
    process.kill(workersOf(running.children())[1]!, "SIGKILL");
    const { code, report } = await running.end;
    expect(code).toBe(1);
    const [result] = report.results;
    expect(result).toMatchObject({ verdict: "failed", failed: 2 });
    expect(result.notes.join(" ")).toMatch(/Worker 2 \(typescript.* ended/);
    expect(result.messages.confirmed).toBe(result.messages.offered);
    await until(() => running.children().length === 0);
  });

  test("of the server fails the test, and the report says so", async () => {
    const started = await engine("--ops-listen", "127.0.0.1:0");
    const running = start(
      `ws://${started.address}/ws`,
      ...["--profile", "v1", "--test", "throughput", "--connections", "4", "--duration-s", "600"],
    );
    while (!(await isLoaded(started, 4))) await new Promise((resolve) => setTimeout(resolve, 5));
    await started.stop("SIGKILL");
    const { code, report } = await running.end;
    expect(code).toBe(1);
    expect(report.results[0].verdict).toBe("failed");
    expect(report.results[0].doubts).toContain("connections_failed");
    expect(report.results[0].failed).toBe(4);
  });

  test("of a server that it has started is the reason of a partial report", async () => {
    const running = start(
      "--test",
      "throughput,size-matrix",
      "--connections",
      "4",
      "--duration-s",
      "2",
      "--quick",
    );
    await until(() => running.errors().includes("throughput, 4"));
    const serve = running.children().find((pid) => commandOf(pid).includes("\0serve\0"));
    process.kill(serve!, "SIGKILL");
    const { code, report } = await running.end;
    expect(code).toBe(1);
    expect(report.partial).toBe(true);
    expect(report.partial_reason).toMatch(/^the server ended during the run.*signal: 9/);
  });

  test("comes at once when nobody listens", async () => {
    const { code, errors } = await run("ws://127.0.0.1:1/ws", "--quick", "--test", "connection-storm");
    expect(code).toBe(2);
    expect(errors).toContain("nothing listens there");
  });
});

describe("a server that lies", () => {
  const brief = [
    "--profile",
    "v1",
    "--test",
    "throughput",
    "--connections",
    "2",
    "--quick",
    "--pong-timeout-s",
    "0.3",
  ];

  test("by answering no ping has confirmed nothing", async () => {
    const { code, report } = await run(await liar("answers none"), ...brief);
    const [result] = report.results;
    expect(code).toBe(1);
    expect(result.messages.confirmed).toBe(0);
    expect(result.messages.lost).toBe(result.messages.offered);
    expect(result.rate_per_s).toBeUndefined();
    expect(result.doubts).toEqual(expect.arrayContaining(["messages_lost", "pongs_lost"]));
  });

  test("by guessing the tokens is found out", async () => {
    const { code, report } = await run(await liar("answers with another token"), ...brief);
    expect(code).toBe(1);
    expect(report.results[0].messages.confirmed).toBe(0);
    expect(report.results[0].doubts).toEqual(expect.arrayContaining(["pongs_strange", "messages_lost"]));
  });

  test("by answering twice is found out", async () => {
    const { code, report } = await run(await liar("answers each twice"), ...brief);
    expect(code).toBe(1);
    expect(report.results[0].doubts).toContain("pongs_strange");
  });

  test("in its counters is found out", async () => {
    const started = await engine("--ops-listen", "127.0.0.1:0");
    // Counters of a server that takes only half of what it confirms.
    const stats = createServer(async (_request, response) => {
      const answer = await fetch(`http://${started.opsAddress}/stats`);
      const counters = (await answer.json()) as { total: Record<string, number> };
      counters.total.messages_delivered = Math.floor(counters.total.messages_delivered! / 2);
      response.end(JSON.stringify(counters));
    });
    await new Promise<void>((resolve) => stats.listen(0, "127.0.0.1", resolve));
    const { port } = stats.address() as AddressInfo;
    const { code, report } = await run(
      `ws://${started.address}/ws`,
      "--stats-url",
      `http://127.0.0.1:${port}`,
      ...brief,
    );
    stats.close();
    expect(code).toBe(1);
    expect(report.results[0].doubts).toContain("counters_short");
    expect(report.results[0].messages.delivered).toBeLessThan(report.results[0].messages.offered);
  });
});
