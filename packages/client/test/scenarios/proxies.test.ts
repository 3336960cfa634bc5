/** What the client promises, through proxies that cut, stall, half-close and corrupt. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { type Client, type ClientOptions, connect, history, type TidewireError } from "../../src/index.js";
import { nodeTransport } from "../../src/node.js";
import { type MessageQueue, queue } from "../../src/queue.js";
import { type Engine, startEngine } from "../node/engine.js";
import { FaultyProxy, type Plan, plan } from "./proxy.js";

interface Scenario {
  name: string;
  transport: "ws" | "wss";
  kinds: string[];
  connections: number;
  seeds: number[];
  holds: "promises" | "life";
}

const FILE = new URL("../../../../protocol/scenarios/proxies.json", import.meta.url);
const { plans, proxies } = JSON.parse(readFileSync(FILE, "utf8")) as {
  plans: { seed: number; connection: number; kinds: string[]; plan: Plan }[];
  proxies: Scenario[];
};
const fixture = (name: string) => fileURLToPath(new URL(`../node/fixtures/${name}`, import.meta.url));
const OPEN = ["--no-auth", "--topics-open", "--history", "kept.>=100000", "--log-level", "error"];
const TLS = ["--tls-certificate", fixture("localhost.pem"), "--tls-key", fixture("localhost.key.pem")];
/** Short enough that a stall ends soon. */
const QUICK: ClientOptions = {
  reconnect: { baseMs: 5, maxMs: 40 },
  connectTimeoutMs: 700,
  idleTimeoutMs: 900,
  requestTimeoutMs: 60_000,
  pingIntervalMs: 200,
};

test.each(plans)(
  "the plan of seed $seed and connection $connection",
  ({ seed, connection, kinds, plan: expected }) => {
    expect(plan(seed, connection, kinds)).toEqual(expected);
  },
);

/** The numbers that a topic keeps, read past the proxy. */
async function kept(client: Client, topic: string): Promise<number[]> {
  const all: number[] = [];
  for (let since: { epoch: string; offset: number } | undefined; ; ) {
    const page = await history<number>(client, topic, { limit: 1_000, ...(since ? { since } : {}) });
    all.push(...page.publications.map(({ payload }) => payload));
    since = page.publications.at(-1)?.position;
    if (!page.hasMore || !since) return all;
  }
}

/** Sends, publishes, asks and receives until the proxy is calm. How many of each. */
async function work(
  client: Client,
  outbox: MessageQueue,
  proxy: FaultyProxy,
  seen: Map<string, number[]>,
): Promise<number> {
  const subscription = client.subscribe<number>(["kept.log", "kept.pub"]);
  subscription.on("message", ({ topic, payload }) => seen.get(topic!)!.push(payload));
  await subscription.ready().catch(() => undefined);
  const calls: Promise<unknown>[] = [];
  let count = 0;
  for (const end = performance.now() + 60_000; !proxy.isCalm && performance.now() < end; count++) {
    calls.push(outbox.publish("kept.log", count), client.publish("kept.pub", count));
    // What may have been carried out fails and is not repeated.
    calls.push(client.request("nobody", count).catch((error: TidewireError) => expectCode(error)));
    await new Promise((resolve) => setTimeout(resolve, 3));
  }
  await Promise.all(calls);
  return count;
}

function expectCode(error: TidewireError): void {
  expect(["NOT_FOUND", "CONNECTION_LOST"]).toContain(error.code);
}

async function through(scenario: Scenario, seed: number, engine: Engine): Promise<void> {
  const { kinds, connections, transport, holds } = scenario;
  const port = Number(engine.address.split(":")[1]);
  const proxy = new FaultyProxy(
    port,
    Array.from({ length: connections }, (_, index) => plan(seed, index, kinds)),
  );
  const at = await proxy.listen();
  const options =
    transport === "wss" ? { transport: nodeTransport({ caFile: fixture("localhost.pem") }) } : {};
  const outbox = queue();
  const client = connect(`${transport}://localhost:${at}/ws`, { ...QUICK, ...options, queue: outbox });
  const seen = new Map<string, number[]>([
    ["kept.log", []],
    ["kept.pub", []],
  ]);
  try {
    if (holds === "life") {
      // A byte that was changed need not end a connection, so that the plans may never be carried out.
      const end = performance.now() + 3_000;
      while (!proxy.isCalm && performance.now() < end) {
        client.trySend("echo", { pad: "x".repeat(200) });
        await new Promise((resolve) => setTimeout(resolve, 3));
        if (client.state === "closed") break;
      }
      return;
    }
    const count = await work(client, outbox, proxy, seen);
    const numbers = Array.from({ length: count }, (_, index) => index);
    const direct = connect(`${transport}://localhost:${port}/ws`, options);
    expect(await kept(direct, "kept.log")).toEqual(numbers);
    expect((await kept(direct, "kept.pub")).sort((a, b) => a - b)).toEqual(numbers);
    await direct.close();
    const end = performance.now() + 20_000;
    while (seen.get("kept.log")!.length < count && performance.now() < end) await new Promise(setImmediate);
    expect(seen.get("kept.log")).toEqual(numbers);
    expect(new Set(seen.get("kept.pub")).size).toBe(seen.get("kept.pub")!.length);
  } finally {
    await client.close();
    await proxy.end();
  }
}

describe.each(proxies)("$name", (scenario) => {
  test.each(scenario.seeds)(
    "seed %i",
    async (seed) => {
      const engine = await startEngine(...OPEN, ...(scenario.transport === "wss" ? TLS : []));
      try {
        await through(scenario, seed, engine);
      } finally {
        await engine.stop();
      }
    },
    120_000,
  );
});
