// Names of options: each call refuses one that it does not have, and names the nearest that it has.

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import {
  compress,
  decompress,
  encodeEnvelope,
  InvalidArgumentError,
  jsonToMsgpack,
  jwt,
  KeyPair,
  PriorityQueue,
  Sequencer,
  Server,
  Signer,
  sign,
  TokenBucket,
  Verifier,
  verify,
  WrongTypeError,
} from "../index.mjs";
import { startServer } from "../loadtest.mjs";
import { Client, eventually, serve } from "./support.mjs";

/** Calls with an option whose name is wrong, and the nearest name that each has. */
async function refuses(calls) {
  for (const [call, [given, nearest, run]] of Object.entries(calls)) {
    const [name] = Object.keys(given);
    await assert.rejects(
      async () => run(given),
      (error) => {
        assert.ok(error instanceof InvalidArgumentError, `${call}: ${error}`);
        assert.ok(error.message.includes(name), `${call}: ${error.message}`);
        const hint = nearest === undefined ? "it has " : `did you mean ${nearest}?`;
        assert.ok(error.message.includes(hint), `${call}: ${error.message}`);
        return true;
      },
      `${call} accepts ${JSON.stringify(given)}`,
    );
  }
}

test("the calls of a server refuse unknown options", async (t) => {
  const server = await serve(t);
  const { promises } = server;
  const [priorty, misspelledType] = [{ priorty: 8 }, { typ: "chat" }];
  await refuses({
    publish: [{ ttlMS: 5 }, "ttlMs", (options) => server.publish("a", 1, options)],
    publishMany: [{ waitMS: 5 }, "waitMs", (options) => server.publishMany("a", [1], options)],
    sendToUser: [priorty, "priority", (options) => server.sendToUser("ann", 1, options)],
    broadcast: [misspelledType, "type", (options) => server.broadcast(1, options)],
    whenFree: [{ waitsMs: 1 }, "waitMs", (options) => server.whenFree(() => 1, options)],
    run: [{ drainTimeout: 1 }, "drainTimeoutMs", (options) => new Server({ noAuth: true }).run(options)],
    listConnections: [{ address: "127.0.0.1" }, undefined, (query) => server.listConnections(query)],
    listTopics: [{ prefx: "a" }, "prefix", (query) => server.listTopics(query)],
    history: [{ newest_first: true }, "newestFirst", (query) => server.history("a", query)],
    presence: [{ limits: 1 }, "limit", (query) => server.presence("a", query)],
    "promises.publish": [{ ttlMS: 5 }, "ttlMs", (options) => promises.publish("a", 1, options)],
    "promises.publishMany": [priorty, "priority", (options) => promises.publishMany("a", [1], options)],
    "promises.listConnections": [{ users: "ann" }, "user", (query) => promises.listConnections(query)],
    "promises.listTopics": [{ prefx: "a" }, "prefix", (query) => promises.listTopics(query)],
    "promises.history": [{ newest: true }, "newestFirst", (query) => promises.history("a", query)],
    "promises.presence": [{ limits: 1 }, "limit", (query) => promises.presence("a", query)],
  });
  assert.throws(() => server.broadcast(1, "chat"), WrongTypeError);
  assert.throws(() => server.publish("a", 1, ["chat"]), WrongTypeError);
  // `null` stands for the default, as in the options of a server.
  assert.equal(server.publish("a", 1, null).duplicate, false);
  assert.deepEqual(server.listConnections(null), []);
});

test("the calls of a connection and of a message refuse unknown options", async (t) => {
  let connection;
  let asked;
  const server = await serve(t, { snapshotRequests: true }, (server) => {
    server.on("connect", (message) => {
      connection = message.connection;
    });
    server.on("snapshotRequest", (message) => {
      asked = message;
    });
  });
  const client = await Client.connect(t, server.url);
  await eventually(() => connection?.isOpen);
  client.say("sync_request", { topics: ["a"] });
  await eventually(() => asked);
  await refuses({
    send: [{ priorty: 8 }, "priority", (options) => connection.send(1, options)],
    request: [{ timeOutMS: 1 }, "timeoutMs", (options) => connection.request(1, { type: "a", ...options })],
    setAccess: [{ subscribeAlow: "a" }, "subscribeAllow", (rules) => connection.setAccess(rules)],
    replySnapshot: [{ typ: "a" }, "type", (options) => asked.replySnapshot("a", 1, options)],
  });
  connection.send("still here");
  assert.equal((await client.until("message")).p, "still here");
});

