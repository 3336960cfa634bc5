import { createHmac } from "node:crypto";
import { afterEach, expect, test, vi } from "vitest";
import { connect, until } from "./client.js";
import { type Engine, startEngine } from "./engine.js";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const SECRET = "a secret of the tests, thirty-two bytes and more";
const engines: Engine[] = [];

async function start(...options: string[]): Promise<Engine> {
  const engine = await startEngine(...options);
  engines.push(engine);
  return engine;
}

afterEach(async () => {
  await Promise.all(engines.splice(0).map((engine) => engine.stop()));
});

function token(): string {
  const part = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const body = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub: "me", exp: Math.floor(Date.now() / 1000) + 600 })}`;
  return `${body}.${createHmac("sha256", SECRET).update(body).digest("base64url")}`;
}

test("a token in Authorization opens the connection, none gets status 401", async () => {
  const engine = await start("--jwt-secret", SECRET);
  const url = `ws://${engine.address}/ws`;
  const refused = connect(url);
  await until(() => refused.closes.length > 0);
  expect(refused.closes[0]).toMatchObject({ code: 1006, status: 401 });
  const accepted = connect(url, { headers: { Authorization: `Bearer ${token()}` } });
  await until(() => accepted.messages.length > 0);
  expect(JSON.parse(accepted.messages[0]!)).toMatchObject({ t: "server_ready" });
  accepted.socket.close(1000, "done");
  await until(() => accepted.closes.length > 0);
  expect(accepted.closes).toEqual([{ code: 1000, reason: "" }]);
});

test("a hundred thousand messages come back unchanged and in order", async () => {
  const engine = await start("--no-auth", "--protocol", "raw", "--app", "echo");
  const client = connect(`ws://${engine.address}/ws`);
  await until(() => client.isOpen);
  const count = 100_000;
  for (let index = 0; index < count; ) {
    for (let batch = 0; batch < 500; batch += 1, index += 1) client.socket.send(`${index} größer`);
    while (client.socket.bufferedBytes > 100_000) await new Promise(setImmediate);
    await new Promise(setImmediate);
  }
  await until(() => client.messages.length === count);
  expect(client.messages.findIndex((message, index) => message !== `${index} größer`)).toBe(-1);
});

test.each([0, 1024])(
  "messages come back by permessage-deflate, from %i bytes on",
  async (deflateBytesMin) => {
    const engine = await start("--no-auth", "--protocol", "raw", "--app", "echo", "--deflate", "shared");
    const client = connect(`ws://${engine.address}/ws`, {}, { deflate: true, deflateBytesMin });
    await until(() => client.isOpen);
    expect(client.socket.extensions).toBe("permessage-deflate");
    const texts = Array.from({ length: 300 }, (_, index) => `${index} größer `.repeat(1 + (index % 200)));
    for (const text of texts) client.socket.send(text);
    client.socket.send(Uint8Array.from(texts.join(""), (letter) => letter.charCodeAt(0) & 255));
    await until(() => client.messages.length === texts.length + 1);
    expect(client.messages.slice(0, -1)).toEqual(texts);
    expect(client.messages.at(-1)).toHaveLength(2 + texts.join("").length * 2);
  },
);

test("an engine that is killed ends the connection with 1006", async () => {
  const engine = await start("--no-auth");
  const client = connect(`ws://${engine.address}/ws`);
  await until(() => client.messages.length > 0);
  await engine.stop("SIGKILL");
  await until(() => client.closes.length > 0);
  expect(client.closes[0]!.code).toBe(1006);
});
