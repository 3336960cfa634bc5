import { afterEach, expect, test } from "vitest";
import { connect, type Message, type TidewireError } from "../src/index.js";
import { FakeTransport } from "../src/testing.js";

const unhandled: unknown[] = [];
const note = (error: unknown) => unhandled.push(error);
process.on("unhandledRejection", note);
afterEach(() => void process.off("unhandledRejection", note));

test("a batch with a message that must come alone is refused as a whole", async () => {
  const transport = new FakeTransport();
  const messages: Message[] = [];
  const errors: TidewireError[] = [];
  const client = connect("ws://a.example/ws", {
    transport,
    on: { message: (message) => messages.push(message), error: (error) => errors.push(error) },
  });
  await client.ready();
  const server = transport.connections[0]!;
  const batch = (...list: unknown[]) => ({ t: "batch", p: { messages: list } });
  server.send(batch({ t: "a" }, { t: "key_update", p: { request: true } }));
  server.send(batch({ t: "a" }, batch({ t: "b" })));
  server.send(batch({ t: "a" }, { t: "server_hello" }));
  server.send(batch({ t: "a" }, 17));
  server.send(batch({ t: "c" }, { t: "d" }));
  await new Promise(setImmediate);
  expect(errors.map(({ code }) => code)).toEqual(Array(4).fill("INVALID_MESSAGE"));
  expect(messages.map(({ type }) => type)).toEqual(["c", "d"]);
  expect(unhandled).toEqual([]);
  await client.close();
});
