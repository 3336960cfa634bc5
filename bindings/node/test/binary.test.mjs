// Payloads of bytes: every kind of view goes in, and bytes come out.

import assert from "node:assert/strict";
import { test } from "node:test";
import { encodeEnvelope, parseEnvelope, RawJson, WrongTypeError } from "../index.mjs";
import { Client, serve } from "./support.mjs";

const BYTES = Buffer.from([0, 1, 255]);
const LIMITS = { messageBytesMax: 4 << 20, payloadBytesMax: 2 << 20, history: { "kept.>": 100 } };

function content(length) {
  return Buffer.from(Array.from({ length }, (_, at) => (at * 31) % 251));
}

test("every kind of bytes is a binary payload", async (t) => {
  const server = await serve(t, LIMITS);
  const client = await Client.connect(t, server.url);
  await client.subscribe("kept.a");
  const { buffer } = new Uint8Array(BYTES);
  const kinds = [BYTES, new Uint8Array(BYTES), buffer, new DataView(buffer), new Int8Array(buffer)];
  for (const payload of kinds) {
    server.publish("kept.a", payload, { type: "data" });
    const message = await client.until("data");
    assert.deepEqual([message.b, message.p], [true, "AAH/"]);
  }
  server.publish("kept.a", "AAH/", { type: "data" });
  assert.equal((await client.until("data")).b, undefined);
  const { publications } = server.history("kept.a");
  assert.deepEqual(
    publications.map(({ payload }) => payload),
    [...kinds.map(() => BYTES), "AAH/"],
  );
  assert.throws(() => server.publish("kept.a", new RawJson('\0"AAH/"')), WrongTypeError);
});

for (const handlers of [true, false]) {
  test(`messages, requests and answers have bytes, ${handlers ? "with handlers" : "in batches"}`, async (t) => {
    const answer = (message) => {
      if (message.kind === "request") return message.payload;
      message.connection.send(message.payload, { type: "back" });
      return undefined;
    };
    const server = await serve(t, LIMITS, (server) => {
      if (!handlers) return;
      server.on("data", answer);
      server.handle("mirror", answer);
    });
    if (!handlers) {
      (async () => {
        for await (const batch of server.batches()) {
          for (const message of batch) {
            if (message.kind === "request") message.reply(answer(message));
            else if (message.kind === "message") answer(message);
          }
        }
      })();
    }
    const client = await Client.connect(t, server.url);
    for (const length of [0, 1, 65_535, 1024 * 1024]) {
      const p = content(length).toString("base64");
      client.say("data", undefined, { b: true, p });
      const back = await client.until("back");
      assert.deepEqual([back.b, back.p === p], [true, true]);
      client.say("data", p);
      assert.equal((await client.until("back")).b, undefined);
      client.say("call_request", { type: "mirror", payload: p, binary: true }, { cid: "1" });
      const { p: answered } = await client.until("call_response");
      assert.deepEqual([answered.binary, answered.payload === p], [true, true]);
      client.say("data", { b: true, p: "AAH/" });
      assert.deepEqual((await client.until("back")).p, { b: true, p: "AAH/" });
    }
  });
}

test("envelopes have bytes in both formats", () => {
  for (const format of ["json", "msgpack"]) {
    const message = encodeEnvelope("a", BYTES, { format });
    assert.deepEqual(parseEnvelope(message).payload, BYTES);
    assert.equal(parseEnvelope(message).payloadJson, '"AAH/"');
    assert.equal(parseEnvelope(encodeEnvelope("a", "AAH/", { format })).payload, "AAH/");
  }
});
