/** Errors and logs show no passwords and no tokens. */

import { createServer } from "node:net";
import { expect, test } from "vitest";
import { endpoints } from "../src/endpoints.js";
import { type ClientOptions, connect, debug, open } from "../src/index.js";
import { nodeTransport } from "../src/node.js";
import { FakeTransport } from "../src/testing.js";
import { browserTransport } from "../src/transport/browser.js";

const SECRET = "s3cr3t";

/** Everything that an error says, with its causes. */
function words(error: unknown): string {
  const { message, stack, cause } = error as Error;
  return [message, stack, cause ? words(cause) : ""].join("\n");
}

/** A class that fails as browsers do: with the address and the subprotocols in words. */
class Strict {
  constructor(url: string, protocols: string[]) {
    throw new SyntaxError(`The URL '${url}' or the subprotocol '${protocols}' is invalid.`);
  }
}

const FAILURES: [string, string, ClientOptions][] = [
  ["no address", `http//ada:${SECRET}@a.test`, {}],
  ["no address, with a slash in the password", `x y://ada:/${SECRET}@a test/`, {}],
  ["no address, with a token", `nowhere/ws ?token=${SECRET}`, {}],
  ["a port where nobody listens", `ws://127.0.0.1:1/ws?token=${SECRET}`, {}],
  ["a password, which Node's transport refuses", `ws://ada:${SECRET}@127.0.0.1:1/ws`, {}],
  [
    "a browser that refuses the address",
    `ws://ada:${SECRET}@127.0.0.1:1/ws?key=${SECRET}`,
    { token: `${SECRET}/`, transport: browserTransport(Strict as never) },
  ],
  [
    "a token in the query",
    "ws://127.0.0.1:1/ws",
    { token: SECRET, tokenPlacement: { query: "token" }, transport: browserTransport(Strict as never) },
  ],
];

test.each(FAILURES)("%s", async (_, address, options) => {
  const log: string[] = [];
  const reasons: string[] = [];
  const all: ClientOptions = {
    ...options,
    reconnect: false,
    log: (...line) =>
      log.push(
        line.map((part) => (typeof part === "object" ? JSON.stringify(part) : String(part))).join(" "),
      ),
    on: { disconnected: ({ reason }) => reasons.push(reason), error: (error) => reasons.push(words(error)) },
  };
  const error = await open(address, all).catch((error: unknown) => error);
  expect(words(error)).toMatch(/INVALID_OPTION|CONNECT_FAILED|address|127\.0\.0\.1/);
  expect([words(error), ...log, ...reasons].join("\n")).not.toContain(SECRET);
});

test("what a refused upgrade says", async () => {
  const server = createServer((socket) => socket.end("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  const error = await open(`ws://127.0.0.1:${port}/ws?token=${SECRET}`, { transport: nodeTransport() }).catch(
    (one) => one,
  );
  server.close();
  expect(error.message).toContain(`ws://127.0.0.1:${port}/ws`);
  expect(words(error)).not.toContain(SECRET);
});

test("the weight of an endpoint, and the picture of a client", async () => {
  const address = `ws://a.test/ws?token=${SECRET}`;
  expect(() => endpoints([{ url: address, weight: 0 }])).toThrow(/the weight of ws:\/\/a\.test\/ws\?\*\*\*/);
  const client = connect(endpoints([address]), { transport: new FakeTransport() });
  await client.connected();
  expect(JSON.stringify(debug(client))).not.toContain(SECRET);
  expect(debug(client)).toMatchObject({ url: "ws://a.test/ws?***" });
  await client.close();
});
