// The chat of examples/chat: the same application on Tidewire and on Socket.IO does the same.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { io } from "socket.io-client";
import { eventually, soon } from "./support.mjs";

const examples = new URL("../../../examples/chat/", import.meta.url);
// Inside the package its own name means it.
const folder = new URL("../.snippets/", import.meta.url);
const hasClient = fs.existsSync(new URL("../../../packages/client/dist/esm/index.js", import.meta.url));

/** Runs one of both applications; the port at which it serves. */
async function run(test, name) {
  fs.mkdirSync(folder, { recursive: true });
  const file = new URL(`chat-${name}`, folder);
  fs.copyFileSync(new URL(name, examples), file);
  const child = spawn(process.execPath, [file.pathname], { env: { ...process.env, PORT: "0" } });
  child.stderr.pipe(process.stderr);
  test.after(() => child.kill("SIGKILL"));
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const { value: port } = await soon(lines.next());
  const end = async () => {
    child.kill("SIGTERM");
    assert.deepEqual(await soon(once(child, "exit")), [0, null]);
  };
  return { port: Number(port), end };
}

/** Logs in; the cookie of the session. */
async function login(port, name) {
  const body = JSON.stringify({ name });
  const headers = { "content-type": "application/json" };
  const answer = await fetch(`http://127.0.0.1:${port}/login`, { method: "POST", headers, body });
  return answer.headers.getSetCookie()[0].split(";")[0];
}

/** A user of the chat on Tidewire. */
async function onTidewire(test, port, cookie) {
  const { connect, history, presence } = await import("../../../packages/client/dist/esm/index.js");
  const client = connect(`ws://127.0.0.1:${port}/ws`, {
    headers: cookie ? { cookie } : {},
    reconnect: false,
  });
  test.after(() => client.close());
  await client.ready();
  const seen = [];
  return {
    seen,
    async join(room) {
      const topic = `rooms.${room}`;
      const subscription = client.subscribe(topic, { presence: {} });
      subscription.on("message", ({ payload }) => seen.push(payload));
      subscription.on("presence", ({ user, change }) => seen.push({ user, change }));
      await subscription.ready();
      const here = Object.keys((await presence(client, topic))[topic].members);
      const { publications } = await history(client, topic);
      return { users: here, history: publications.map(({ payload }) => payload) };
    },
    say: (room, text) => client.request("say", { room, text }),
    leave: () => client.close(),
  };
}

/** A user of the chat on Socket.IO. */
async function onSocketIo(test, port, cookie) {
  const socket = io(`http://127.0.0.1:${port}`, {
    transports: ["websocket"],
    reconnection: false,
    extraHeaders: cookie ? { cookie } : {},
  });
  test.after(() => socket.close());
  await soon(
    new Promise((resolve, reject) => {
      socket.once("connect", resolve);
      socket.once("connect_error", reject);
    }),
  );
  const seen = [];
  socket.on("said", ({ room: _room, ...said }) => seen.push(said));
  socket.on("joined", ({ user }) => seen.push({ user, change: "join" }));
  socket.on("left", ({ user }) => seen.push({ user, change: "leave" }));
  return {
    seen,
    join: (room) => socket.emitWithAck("join", room),
    async say(room, text) {
      const answer = await socket.emitWithAck("say", { room, text });
      if (answer.error !== undefined) throw new Error(answer.error);
      return answer;
    },
    leave: () => socket.close(),
  };
}

for (const [name, user] of [
  ["tidewire.mjs", onTidewire],
  ["socket-io.mjs", onSocketIo],
]) {
  test(`the chat works: ${name}`, { skip: !hasClient && "the npm packages are not built" }, async (test) => {
    const { port, end } = await run(test, name);
    await assert.rejects(user(test, port));
    const ann = await user(test, port, await login(port, "ann"));
    assert.deepEqual(await ann.join("tea"), { users: ["ann"], history: [] });
    const bob = await user(test, port, await login(port, "bob"));
    assert.deepEqual((await bob.join("tea")).users.sort(), ["ann", "bob"]);
    await eventually(() => ann.seen.some((one) => one.user === "bob" && one.change === "join"));
    assert.deepEqual(await bob.say("tea", "hello"), { number: 1 });
    assert.deepEqual(await ann.say("tea", "good morning"), { number: 2 });
    const said = [
      { from: "bob", text: "hello" },
      { from: "ann", text: "good morning" },
    ];
    for (const one of [ann, bob]) {
      await eventually(() => one.seen.filter(({ text }) => text).length === 2);
      assert.deepEqual(
        one.seen.filter(({ text }) => text),
        said,
      );
    }
    await assert.rejects(ann.say("tea", 5), /text/);
    const carl = await user(test, port, await login(port, "carl"));
    assert.deepEqual((await carl.join("tea")).history, said);
    await bob.leave();
    await eventually(() => ann.seen.some((one) => one.user === "bob" && one.change === "leave"));
    await Promise.all([ann.leave(), carl.leave()]);
    await end();
  });
}

test("the server on Tidewire has not more lines, though it has history and presence", () => {
  const lines = (name) => {
    const text = fs.readFileSync(new URL(name, examples), "utf8");
    return text.split("\n").filter((line) => line.trim() !== "" && !line.trim().startsWith("//")).length;
  };
  const [ours, theirs] = [lines("tidewire.mjs"), lines("socket-io.mjs")];
  assert.ok(ours <= theirs, `${ours} and ${theirs} lines`);
  const readme = fs.readFileSync(new URL("README.md", examples), "utf8");
  assert.ok(
    readme.includes(`${ours} lines`) && readme.includes(`${theirs} lines`),
    `${ours} and ${theirs} lines`,
  );
});
