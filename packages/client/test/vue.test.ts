/** Messages as whoever looks at them sees them, and what Vue's reactive objects make of clients and messages. */

import { execFileSync } from "node:child_process";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { inspect } from "node:util";
import { beforeAll, describe, expect, test } from "vitest";
import { connect, type Message, type TidewireError } from "../src/index.js";
import { FakeTransport } from "../src/testing.js";

const root = fileURLToPath(new URL("../../../", import.meta.url));
const folder = fileURLToPath(new URL("./vue/", import.meta.url));
const hasVue = existsSync(`${folder}node_modules/vue`);

/** A client with a publication that its fast reader has read, and one that the other reader has. */
async function receive(...payloads: string[]) {
  const transport = new FakeTransport();
  transport.onConnect = (connection) => {
    connection.onMessage = (({
      t,
      cid,
      p,
    }: {
      t: string;
      cid: string;
      p: { topics: string[]; action: string };
    }) => {
      if (t !== "subscription_update") return;
      const answer = { action: p.action, success_topics: p.topics, failed_topics: [] };
      connection.send({ c: "WSE", t, cid, p: answer });
    }) as never;
    connection.accept({ features: { topics: true } });
  };
  const errors: TidewireError[] = [];
  const client = connect("ws://a.example/", { transport, on: { error: (error) => errors.push(error) } });
  const subscription = await client.subscribe("room").ready();
  const messages: Message[] = [];
  subscription.on("message", (message) => messages.push(message));
  for (const payload of payloads)
    transport.connections[0]!.send(`{"c":"U","t":"chat","tp":"room","p":${payload}}`);
  return { client, subscription, messages, errors };
}

test("a message is plain data for whoever looks", async () => {
  const { client, messages } = await receive(
    '{"text":"hello","list":[1,{"a":null}]}',
    '"text","id":"later"',
    "[]",
  );
  expect(messages).toHaveLength(3);
  const payloads = [{ text: "hello", list: [1, { a: null }] }, "text", []];
  for (const [at, payload] of payloads.entries()) {
    const message = messages[at]!;
    expect({ ...message }.payload).toEqual(payload);
    expect(Object.keys(message)).toContain("payload");
    expect(JSON.parse(JSON.stringify(message))).toMatchObject({ type: "chat", topic: "room", payload });
    expect(structuredClone(message)).toMatchObject({ type: "chat", topic: "room", payload });
    expect(inspect(message, { depth: 5 })).toContain(`payload: ${inspect(payload, { depth: 5 })}`);
    // Some look through a proxy, which private members and accessors of a class do not survive.
    expect(new Proxy(message, {}).payload).toEqual(payload);
  }
  await client.close();
});

test("a payload that is no JSON is an error of the client, and what follows it arrives", async () => {
  const { client, messages, errors } = await receive("{]}", '{"text":"next"}');
  expect(messages.map(({ payload }) => payload)).toEqual([{ text: "next" }]);
  expect(errors.map(({ code }) => code)).toEqual(["INVALID_MESSAGE"]);
  await client.close();
});

describe.skipIf(!hasVue)("Vue", () => {
  let vue: { ref<T>(value: T): { value: T }; reactive<T>(value: T): T; watchEffect(call: () => void): void };

  beforeAll(() => {
    vue = createRequire(folder)("vue");
  });

  test("ref and reactive hold clients, subscriptions and messages", async () => {
    const { client, subscription, messages } = await receive('{"text":"hello"}');
    const inRef = vue.ref(client);
    const state = vue.reactive({ client, subscription, messages: [] as Message[] });
    const seen: string[] = [];
    vue.watchEffect(() => seen.push(JSON.stringify(state.messages.map(({ payload }) => payload))));
    state.messages.push(...messages);
    expect(state.messages[0]!.payload).toEqual({ text: "hello" });
    expect(inRef.value.state).toBe("open");
    expect(inRef.value.send("a", { b: 1 })).toBe(true);
    expect(inRef.value.on("message", () => undefined)).toBeTypeOf("function");
    expect(state.subscription.status.get().state).toBe("active");
    state.subscription.on("message", () => undefined)();
    await state.client.close();
    expect(seen[0]).toBe("[]");
  });

  test("the types of a ref of messages fit", () => {
    const path = `${folder}types.ts`;
    writeFileSync(
      path,
      `import { ref } from "vue";
       import type { Client, Message } from "../../dist/esm/index.js";
       interface Chat { text: string }
       const messages = ref<Message<Chat>[]>([]);
       export function add(message: Message<Chat>, client: Client): string {
         messages.value.push(message);
         messages.value = [...messages.value, message];
         const first: Message<Chat> | undefined = messages.value[0];
         if (first) messages.value = [first];
         const one = ref<Client>(client);
         one.value = client;
         return messages.value[0]!.payload.text;
       }\n`,
    );
    try {
      const options = [
        "--ignoreConfig",
        "--noEmit",
        "--strict",
        "--skipLibCheck",
        "--types",
        "",
        "--module",
        "esnext",
      ];
      const more = ["--moduleResolution", "bundler", "--target", "es2022", "--lib", "es2023,dom"];
      execFileSync(`${root}node_modules/.bin/tsc`, [...options, ...more, path], {
        cwd: folder,
        encoding: "utf8",
      });
    } finally {
      rmSync(path);
    }
  });
});
