/** What the stores add to messages and topics. */

import { expect, test } from "vitest";
import { connect, type Message } from "../src/index.js";
import { keyOf, slotFor, topicPlan } from "../src/stores.js";
import { TestServer } from "../src/testing.js";

test("keys are unique, and a list is complete again when it no longer reaches back to what is missing", async () => {
  const server = new TestServer({ history: { "kept.>": 10 } });
  const client = connect(server.url, { transport: server.transport });
  const store = topicPlan<number, never>(["kept.a", "plain"], { max: 3 }).open(
    slotFor({ client }, "microtask"),
  );
  const shown = () => store.get() as { messages: readonly Message<number>[]; isIncomplete: boolean };
  const off = store.subscribe(() => {});
  await expect.poll(() => server.subscribers("plain")).toBe(1);
  for (const topic of ["kept.a", "plain", "plain"]) server.publish(topic, 1);
  await expect.poll(() => shown().messages.length).toBe(3);
  const keys = shown().messages.map(keyOf);
  expect(new Set(keys).size).toBe(3);
  expect(shown().messages.map(keyOf)).toEqual(keys);
  server.drop("publication", { times: 1 });
  for (let n = 0; n < 3; n++) server.publish("kept.a", n);
  await expect.poll(() => shown().isIncomplete).toBe(true);
  server.publish("kept.a", 3);
  await expect.poll(() => shown().isIncomplete).toBe(false);
  off();
  await client.close();
});
