// The utilities against the vectors of the protocol, which every implementation loads.

import assert from "node:assert/strict";
import fs from "node:fs";
import { createRequire } from "node:module";
import { test } from "node:test";
import {
  decompress,
  InvalidMessageError,
  parseEnvelope,
  SecurityError,
  Signer,
  Verifier,
} from "../index.mjs";

const native = createRequire(import.meta.url)("../lib/native.js");
const { translated } = createRequire(import.meta.url)("../lib/errors.js");

const cases = (name) => {
  const file = new URL(`../../../protocol/vectors/${name}.json`, import.meta.url);
  return JSON.parse(fs.readFileSync(file, "utf8")).cases;
};
const hex = (text) => Buffer.from(text, "hex");

/** A message in the form that `parseEnvelope` takes: decompressed. */
function opened(frame) {
  if (frame.text !== undefined) return frame.text;
  const bytes = hex(frame.binary);
  const isZlib = bytes.subarray(0, 2).equals(Buffer.from("C:")) || bytes[0] === 0x78;
  return isZlib ? decompress(bytes) : bytes;
}

test("envelopes in every form of a frame", () => {
  let count = 0;
  for (const { name, frames, envelope } of cases("envelopes")) {
    for (const frame of frames) {
      const what = `${name}: ${JSON.stringify(frame)}`;
      count += 1;
      if (envelope === null) {
        assert.throws(() => parseEnvelope(opened(frame)).payload, InvalidMessageError, what);
        continue;
      }
      const read = parseEnvelope(opened(frame));
      const categories = { U: "update", S: "snapshot", WSE: "system" };
      assert.equal(read.type, envelope.t, what);
      assert.equal(read.category, categories[envelope.c], what);
      assert.equal(read.id, envelope.id, what);
      assert.equal(read.time?.toISOString(), envelope.ts, what);
      if (Number.isSafeInteger(envelope.seq ?? 0)) assert.equal(read.sequence, envelope.seq, what);
      else assert.throws(() => read.sequence, InvalidMessageError, what);
      assert.equal(read.priority, envelope.pri ?? 5, what);
      assert.equal(read.correlationId, envelope.cid, what);
      assert.equal(read.signature, envelope.sig, what);
      assert.equal(read.topic, envelope.tp, what);
      const position = envelope.e === undefined ? undefined : { epoch: envelope.e, offset: envelope.o };
      assert.deepEqual(read.position, position, what);
      assert.equal(read.delivery, envelope.d, what);
      assert.equal(read.redelivered, envelope.rd ?? false, what);
      assert.equal(read.number, envelope.n, what);
      // A payload that is null counts as missing in the vectors.
      assert.deepEqual(read.payload ?? undefined, envelope.p, what);
    }
  }
  assert.ok(count > 100, `${count} frames`);
});

test("signatures", () => {
  for (const one of cases("signatures")) {
    const key = one.algorithm === "hs256" ? { secret: hex(one.secret) } : { publicKey: hex(one.public_key) };
    const prefix = one.format === "json" ? "" : "M:";
    const message = Buffer.concat([Buffer.from(prefix), hex(one.message)]);
    const verifier = new Verifier(key);
    const check = () => verifier.verifyMessage(message, { now: one.now_unix_s });
    if (one.expected !== "accepted") {
      const code = `SIGNATURE_${one.expected.toUpperCase()}`;
      assert.throws(check, (error) => error instanceof SecurityError && error.code === code, one.name);
      assert.equal(verifier.nonces, 0, one.name);
      continue;
    }
    assert.equal(check(), one.version, one.name);
    assert.throws(check, { code: "SIGNATURE_REPLAYED" }, one.name);
    // A signature of our own over the same message is accepted, too.
    if (one.algorithm !== "hs256") continue;
    const signature = new Signer(key).signMessage(message, { version: one.version, now: one.now_unix_s });
    assert.match(signature, /^[0-9a-f]{64}:|^2:hs256:/, one.name);
  }
});

test("encryption: both sides seal and open the bytes of the vectors", () => {
  const run = (action) => {
    try {
      return action();
    } catch (error) {
      throw translated(error);
    }
  };
  let messages = 0;
  for (const one of cases("encryption").filter(({ kind }) => kind === "session")) {
    const session = one.connection_id ?? "0193501e-7c4e-7000-8000-000000000001";
    const pairs = () => [
      new native.NativeKeyPair(hex(one.client_private_key)),
      new native.NativeKeyPair(hex(one.server_private_key)),
    ];
    const [client, server] = pairs();
    assert.equal(client.publicKey.toString("hex"), one.client_public_key, one.name);
    assert.equal(server.publicKey.toString("hex"), one.server_public_key, one.name);
    let proof;
    let pinned;
    if (one.identity_signature !== undefined) {
      pinned = hex(one.identity_public_key);
      proof = Buffer.concat([pinned, hex(one.identity_signature)]);
    }
    const sides = {
      client: client.finish(server.publicKey, session, one.version, proof, pinned),
      server: server.accept(hex(one.client_public_key), session, one.version, undefined),
    };
    const other = { client: "server", server: "client" };
    for (const { from, plain, sealed, then_key: nextKey } of one.messages) {
      messages += 1;
      // The random part of the first version's IVs is the sealer's own.
      const made = sides[from].seal(hex(plain));
      if (one.version === 2) assert.equal(made.toString("hex"), sealed, one.name);
      assert.equal(sides[other[from]].open(hex(sealed)).toString("hex"), plain, one.name);
      if (nextKey !== undefined) {
        sides[from].updateSealingKey();
        sides[other[from]].updateOpeningKey();
      }
    }
    for (const { by, plain, sealed } of one.opened)
      assert.equal(sides[by].open(hex(sealed)).toString("hex"), plain);
    // What a side sealed itself it knows in the first version by the random part of its own IVs.
    const isOwn = ({ by, sealed }) =>
      one.messages.some(({ from, sealed: sent }) => from === by && sent === sealed);
    for (const { by, sealed } of one.refused.filter((each) => one.version === 2 || !isOwn(each)))
      assert.throws(() => run(() => sides[by].open(hex(sealed))), SecurityError, `${one.name}: ${sealed}`);
  }
  assert.ok(messages > 4, `${messages} messages`);
});

test("encryption: points that are no keys", () => {
  for (const { name, public_key: point, usable } of cases("encryption").filter(
    ({ kind }) => kind === "public_key",
  )) {
    const agree = () =>
      new native.NativeKeyPair().accept(hex(point), "0193501e-7c4e-7000-8000-000000000001", 2);
    if (usable) agree();
    else assert.throws(agree, /PEER_KEY/, name);
  }
});
