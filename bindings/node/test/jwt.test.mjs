// JSON Web Tokens and the other utilities.

import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { test } from "node:test";
import {
  Filter,
  InvalidArgumentError,
  jsonToMsgpack,
  jwt,
  msgpackToJson,
  TokenError,
  WrongTypeError,
} from "../index.mjs";
import { Client, serve } from "./support.mjs";

const SECRET = "a secret of at least thirty-two bytes";
const soonS = () => Math.floor(Date.now() / 1000) + 60;

test("a token says what was signed", () => {
  const claims = { sub: "user-1", exp: soonS(), name: "é" };
  const token = jwt.encode(claims, SECRET);
  assert.deepEqual(jwt.decode(token, SECRET), claims);
  const dated = jwt.encode({ sub: "a", exp: new Date(claims.exp * 1000) }, SECRET);
  assert.equal(jwt.decode(dated, SECRET).exp, claims.exp);
});

test("tokens that are refused, with their codes", () => {
  const code = (expected, action) =>
    assert.throws(action, (error) => error instanceof TokenError && error.code === expected);
  const token = jwt.encode({ sub: "a", exp: soonS() }, SECRET);
  code("WRONG_SIGNATURE", () => jwt.decode(token, `${SECRET}!`));
  code("EXPIRED", () => jwt.decode(token, SECRET, { now: soonS() + 60 }));
  code("MISSING_CLAIM", () => jwt.decode(jwt.encode({ sub: "a" }, SECRET, { check: false }), SECRET));
  code("MISSING_CLAIM", () => jwt.decode(token, SECRET, { required: ["sub", "exp", "role"] }));
  code("WRONG_ISSUER", () => jwt.decode(token, SECRET, { issuer: "https://a.example" }));
  code("MALFORMED", () => jwt.decode("a.b", SECRET));
  assert.throws(() => jwt.decode(1, SECRET), WrongTypeError);
  assert.throws(() => jwt.encode("claims", SECRET), WrongTypeError);
  assert.throws(() => jwt.encode({}, "short"), InvalidArgumentError);
  assert.throws(() => new jwt.TokenVerifier(SECRET, { algorithms: ["none"] }), InvalidArgumentError);
});

test("what a server would refuse is not signed", () => {
  const signer = new jwt.TokenSigner(SECRET);
  for (const [claims, words] of [
    [{ exp: soonS() }, /claim sub is missing/],
    [{ sub: "", exp: soonS() }, /claim sub is missing/],
    [{ sub: "a" }, /claim exp is missing/],
    [{ sub: "a", exp: new Date(0) }, /exp is past/],
    [{ sub: "a", exp: soonS(), filling: "x".repeat(8192) }, /a server accepts 8192 at most/],
  ]) {
    const refused = (error) => error instanceof InvalidArgumentError && words.test(error.message);
    assert.throws(() => jwt.encode(claims, SECRET), refused);
    assert.throws(() => signer.encode(claims), refused);
    assert.equal(signer.encode(claims, { check: false }).split(".").length, 3);
  }
  assert.throws(() => jwt.encode({}, SECRET, { check: 1 }), WrongTypeError);
});

test("keys of every algorithm, by their ids", () => {
  const pem = (key) => key.export({ type: key.type === "private" ? "pkcs8" : "spki", format: "pem" });
  const pairs = {
    RS256: generateKeyPairSync("rsa", { modulusLength: 2048 }),
    ES256: generateKeyPairSync("ec", { namedCurve: "P-256" }),
    EdDSA: generateKeyPairSync("ed25519"),
  };
  const keys = Object.fromEntries(
    Object.entries(pairs).map(([name, { publicKey }]) => [name, pem(publicKey)]),
  );
  const verifier = new jwt.TokenVerifier(keys);
  for (const [algorithm, { privateKey }] of Object.entries(pairs)) {
    const key = new jwt.TokenKey(pem(privateKey), { keyId: algorithm });
    assert.equal(key.algorithm, algorithm);
    const token = new jwt.TokenSigner(key).encode({ sub: algorithm, exp: soonS() });
    assert.equal(verifier.decode(token).sub, algorithm);
    assert.throws(() => jwt.decode(token, SECRET), TokenError);
  }
  // A public key that served as a secret would let anyone sign.
  assert.throws(() => new jwt.TokenKey(keys.RS256, { algorithm: "HS256" }), InvalidArgumentError);
});

test("a token of ours lets a client in", async (t) => {
  const server = await serve(t, { noAuth: undefined, jwtSecret: SECRET });
  const token = jwt.encode({ sub: "user-1", exp: soonS() }, SECRET);
  const client = await Client.connect(t, server.url, { headers: { cookie: `access_token=${token}` } }).catch(
    () => Client.connect(t, server.url, { headers: { authorization: `Bearer ${token}` } }),
  );
  await client.until("server_ready");
});

test("filters and MessagePack", () => {
  const filter = new Filter({ price: { $gt: 10 } });
  assert.equal(filter.matches({ price: 11 }), true);
  assert.deepEqual(filter.select([{ price: 1 }, { price: 20 }]), [{ price: 20 }]);
  assert.throws(() => new Filter({ price: { $nonsense: 1 } }), InvalidArgumentError);
  const value = { a: [1, 2.5, "é", null, true] };
  assert.deepEqual(JSON.parse(msgpackToJson(jsonToMsgpack(JSON.stringify(value)))), value);
  assert.throws(() => jsonToMsgpack("{"));
});
