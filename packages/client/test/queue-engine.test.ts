/** Acknowledged messages from a queue to the real engine, over connections that are cut. */

import { once } from "node:events";
import { type AddressInfo, createServer, connect as dial, type Socket } from "node:net";
import { afterEach, expect, test, vi } from "vitest";
import type { QueueReport } from "../src/core/queue-port.js";
import { type Client, type ClientOptions, connect } from "../src/index.js";
import { queue } from "../src/queue/node.js";
import { type Engine, startEngine } from "./node/engine.js";
import { until } from "./queue-cases.js";

const OPEN = ["--no-auth", "--topics-open", "--history", "kept.>=10000", "--log-level", "error"];

const closers: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function engine(...options: string[]): Promise<Engine> {
  const started = await startEngine(...OPEN, ...options);
  closers.push(() => started.stop());
  return started;
}

function client(address: string, options: ClientOptions = {}): Client {
  const made = connect(`ws://${address}/ws`, { reconnect: { baseMs: 10, maxMs: 50 }, ...options });
  closers.push(() => made.close());
  return made;
}

/** A proxy that can cut all connections through it. */
async function proxy(target: string): Promise<{ address: string; cut(): void }> {
  const [host, port] = target.split(":");
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    const onward = dial(Number(port), host!);
    for (const [from, to] of [
      [socket, onward],
      [onward, socket],
    ] as const) {
      sockets.add(from);
      from.on("error", () => {});
      from.on("close", () => {
        sockets.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  closers.push(async () => {
    cut();
    server.close();
    await once(server, "close");
  });
  return { address: `127.0.0.1:${(server.address() as AddressInfo).port}`, cut };
}

test("each message arrives once and in order, however often the connection is cut", async () => {
  const { address } = await engine();
  const received: unknown[] = [];
  const reader = client(address);
  const subscription = reader.subscribe("kept.orders", { recover: true });
  const reading = (async () => {
    for await (const { payload } of subscription) received.push(payload);
  })();
  await subscription.ready();
  const between = await proxy(address);
  const outbox = queue({ window: 64 });
  client(between.address, { queue: outbox });
  const count = 2_000;
  const publishing: Promise<void>[] = [];
  for (let number = 0; number < count; number += 1) {
    publishing.push(outbox.publish("kept.orders", number));
    if (number % 100 === 99) {
      await until(() => received.length >= number - 60, "some arrive");
      between.cut();
    }
  }
  await Promise.all(publishing);
  await until(() => received.length >= count, "all arrive");
  expect(received).toEqual(Array.from({ length: count }, (_, number) => number));
  await until(() => outbox.depth === 0, "the queue is empty");
  await reader.close();
  await reading;
});

test("a refused message is told, and those after it arrive", async () => {
  const { address } = await engine();
  const outbox = queue();
  client(address, { queue: outbox });
  const codes = await Promise.all(
    ["orders", "not a topic", "orders"].map((topic) =>
      outbox.publish(topic, 1).then(
        () => "none",
        ({ code }) => code,
      ),
    ),
  );
  expect(codes).toEqual(["none", "INVALID_MESSAGE", "none"]);
});

test("a server that was killed has forgotten the producer: what was on its way is reported", async () => {
  const first = await engine();
  const outbox = queue();
  const taken = vi.spyOn(outbox, "take");
  const given = async () => (await Promise.all(taken.mock.results.map(({ value }) => value))).flat().length;
  const reports: QueueReport[] = [];
  const writer = client(first.address, { queue: outbox });
  writer.on("uncertain", (report) => reports.push(report as QueueReport));
  await outbox.publish("orders", "taken");
  // It reads no more, so that what is sent now is not acknowledged.
  await first.freeze();
  const lost = [1, 2, 3].map((number) => outbox.publish("orders", number));
  const codes = Promise.all(lost.map((one) => one.then(String, ({ code }) => code)));
  await until(async () => (await given()) === 4, "they are on their way");
  await first.stop("SIGKILL");
  await engine("--listen", first.address);
  expect(await codes).toEqual(["CONNECTION_LOST", "CONNECTION_LOST", "CONNECTION_LOST"]);
  expect(reports).toMatchObject([
    { resent: false, messages: [{ payload: "1" }, { payload: "2" }, { payload: "3" }] },
  ]);
  await outbox.publish("orders", "after it");
  await until(() => outbox.depth === 3, "the uncertain ones are kept");
  for (const report of reports) if (report.type === "uncertain") report.done();
  await until(() => outbox.depth === 0, "the uncertain ones are gone, because the application knows them");
});

test("a message that is added at whatever moment of another's way is not forgotten", async () => {
  const { address } = await engine();
  const outbox = queue();
  client(address, { queue: outbox });
  for (let round = 0; round < 400; round += 1) {
    const first = outbox.publish("orders", 1);
    for (let tick = 0; tick < round % 40; tick += 1) await undefined;
    await Promise.all([first, outbox.publish("orders", 2)]);
  }
  expect(outbox.depth).toBeLessThanOrEqual(2);
});