const secret = "0123456789abcdef0123456789abcdef";

test("tokens refuse unknown options", async () => {
  const claims = { sub: "ann", exp: Date.now() / 1000 + 60 };
  const signer = new jwt.TokenSigner(secret);
  const token = jwt.encode(claims, secret, { keyId: "one", check: true });
  assert.equal(jwt.decode(token, { one: secret }, { leewayS: 1, now: Date.now() / 1000 }).sub, "ann");
  await refuses({
    TokenKey: [{ keyID: "one" }, "keyId", (options) => new jwt.TokenKey(secret, options)],
    TokenSigner: [{ algorithms: "HS256" }, "algorithm", (options) => new jwt.TokenSigner(secret, options)],
    "TokenSigner.encode": [{ checks: false }, "check", (options) => signer.encode(claims, options)],
    TokenVerifier: [{ leewayMs: 5 }, "leewayS", (options) => new jwt.TokenVerifier(secret, options)],
    "TokenVerifier.decode": [
      { nows: 1 },
      "now",
      (options) => new jwt.TokenVerifier(secret).decode(token, options),
    ],
    encode: [{ keyid: "one" }, "keyId", (options) => jwt.encode(claims, secret, options)],
    decode: [{ audiences: "a" }, "audience", (options) => jwt.decode(token, secret, options)],
  });
});

test("the utilities refuse unknown options", async () => {
  const key = { secret };
  const [pair, session] = [new KeyPair(), randomUUID()];
  const position = { epoch: "6f0d2c1a", offset: 1 };
  const sequencer = new Sequencer();
  const [queue, signature] = [new PriorityQueue(), sign("a", secret)];
  const nows = { nowMS: 1 };
  await refuses({
    compress: [{ levels: 1 }, "level", (options) => compress(Buffer.from("a"), options)],
    decompress: [{ bytesMaX: 1 }, "bytesMax", (options) => decompress(compress(Buffer.from("a")), options)],
    jsonToMsgpack: [{ prefixed: true }, "prefix", (options) => jsonToMsgpack("1", options)],
    take: [nows, "nowMs", (options) => new TokenBucket(1, 1).take(1, options)],
    PriorityQueue: [{ itemMax: 1 }, "itemsMax", (options) => new PriorityQueue(options)],
    push: [{ sizes: 1 }, "size", (options) => queue.push("a", 5, options)],
    pushDisplacing: [{ sizes: 1 }, "size", (options) => queue.pushDisplacing("a", 5, options)],
    Sequencer: [{ windowS: 1 }, "windowMs", (options) => new Sequencer(options)],
    add: [nows, "nowMs", (options) => sequencer.add("a", position, 1, options)],
    advance: [nows, "nowMs", (options) => sequencer.advance("a", position, options)],
    skip: [nows, "nowMs", (options) => sequencer.skip("a", position.epoch, 1, 2, options)],
    expire: [nows, "nowMs", (options) => sequencer.expire(options)],
    sign: [{ topics: "a" }, "topic", (options) => sign("a", secret, options)],
    verify: [{ nows: 1 }, "now", (options) => verify("a", signature, secret, options)],
    Signer: [{ secrets: secret }, "secret", (options) => new Signer(options)],
    signMessage: [{ versions: 1 }, "version", (options) => new Signer(key).signMessage("{}", options)],
    Verifier: [{ nonceMax: 1 }, "noncesMax", (options) => new Verifier({ secret, ...options })],
    "Verifier.verify": [
      { topics: "a" },
      "topic",
      (options) => new Verifier(key).verify("a", signature, options),
    ],
    verifyMessage: [{ nows: 1 }, "now", (options) => new Verifier(key).verifyMessage("{}", options)],
    accept: [{ identy: 1 }, "identity", (options) => pair.accept(pair.publicKey, session, options)],
    finish: [{ pined: 1 }, "pinned", (options) => pair.finish(pair.publicKey, session, options)],
    encodeEnvelope: [{ topics: "a" }, "topic", (options) => encodeEnvelope("t", 1, options)],
    startServer: [{ delays: 1 }, "delay", (options) => startServer({ quiet: true, ...options })],
  });
  assert.deepEqual([queue.length, sequencer.topics], [0, 0]);
});
