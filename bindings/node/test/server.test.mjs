// The life of a server, its options, and what handlers and batches see of real sockets.

import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";
import { setTimeout as pause } from "node:timers/promises";
import tidewire, {
  AddressError,
  CallError,
  ConfigurationError,
  InvalidArgumentError,
  Server,
  StoppedError,
  TidewireError,
  WrongTypeError,
} from "../index.mjs";
import { Client, eventually, serve, soon } from "./support.mjs";

/** A promise and the function that resolves it. */
function deferred() {
  let resolve;
  const promise = new Promise((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

test("a handler echoes", async (t) => {
  const server = await serve(t, { protocol: "raw" }, (server) => {
    server.on("*", (message) => message.connection.sendRaw(message));
  });
  const client = await Client.connect(t, server.url);
  client.send("hällo");
  client.send(Buffer.from([0, 1, 255]));
  client.send("");
  assert.equal(await client.next(), "hällo");
  assert.deepEqual(await client.next(), Buffer.from([0, 1, 255]));
  assert.equal(await client.next(), "");
});

test("batches have what was received, in order", async (t) => {
  const server = await serve(t, { protocol: "raw" });
  const batches = server.batches();
  const client = await Client.connect(t, server.url);
  const sent = [];
  for (let number = 0; number < 5_000; number++) {
    const text = number % 3 === 0 ? `{"number":${number},"letter":"é"}` : `{"number":${number}}`;
    client.send(text);
    sent.push(text);
  }
  client.socket.close(1000);
  const texts = [];
  const numbers = [];
  const kinds = new Set();
  let connection;
  for await (const batch of batches) {
    assert.equal([...batch].length, batch.length);
    assert.equal(batch.at(-1).kind, [...batch].at(-1).kind);
    assert.equal(batch.at(batch.length), undefined);
    for (const message of batch) {
      kinds.add(message.kind);
      connection ??= message.connection;
      assert.equal(message.connection, connection);
      if (message.kind === "message") {
        assert.equal(message.length, Buffer.byteLength(message.text));
        assert.equal(String(message.data), message.text);
        texts.push(message.text);
        numbers.push(message.json().number);
      }
    }
    if (kinds.has("disconnect")) break;
  }
  assert.deepEqual(texts, sent);
  assert.deepEqual(numbers, [...sent.keys()]);
  assert.deepEqual([...kinds].sort(), ["connect", "disconnect", "message"]);
});

test("who leaves a loop over batches finds the next ones the next time", async (t) => {
  const server = await serve(t, { protocol: "raw" });
  const client = await Client.connect(t, server.url);
  const texts = [];
  for (let number = 0; number < 20; number++) {
    client.send(String(number));
    for await (const message of server) {
      if (message.kind !== "message") continue;
      texts.push(message.text);
      if (texts.length === number + 1) break;
    }
  }
  assert.deepEqual(texts, [...Array(20).keys()].map(String));
});

test("messages that are kept stay what they were", async (t) => {
  const server = await serve(t, { protocol: "raw" });
  const kept = [];
  const receiving = (async () => {
    for await (const message of server) {
      if (message.kind === "message") kept.push(message);
      if (kept.length === 400) return;
    }
  })();
  const client = await Client.connect(t, server.url);
  for (let number = 0; number < 400; number++) client.send(`${number}:${"x".repeat(5_000)}`);
  await soon(receiving);
  for (const [number, message] of kept.entries()) {
    assert.equal(message.text.slice(0, message.text.indexOf(":")), String(number));
    assert.equal(message.length, message.data.length);
  }
});

test("what is sent back is what was received, whatever becomes of its bytes", async (t) => {
  const server = await serve(t, { protocol: "raw" }, (server) => {
    server.on("*", (message) => {
      const { connection, text } = message;
      if (text.startsWith("before")) message.data.fill("b");
      connection.sendRaw(message);
      if (text.startsWith("after")) message.data.fill("a");
      connection.sendRaw("next");
    });
  });
  const client = await Client.connect(t, server.url);
  const texts = ["plain", "after 1", "after 2", "before", "plain again", "after 3"];
  for (const text of texts) client.send(text);
  for (const text of texts) {
    assert.equal(await client.next(), text === "before" ? "bbbbbb" : text);
    assert.equal(await client.next(), "next");
  }
});

test("messages of many batches are sent back in order", async (t) => {
  const server = await serve(t, { protocol: "raw" });
  const kept = [];
  const receiving = (async () => {
    for await (const message of server) {
      if (message.kind === "message") kept.push(message);
      if (kept.length < 400) continue;
      // Every other one goes back after one of another batch.
      for (let number = 0; number < 200; number++) {
        kept[number].connection.sendRaw(kept[number]);
        kept[399 - number].connection.sendRaw(kept[399 - number]);
      }
      return;
    }
  })();
  const client = await Client.connect(t, server.url);
  const text = (number) => `${number}:${"x".repeat(5_000 + number)}`;
  for (let number = 0; number < 400; number++) client.send(text(number));
  await soon(receiving);
  for (let number = 0; number < 200; number++) {
    assert.equal(await client.next(), text(number));
    assert.equal(await client.next(), text(399 - number));
  }
});

test("a message past the size of the memory arrives whole", async (t) => {
  const server = await serve(t, { protocol: "raw", messageBytesMax: 8 << 20 }, (server) => {
    server.on("*", (message) => message.connection.sendRaw(String(message.length)));
  });
  const client = await Client.connect(t, server.url);
  client.send("a".repeat(5_000_000));
  assert.equal(await client.next(), "5000000");
});

test("handlers by type, and the rest", async (t) => {
  const seen = [];
  const server = await serve(t, {}, (server) => {
    server.on("chat", (message) => {
      seen.push([message.type, message.payload, message.topic]);
      message.connection.send({ echo: message.payload }, { type: "echo", priority: 8 });
    });
    server.on("*", (message) => seen.push(["rest", message.type]));
    server.on("connect", (message) => seen.push(["connect", message.connection.user]));
  });
  const client = await Client.connect(t, server.url);
  client.say("chat", { words: "hällo" }, { tp: "room" });
  const echo = await client.until("echo");
  assert.deepEqual(echo.p, { echo: { words: "hällo" } });
  client.say("other", 1);
  await eventually(() => seen.length === 3);
  assert.deepEqual(seen, [
    ["connect", undefined],
    ["chat", { words: "hällo" }, "room"],
    ["rest", "other"],
  ]);
  assert.equal(server.handlerStatistics().handled, 3);
});

test("requests are answered", async (t) => {
  const log = [];
  const server = await serve(t, { log: (...line) => log.push(line) }, (server) => {
    server.handle("sum", (request) => request.payload.reduce((sum, number) => sum + number, 0));
    server.handle("later", async (request) => ({ type: request.type, timeout: request.timeoutMs > 0 }));
    server.handle("nothing", () => {});
    server.handle("refuse", () => {
      throw new CallError("no more seats", { code: "FULL" });
    });
    server.handle("break", async () => {
      throw new RangeError("a secret of the server");
    });
    server.handle("circle", () => {
      const circle = {};
      circle.circle = circle;
      return circle;
    });
  });
  const client = await Client.connect(t, server.url);
  assert.deepEqual(await client.request("sum", [1, 2, 3]), { payload: 6 });
  assert.deepEqual((await client.request("later")).payload, { type: "later", timeout: true });
  assert.equal((await client.request("nothing")).payload, null);
  const refused = await client.request("refuse");
  assert.deepEqual([refused.error.code, refused.error.message], ["FULL", "no more seats"]);
  const broken = await client.request("break");
  assert.equal(broken.error.code, "HANDLER_ERROR");
  assert.doesNotMatch(JSON.stringify(broken), /secret/);
  assert.equal((await client.request("circle")).error.code, "HANDLER_ERROR");
  assert.equal((await client.request("missing")).error.code, "NOT_FOUND");
  const { handled, errors, refused: refusedCount, unrouted, running } = server.handlerStatistics();
  assert.deepEqual(
    { handled, errors, refusedCount, unrouted, running },
    {
      handled: 3,
      errors: 2,
      refusedCount: 1,
      unrouted: 1,
      running: 0,
    },
  );
  assert.equal(log.filter(([level, , error]) => level === "error" && error instanceof RangeError).length, 1);
});

test("clients are asked, too", async (t) => {
  const server = await serve(t, {}, (server) => {
    server.handle(
      "ask me",
      async (request) => await request.connection.request({ n: 1 }, { type: "confirm" }),
    );
    server.handle("ask nobody", async (request) => {
      await request.connection.request(1, { type: "confirm", timeoutMs: 20 });
    });
  });
  const client = await Client.connect(t, server.url);
  client.say("client_hello", { features: { calls: true } });
  client.say("call_request", { type: "ask me" }, { cid: "a" });
  const asked = await client.until("call_request");
  assert.deepEqual(asked.p.payload, { n: 1 });
  client.say("call_response", { payload: "yes" }, { cid: asked.cid });
  assert.equal((await client.until("call_response")).p.payload, "yes");
  // Nobody answers this one; CallTimeoutError is a CallError with a code.
  assert.equal((await client.request("ask nobody")).error.code, "TIMEOUT");
});

test("topics, history, presence and questions", async (t) => {
  const server = await serve(t, { history: { "orders.>": 10 }, presence: "orders.>" });
  const client = await Client.connect(t, server.url);
  await client.subscribe("orders.eu", "news");
  const first = server.publish("orders.eu", { n: 1 }, { type: "order" });
  assert.deepEqual([first.offset, typeof first.epoch, first.duplicate], [1, "string", false]);
  assert.equal(await server.publishMany("orders.eu", [{ n: 2 }, { n: 3 }, "é"], { type: "order" }), 3);
  for (const expected of [{ n: 1 }, { n: 2 }, { n: 3 }, "é"]) {
    assert.deepEqual((await client.until("order")).p, expected);
  }
  assert.equal(server.publish("news", 1, { id: "a" }).offset, undefined);
  assert.equal(server.publish("news", 1, { id: "a" }).duplicate, true);
  const history = server.history("orders.eu", { limit: 2, newestFirst: true });
  assert.deepEqual([history.offset, history.epoch, history.more], [4, first.epoch, true]);
  assert.deepEqual(
    history.publications.map(({ payload }) => payload),
    ["é", { n: 3 }],
  );
  server.publish("orders.eu", { all: 4 }, { type: "state", id: "s", snapshot: true });
  const [snapshot, update] = server.history("orders.eu", { newestFirst: true }).publications;
  assert.deepEqual(snapshot, {
    type: "state",
    payload: { all: 4 },
    topic: "orders.eu",
    position: { epoch: first.epoch, offset: 5 },
    id: "s",
    category: "snapshot",
  });
  assert.deepEqual([update.type, update.category, update.position.offset], ["order", "update", 4]);
  assert.equal(server.presence("orders.eu").connections, 1);
  const [{ perS, publications, ...topic }, ...others] = server.listTopics({ prefix: "orders" });
  assert.deepEqual(topic, { topic: "orders.eu", pattern: false, subscribers: 1 });
  assert.ok(publications >= 4 && typeof perS === "number" && others.length === 0);
  const [listed] = server.listConnections({ topic: "news" });
  const fields = ["connection", "id", "address", "format", "topics", "queuedBytes", "connectedUnixMs"];
  assert.deepEqual(Object.keys(listed).sort(), fields.sort());
  assert.match(listed.connection, /^\d+-\d+$/);
  assert.equal(server.connections, 1);
  assert.equal(server.forgetHistory("orders.eu"), true);
  assert.deepEqual(server.history("unknown").publications, []);
  assert.equal(typeof server.statistics(), "object");
  server.broadcast({ all: true }, { type: "notice" });
  assert.deepEqual((await client.until("notice")).p, { all: true });
  server.disconnect(listed.connection, 4000, "enough");
  assert.deepEqual(await soon(client.closed), { code: 4000, reason: "enough" });
});

test("a connection is changed by its server", async (t) => {
  let connection;
  const server = await serve(t, { topicsOpen: false }, (server) => {
    server.on("connect", (message) => {
      connection = message.connection;
      connection.subscribe("private");
    });
    server.on("disconnect", (message) => {
      connection.attachment = [message.reason, message.closeCode];
    });
  });
  const client = await Client.connect(t, server.url);
  await eventually(() => connection?.isOpen);
  await client.until("server_ready");
  assert.deepEqual((await client.subscribe("open")).failed_topics, ["open"]);
  connection.setAccess({ subscribeAllow: ["open", "private"] });
  await eventually(async () => (await client.subscribe("open")).success_topics.length === 1);
  server.publish("private", "hush");
  assert.equal((await client.until("message")).p, "hush");
  assert.equal(connection.address.host, "127.0.0.1");
  connection.close(4001, "bye");
  assert.equal((await soon(client.closed)).code, 4001);
  await eventually(() => connection.attachment);
  assert.deepEqual(connection.attachment, ["server", 4001]);
  assert.equal(connection.isOpen, false);
  // Nobody is there to receive it, and that is no error.
  connection.send("too late");
  connection.close();
});

test("options are checked by name, type and range", () => {
  const refused = (options, words) =>
    assert.throws(
      () => new Server(options),
      (error) => error instanceof TidewireError && words.every((word) => error.message.includes(word)),
      `${JSON.stringify(options)} is not refused with ${words}`,
    );
  refused({ noAuth: true, mesageBytesMax: 1 }, ["mesageBytesMax", "did you mean messageBytesMax?"]);
  refused({ noAuth: true, message_bytes_max: 1 }, ["message_bytes_max", "did you mean messageBytesMax?"]);
  refused({ noAuth: true, handlerMax: 1 }, ["did you mean handlersMax?"]);
  refused({ noAuth: true, port: 70_000 }, ["port", "70000", "0 to 65535"]);
  refused({ noAuth: true, port: "80" }, ["port", '"80"', "0 to 65535"]);
  refused({ noAuth: true, messageBytesMax: -1 }, ["messageBytesMax", "-1", "whole number"]);
  refused({ noAuth: true, messageBytesMax: 1.5 }, ["messageBytesMax", "1.5"]);
  refused({ noAuth: "yes" }, ["noAuth", "true or false"]);
  refused({ noAuth: true, origin: () => 1 }, ["origin"]);
  refused({ noAuth: true, port: Number.NaN }, ["port", "NaN"]);
  refused({ noAuth: true, queueBytesMax: "much" }, ["queueBytesMax", "much"]);
  refused({ noAuth: true, tlsCertificate: "x" }, ["tlsCertificate", "tlsKey"]);
  refused({}, ["jwtSecret"]);
  refused({ noAuth: true, topicRules: [{ pattern: "a", historySize: 1 }] }, ["topicRules", "historySize"]);
  refused({ noAuth: true, keepOrder: 1 }, ["keepOrder"]);
  refused({ noAuth: true, handlersMax: 0 }, ["handlersMax", "0"]);
  assert.throws(() => new Server(null), WrongTypeError);
  assert.throws(() => new Server({ prot: 1 }), ConfigurationError);
  assert.ok(Server.optionNames().includes("historyBytesMax"));
  for (const name of Server.optionNames()) assert.match(name, /^[a-z][a-zA-Z0-9]*$/);
});

test("a port in use is an error, and the server can be started later", async (t) => {
  const taken = net.createServer().listen(0, "127.0.0.1");
  t.after(() => taken.close());
  await once(taken, "listening");
  const server = new Server({ noAuth: true, port: taken.address().port });
  await assert.rejects(server.start(), AddressError);
  taken.close();
  await once(taken, "close");
  await server.start();
  await assert.rejects(server.start(), StoppedError);
  await server.stop();
});

test("what is asked of a server that does not run is an error", async () => {
  const server = new Server({ noAuth: true, port: 0 });
  assert.equal(server.state, "new");
  assert.throws(() => server.publish("a", 1), StoppedError);
  assert.throws(() => server.address, StoppedError);
  await server.start();
  assert.equal(server.state, "running");
  await server.stop();
  await server.stop();
  assert.equal(server.state, "stopped");
  assert.throws(() => server.publish("a", 1), StoppedError);
  await assert.rejects(server.start(), StoppedError);
});

test("arguments are checked", async (t) => {
  const server = await serve(t);
  assert.throws(() => server.publish(1, 1), WrongTypeError);
  assert.throws(() => server.publish("a..b", 1), InvalidArgumentError);
  assert.throws(() => server.publish("a", 1n), WrongTypeError);
  assert.throws(() => server.publish("a", () => 1), WrongTypeError);
  assert.throws(() => server.publish("a", 1, { priority: 2 }), InvalidArgumentError);
  assert.throws(() => server.publish("a", 1, { prio: 1 }), InvalidArgumentError);
  assert.throws(() => server.publish("a", 1, { type: "" }), InvalidArgumentError);
  assert.throws(() => server.publish("a", new tidewire.RawJson("{")), InvalidArgumentError);
  assert.throws(() => server.on("a", 1), WrongTypeError);
  assert.throws(() => server.on(1, () => {}), WrongTypeError);
  assert.throws(() => server.disconnect("x"), InvalidArgumentError);
  await assert.rejects(server.publishMany("a", 1), WrongTypeError);
  server.on("a", () => {});
  assert.throws(() => server.on("a", () => {}), InvalidArgumentError);
  assert.throws(() => server.batches(), TidewireError);
});

test("a handler that waits for the end of the server is not waited for", async (t) => {
  const ways = {
    atOnce: (server) => server.stop(),
    later: async (server) => {
      await pause(5);
      const close = async () => {
        await server.stop();
      };
      await Promise.all([close(), pause(1)]);
    },
    chained: (server) => pause(5).then(() => server.stop()),
    drained: async (server) => void (await server.drain(0)),
  };
  for (const [name, end] of Object.entries(ways)) {
    for (const limits of [{}, { handlersMax: 1 }]) {
      const log = [];
      const options = { stopTimeoutMs: 3_600_000, log: (...line) => log.push(line), ...limits };
      const over = deferred();
      const server = await serve(t, options, (server) => {
        server.on("end", async () => {
          await end(server);
          over.resolve();
        });
        server.on("disconnect", () => {});
      });
      const client = await Client.connect(t, server.url);
      client.say("end");
      await soon(over.promise);
      assert.equal(server.state, "stopped", name);
      assert.deepEqual(
        log.filter(([level]) => level !== "info"),
        [],
        name,
      );
    }
  }
});

test("a stop in a handler waits for the other handlers", async (t) => {
  const release = deferred();
  const events = [];
  const over = deferred();
  const server = await serve(t, { stopTimeoutMs: 3_600_000 }, (server) => {
    server.on("slow", async () => {
      events.push("began");
      await release.promise;
      events.push("slow");
    });
    server.on("end", async () => {
      setTimeout(release.resolve, 20);
      await server.stop();
      events.push("stopped");
      over.resolve();
    });
  });
  const [first, second] = [await Client.connect(t, server.url), await Client.connect(t, server.url)];
  first.say("slow");
  await eventually(() => events.length === 1);
  second.say("end");
  await soon(over.promise);
  assert.deepEqual(events, ["began", "slow", "stopped"]);
});

test("a drain tells the clients and ends the server", async (t) => {
  const server = await serve(t);
  const client = await Client.connect(t, server.url);
  assert.equal(await soon(server.drain(5_000)), 0);
  assert.equal((await soon(client.closed)).code, 4300);
  assert.equal(server.state, "stopped");
});

test("a stop ends a drain, and leaves the clients that have not left", async (t) => {
  const server = await serve(t);
  const client = await Client.connect(t, server.url);
  // It reads nothing, so it does not know that it should leave.
  client.socket.pause();
  const drained = server.drain(600_000);
  await soon(server.stop());
  assert.equal(await drained, 1);
  assert.equal(server.state, "stopped");
  client.socket.resume();
  await soon(client.closed);
});

test("a stop before the start changes nothing", async (t) => {
  const server = new Server({ port: 0, noAuth: true });
  await server.stop();
  await server.start();
  t.after(() => server.stop());
  const client = await Client.connect(t, server.url);
  assert.equal(await soon(server.drain(2_000)), 0);
  assert.equal((await soon(client.closed)).code, 4300);
});

test("a token lets a user in", async (t) => {
  const { createHmac } = await import("node:crypto");
  const secret = "a secret of at least thirty-two bytes";
  const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const head = `${part({ alg: "HS256", typ: "JWT" })}.${part({ sub: "user-1", exp: 4_000_000_000 })}`;
  const token = `${head}.${createHmac("sha256", secret).update(head).digest("base64url")}`;
  const users = [];
  const server = await serve(t, { noAuth: undefined, jwtSecret: secret }, (server) => {
    server.on("connect", ({ user }) => users.push(user));
  });
  const client = await Client.connect(t, server.url, { headers: { authorization: `Bearer ${token}` } });
  server.sendToUser("user-1", "for you", { type: "note" });
  assert.equal((await client.until("note")).p, "for you");
  await eventually(() => users.length === 1);
  assert.deepEqual(users, ["user-1"]);
  server.disconnectUser("user-1", 4000, "x");
  assert.equal((await soon(client.closed)).code, 4000);
});

test("snapshot requests are answered by the application", async (t) => {
  const server = await serve(t, { snapshotRequests: true }, (server) => {
    server.on("snapshotRequest", (message) => {
      for (const topic of message.topics) message.replySnapshot(topic, { state: topic });
    });
  });
  const client = await Client.connect(t, server.url);
  await client.subscribe("a", "b");
  client.say("sync_request", { topics: ["a", "b"], include_snapshots: true }, { cid: "7" });
  const [one, other] = [await client.until("snapshot"), await client.until("snapshot")];
  assert.deepEqual([one.p, other.p], [{ state: "a" }, { state: "b" }]);
  assert.equal(one.cid, "7");
});
