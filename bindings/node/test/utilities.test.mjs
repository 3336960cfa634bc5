// The utilities, against the modules of Node where it has one of the kind.

import assert from "node:assert/strict";
import { createHmac, generateKeyPairSync, randomBytes, randomUUID } from "node:crypto";
import { test } from "node:test";
import zlib from "node:zlib";
import {
  BusyError,
  compress,
  decompress,
  encodeEnvelope,
  Gap,
  hmacSha256,
  IdentityKey,
  InvalidArgumentError,
  InvalidMessageError,
  jsonToMsgpack,
  KeyPair,
  msgpackToJson,
  PriorityQueue,
  parseEnvelope,
  SecurityError,
  Sequencer,
  SessionCipher,
  Signer,
  sign,
  TidewireError,
  TokenBucket,
  Verifier,
  verify,
  WrongTypeError,
} from "../index.mjs";

const SECRET = "a secret of more than thirty-two bytes";
const NOW = 1_700_000_000;
const EPOCH = "6f0d2c1a";

/** A generator of numbers from 0 to 1 that are always the same. */
function numbers(seed) {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

const refused = (code, action) =>
  assert.throws(action, (error) => error instanceof SecurityError && error.code === code);

test("zlib: Node reads ours, and we read Node's", () => {
  for (const plain of [Buffer.alloc(0), Buffer.from("hello ".repeat(100)), randomBytes(100_000)]) {
    for (let level = 0; level <= 9; level++) {
      assert.deepEqual(zlib.inflateSync(compress(plain, { level })), plain);
      assert.deepEqual(decompress(zlib.deflateSync(plain, { level })), plain);
    }
    const prefixed = compress(plain, { prefix: true });
    assert.equal(prefixed.toString("latin1", 0, 2), "C:");
    assert.deepEqual(decompress(prefixed), plain);
    assert.deepEqual(decompress(compress(new Uint8Array(plain).buffer)), plain);
  }
});

test("zlib: bombs, broken streams and wrong arguments", () => {
  const bomb = zlib.deflateSync(Buffer.alloc(20_000_000));
  assert.throws(() => decompress(bomb), { name: "InvalidMessageError", code: "TOO_LARGE" });
  assert.equal(decompress(bomb, { bytesMax: 20_000_000 }).length, 20_000_000);
  for (const broken of ["", "C:", "{}", zlib.deflateSync("x").subarray(0, 8)]) {
    assert.throws(() => decompress(Buffer.from(broken)), InvalidMessageError);
    assert.equal(decompress(zlib.deflateSync("next")).toString(), "next");
  }
  assert.throws(() => compress("text"), WrongTypeError);
  assert.throws(() => compress(Buffer.alloc(1), { level: 10 }), InvalidArgumentError);
});

test("MessagePack with its prefix", () => {
  const packed = jsonToMsgpack('{"a":[1,null]}');
  const prefixed = jsonToMsgpack('{"a":[1,null]}', { prefix: true });
  assert.deepEqual(prefixed, Buffer.concat([Buffer.from("M:"), packed]));
  assert.equal(msgpackToJson(prefixed), msgpackToJson(packed));
  for (const broken of [[], [0xc1], [0xdd, 0xff, 0xff, 0xff, 0xff]])
    assert.throws(() => msgpackToJson(Buffer.from(broken)), InvalidMessageError);
});

test("a token bucket agrees with the formula", () => {
  const random = numbers(7);
  const bucket = new TokenBucket(50, 20);
  let level = 50_000;
  let nowMs = 0;
  for (let turn = 0; turn < 2000; turn++) {
    const elapsed = Math.floor(random() * 200);
    const n = 1 + Math.floor(random() * 8);
    nowMs += elapsed;
    level = Math.min(50_000, level + elapsed * 20);
    const { allowed, retryAfterMs } = bucket.take(n, { nowMs });
    assert.equal(allowed, level >= n * 1000);
    assert.equal(retryAfterMs === undefined, allowed);
    if (allowed) level -= n * 1000;
  }
});

test("a token bucket: a slow refill, the warning, and arguments", () => {
  const slow = new TokenBucket(3, 0.5);
  assert.equal(slow.take(3, { nowMs: 0 }).allowed, true);
  assert.equal(slow.take(1, { nowMs: 0 }).retryAfterMs, 2000);
  assert.equal(slow.take(1, { nowMs: 2000 }).allowed, true);
  assert.equal(slow.take(1, { nowMs: 3000 }).remaining, 0.5);
  const full = new TokenBucket(100, 10);
  assert.equal(full.take(99, { nowMs: 0 }).low, true);
  assert.deepEqual([full.capacity, full.refillPerS], [100, 10]);
  for (const [capacity, refill] of [
    [0, 1],
    [1, 0],
    [-1, 1],
    [1, -1],
    [2 ** 33, 1],
    [1, 1e12],
    [1, 0.0001],
    [1, Number.NaN],
    [5_000_000, 0.5],
  ])
    assert.throws(() => new TokenBucket(capacity, refill), InvalidArgumentError);
  for (const n of [0, 101, -1, 1.5]) assert.throws(() => full.take(n), InvalidArgumentError);
  assert.throws(() => full.take(1, { nowMs: -1 }), InvalidArgumentError);
  assert.throws(() => full.take("1"), WrongTypeError);
  // Without a time it is the bucket's own.
  const quick = new TokenBucket(1, 1_000_000);
  quick.take();
  while (!quick.take().allowed);
});

test("a priority queue is a list of priority and age", () => {
  const random = numbers(5);
  const queue = new PriorityQueue();
  const model = [];
  const next = () => {
    let best = 0;
    for (let index = 1; index < model.length; index++)
      if (model[index].priority > model[best].priority) best = index;
    return best;
  };
  for (let number = 0; number < 3000; number++) {
    if (random() < 0.6) {
      const priority = [1, 3, 5, 8, 10][Math.floor(random() * 5)];
      queue.push({ number }, priority);
      model.push({ priority, item: { number } });
    } else {
      const expected = model.length === 0 ? undefined : model.splice(next(), 1)[0];
      assert.deepEqual(queue.pop(), expected);
    }
    assert.equal(queue.length, model.length);
  }
  assert.deepEqual(queue.peek(), model[next()]);
  assert.equal(queue.popMany(100_000).length, model.length);
  assert.deepEqual([queue.pop(), queue.peek(), queue.popMany(5)], [undefined, undefined, []]);
});

test("a priority queue is bounded in items and bytes", () => {
  const queue = new PriorityQueue({ itemsMax: 2, bytesMax: 100 });
  queue.push(Buffer.alloc(60));
  assert.equal(queue.bytes, 60);
  const full = (error) => error instanceof BusyError && error.code === "QUEUE_FULL";
  assert.throws(() => queue.push("ä".repeat(21), 10), full);
  queue.push({ any: "thing" }, 5, { size: 40 });
  assert.throws(() => queue.push(null), full);
  assert.deepEqual(queue.pushDisplacing("urgent", 10), [{ priority: 5, item: { any: "thing" } }]);
  assert.throws(() => queue.pushDisplacing("late", 5), full);
  assert.deepEqual(
    queue.popMany(2).map(({ priority }) => priority),
    [10, 5],
  );
  for (const wrong of [0, 2, 11, -1, 1.5, "high", null])
    assert.throws(() => queue.push(1, wrong), TidewireError);
  assert.equal(queue.length, 0);
});

test("a sequencer lets messages through once and in order", () => {
  const random = numbers(3);
  for (let round = 0; round < 50; round++) {
    const sequencer = new Sequencer();
    sequencer.add("t", { epoch: EPOCH, offset: 1 }, "1", { nowMs: 0 });
    const rest = Array.from({ length: 58 }, (_, index) => index + 2);
    for (let again = 0; again < 30; again++) rest.push(1 + Math.floor(random() * 59));
    rest.sort(() => random() - 0.5);
    const seen = ["1"];
    for (const offset of rest) {
      const { released } = sequencer.add("t", { epoch: EPOCH, offset }, String(offset), { nowMs: 0 });
      seen.push(...released);
    }
    assert.deepEqual(
      seen,
      Array.from({ length: 59 }, (_, index) => String(index + 1)),
    );
    assert.deepEqual([sequencer.held, sequencer.topics], [0, 1]);
    assert.deepEqual(sequencer.position("t"), { epoch: EPOCH, offset: 59 });
  }
});

test("a sequencer tells gaps when the time is over", () => {
  const sequencer = new Sequencer({ windowMs: 500 });
  const add = (epoch, offset, message, nowMs) => sequencer.add("t", { epoch, offset }, message, { nowMs });
  assert.deepEqual(add(EPOCH, 1, "a", 1000), { outcome: "delivered", released: ["a"] });
  assert.deepEqual(add(EPOCH, 1, "a", 1000), { outcome: "duplicate", released: [] });
  assert.deepEqual(add(EPOCH, 4, "d", 1000), { outcome: "held", released: [] });
  assert.equal(sequencer.deadlineMs, 1500);
  assert.deepEqual(sequencer.expire({ nowMs: 1400 }), []);
  const [gap, message] = sequencer.expire({ nowMs: 1500 });
  assert.ok(gap instanceof Gap);
  assert.deepEqual([gap.topic, gap.epoch, gap.first, gap.last, gap.length], ["t", EPOCH, 2, 3, 2]);
  assert.deepEqual([message, sequencer.held, sequencer.deadlineMs], ["d", 0, undefined]);
  assert.deepEqual(add("00000002", 1, "z", 2000), { outcome: "newEpoch", released: ["z"] });
  assert.deepEqual(sequencer.position("t"), { epoch: "00000002", offset: 1 });
});

test("a sequencer: what is known from elsewhere, bounds, and positions that are none", () => {
  const sequencer = new Sequencer();
  const at = (offset) => ({ epoch: EPOCH, offset });
  assert.deepEqual(sequencer.advance("t", at(5)), []);
  assert.equal(sequencer.add("t", at(8), "h").outcome, "held");
  assert.deepEqual(sequencer.skip("t", EPOCH, 6, 7), ["h"]);
  sequencer.add("t", at(10), "j");
  const [gap, last] = sequencer.forget("t");
  assert.deepEqual([gap.length, last, sequencer.position("t")], [1, "j", undefined]);
  const small = new Sequencer({ topicsMax: 10, heldMessagesMax: 5 });
  for (let topic = 0; topic < 100; topic++) small.add(String(topic), at(1), topic);
  assert.equal(small.topics, 10);
  const told = [];
  for (let offset = 3; offset < 100; offset += 2) told.push(...small.add("99", at(offset), offset).released);
  assert.ok(small.held <= 5 && told.some((item) => item instanceof Gap) && told.includes(3));
  for (const wrong of [
    undefined,
    null,
    5,
    {},
    at(-1),
    at(1.5),
    at("1"),
    { epoch: "xyz", offset: 1 },
    { epoch: 1, offset: 1 },
  ])
    assert.throws(() => sequencer.add("t", wrong, 1), TidewireError);
  assert.throws(() => sequencer.add(5, at(1), 1), WrongTypeError);
  assert.throws(() => new Sequencer({ topicsMax: 0 }), InvalidArgumentError);
});

test("HMAC is that of Node, and version 1 of a signature can be made by hand", () => {
  for (const length of [0, 1, 64, 65, 100_000]) {
    const [key, message] = [randomBytes(40), randomBytes(length)];
    assert.deepEqual(hmacSha256(key, message), createHmac("sha256", key).update(message).digest());
  }
  assert.deepEqual(hmacSha256("ü", "ü"), createHmac("sha256", "ü").update("ü").digest());
  const [digest, seconds, nonce, mac] = sign("pay", SECRET, { version: 1, now: NOW }).split(":");
  assert.equal(seconds, String(NOW));
  assert.equal(mac, createHmac("sha256", SECRET).update(`${digest}:${seconds}:${nonce}`).digest("hex"));
});

test("signatures cover the payload, the parts and the time, and come once", () => {
  for (const version of [1, 2]) {
    const signature = sign("pay 5", SECRET, { version, now: NOW });
    assert.equal(verify(Buffer.from("pay 5"), signature, SECRET, { now: NOW + 300 }), version);
    assert.equal(verify("pay 5", signature, SECRET, { now: new Date(NOW * 1000) }), version);
    refused("SIGNATURE_WRONG", () => verify("pay 6", signature, SECRET, { now: NOW }));
    refused("SIGNATURE_WRONG", () => verify("pay 5", signature, `${SECRET}x`, { now: NOW }));
    refused("SIGNATURE_STALE", () => verify("pay 5", signature, SECRET, { now: NOW + 301 }));
  }
  const [signer, verifier] = [new Signer({ secret: SECRET }), new Verifier({ secret: SECRET, noncesMax: 2 })];
  const parts = { type: "order", id: "1", topic: "a", correlationId: "c" };
  const first = signer.sign("a", { ...parts, now: NOW });
  refused("SIGNATURE_WRONG", () => verifier.verify("a", first, { ...parts, type: "other", now: NOW }));
  assert.equal(verifier.verify("a", first, { ...parts, now: NOW }), 2);
  refused("SIGNATURE_REPLAYED", () => verifier.verify("a", first, { ...parts, now: NOW }));
  verifier.verify("a", signer.sign("a", { now: NOW }), { now: NOW });
  assert.equal(verifier.nonces, 2);
  const third = signer.sign("a", { now: NOW });
  assert.throws(
    () => verifier.verify("a", third, { now: NOW }),
    (error) => error instanceof BusyError && error.retryAfterMs > 0,
  );
});

const privateKey = () =>
  generateKeyPairSync("ec", { namedCurve: "P-256" }).privateKey.export({ type: "pkcs8", format: "pem" });

test("signatures with a key pair, of whole messages", () => {
  const signer = new Signer({ privateKey: privateKey() });
  const verifier = new Verifier({ publicKey: signer.publicKey });
  const message = encodeEnvelope("order", { n: 1 }, { id: randomUUID() });
  const signature = signer.signMessage(message);
  const signed = encodeEnvelope("order", { n: 1 }, { id: parseEnvelope(message).id, signature });
  assert.equal(verifier.verifyMessage(signed), 2);
  refused("SIGNATURE_MISSING", () => verifier.verifyMessage(message));
  assert.equal(new Signer({ secret: SECRET }).publicKey, undefined);
  for (const wrong of [{}, { secret: "short" }, { secret: SECRET, privateKey: "x" }, { privateKey: "x" }])
    assert.throws(() => new Signer(wrong), InvalidArgumentError);
  assert.throws(() => new Verifier({ publicKey: Buffer.alloc(3) }), InvalidArgumentError);
  assert.throws(() => sign("a", SECRET, { version: 3 }), InvalidArgumentError);
  assert.throws(() => sign("a", SECRET, { tipe: "x" }), InvalidArgumentError);
  assert.throws(() => sign(5, SECRET), WrongTypeError);
});

/** Both sides of an agreement. */
function agreed(version, { identity, pinned } = {}) {
  const [client, server, session] = [new KeyPair(), new KeyPair(), randomUUID()];
  const atServer = server.accept(client.publicKey, session, { version, identity });
  const atClient = client.finish(server.publicKey, session, { version, proof: atServer.proof, pinned });
  return [atClient, atServer];
}

test("both sides open what the other sealed, and nothing else", () => {
  for (const version of [1, 2]) {
    const [client, server] = agreed(version);
    for (const plain of ["", "a", "x".repeat(100_000)]) {
      const sealed = client.seal(plain);
      assert.equal(sealed.length, plain.length + 30);
      assert.equal(server.open(sealed).toString(), plain);
      assert.equal(client.open(server.seal(Buffer.from(plain))).toString(), plain);
    }
    assert.equal(client.version, version);
  }
  const [client, server] = agreed(2);
  const [first, second] = [client.seal("first"), client.seal("second")];
  refused("OUT_OF_ORDER", () => server.open(second));
  const changed = Buffer.from(first);
  changed[changed.length - 1] ^= 1;
  refused("TAMPERED", () => server.open(changed));
  assert.equal(server.open(first).toString(), "first");
  refused("OUT_OF_ORDER", () => server.open(first));
  refused("NOT_ENCRYPTED", () => server.open(Buffer.from("E:")));
  client.updateSealingKey();
  server.open(second);
  server.updateOpeningKey();
  assert.equal(server.open(client.seal("third")).toString(), "third");
  assert.equal(client.wantsKeyUpdate, false);
  assert.throws(() => agreed(1)[0].updateSealingKey(), InvalidArgumentError);
});

test("a pinned identity is proved, and an agreement happens once", () => {
  const identity = new IdentityKey(privateKey());
  const [client, server] = agreed(2, { identity, pinned: identity.publicKey });
  assert.equal(server.open(client.seal("x")).toString(), "x");
  refused("IDENTITY", () => agreed(2, { pinned: identity.publicKey }));
  refused("IDENTITY", () =>
    agreed(2, { identity: new IdentityKey(privateKey()), pinned: identity.publicKey }),
  );
  const pair = new KeyPair();
  assert.throws(() => pair.accept(Buffer.alloc(64), randomUUID()), InvalidArgumentError);
  assert.throws(() => pair.accept(pair.publicKey, "room 5"), InvalidArgumentError);
  refused("PEER_KEY", () => pair.accept(Buffer.concat([Buffer.from([4]), Buffer.alloc(64)]), randomUUID()));
  assert.throws(() => pair.accept(new KeyPair().publicKey, randomUUID()), /agrees once/);
  assert.throws(() => new SessionCipher(), WrongTypeError);
  assert.throws(() => new KeyPair().accept(pair.publicKey, randomUUID(), { identity: {} }), WrongTypeError);
});

test("every field of an envelope comes back, in both formats", () => {
  const id = randomUUID();
  const time = new Date(1_700_000_000_123);
  const own = { category: "system", id, sequence: 7, correlationId: "c", signature: "s", number: 9 };
  for (const format of ["json", "msgpack"]) {
    const message = encodeEnvelope("order", [1, "ü"], { ...own, time, format });
    assert.equal(typeof message === "string", format === "json");
    const read = parseEnvelope(message);
    for (const [name, value] of Object.entries(own)) assert.equal(read[name], value, name);
    assert.deepEqual([read.type, read.payload, read.time], ["order", [1, "ü"], time]);
    assert.deepEqual(JSON.parse(read.payloadJson), [1, "ü"]);
    const position = { epoch: EPOCH, offset: 4711 };
    const published = encodeEnvelope("tick", {}, { topic: "orders.eu", position, priority: 8, format });
    const other = parseEnvelope(published);
    assert.deepEqual([other.topic, other.position, other.priority], ["orders.eu", position, 8]);
    assert.deepEqual([other.time, other.sequence, other.redelivered], [undefined, undefined, false]);
  }
  const { c, t, p, v } = JSON.parse(encodeEnvelope("tick"));
  assert.deepEqual([c, t, p, v], ["U", "tick", {}, 1]);
});

test("envelopes that are none, that have to be opened, or cannot be built", () => {
  for (const broken of ["", "[]", "{", "{}", '{"t":5}', '{"t":"x","seq":-1}', '{"t":"x"} x', "M:"])
    assert.throws(() => parseEnvelope(broken), InvalidMessageError, broken);
  assert.throws(() => parseEnvelope(compress(Buffer.from('{"t":"x"}'), { prefix: true })), /decompress/);
  assert.throws(() => parseEnvelope(Buffer.concat([Buffer.from("E:"), Buffer.alloc(40)])), /SessionCipher/);
  const odd = parseEnvelope('{"t":"x","ts":"yesterday","p":{"a":01}}');
  assert.throws(() => odd.time, /yesterday/);
  assert.throws(() => odd.payload, InvalidMessageError);
  assert.throws(() => parseEnvelope(5), WrongTypeError);
  for (const wrong of [
    { id: "x" },
    { category: "U" },
    { format: "zlib" },
    { topic: "a", sequence: 1 },
    { topic: "a", position: { epoch: "xyz", offset: 1 } },
    { priority: 4 },
    { time: -1 },
    { time: new Date(Number.NaN) },
    { sequence: "1" },
    { sort: 1 },
  ])
    assert.throws(() => encodeEnvelope("x", 1, wrong), TidewireError, JSON.stringify(wrong));
  assert.throws(() => encodeEnvelope("", 1), InvalidArgumentError);
  assert.throws(() => encodeEnvelope("x", 1n), WrongTypeError);
});

test("whatever comes, it is accepted or refused by an error of the package", () => {
  const random = numbers(11);
  const message = Buffer.from(encodeEnvelope("order", { a: [1, "ü"] }, { signature: "2:hs256:1:00:x" }));
  const packed = encodeEnvelope("order", { a: [1] }, { format: "msgpack" });
  const [client, server] = agreed(2);
  const verifier = new Verifier({ secret: SECRET });
  const readers = [
    [compress(message), (data) => decompress(data, { bytesMax: 10_000 })],
    [packed, msgpackToJson],
    [message, (data) => parseEnvelope(data).payload],
    [packed, (data) => parseEnvelope(data).payload],
    [message, (data) => verifier.verifyMessage(data)],
    [client.seal("something"), (data) => server.open(data)],
    [client.seal("x"), (data) => new KeyPair().accept(data, randomUUID())],
  ];
  for (const [good, read] of readers) {
    for (let round = 0; round < 1000; round++) {
      let data = Buffer.from(good);
      for (let change = 0; change < 1 + random() * 4; change++) {
        const at = Math.floor(random() * (data.length + 1));
        const bytes = Buffer.from([random() * 256, random() * 256]);
        const kind = Math.floor(random() * 3);
        if (kind === 0) data = Buffer.concat([data.subarray(0, at), data.subarray(at + 1)]);
        else if (kind === 1) data = Buffer.concat([data.subarray(0, at), bytes, data.subarray(at)]);
        else if (at < data.length) data[at] ^= 1 << (random() * 8);
      }
      try {
        read(data);
      } catch (error) {
        if (!(error instanceof TidewireError)) throw error;
      }
    }
  }
});
