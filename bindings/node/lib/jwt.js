"use strict";

// JSON Web Tokens (RFC 7519), signed and checked by the server's own code.

const { flag, optionalText, shown, text, whole } = require("./arguments.js");
const { InvalidArgumentError, TokenError, translated, WrongTypeError } = require("./errors.js");
const { encode: json } = require("./json.js");
const { named } = require("./names.js");
const native = require("./native.js");

/** The claims that are times (RFC 7519, section 4.1). */
const TIMES = ["exp", "nbf", "iat"];

const KEY = new Set(["algorithm", "keyId"]);
const CHECK = new Set(["check"]);
const RULES = new Set(["algorithms", "issuer", "audience", "leewayS", "required"]);
const NOW = new Set(["now"]);
const ENCODE = new Set([...KEY, ...CHECK]);
const DECODE = new Set([...RULES, ...NOW]);

/** A key for one algorithm: a secret (`HS256`, at least 32 bytes), or PEM text. */
class TokenKey {
  constructor(key, options) {
    const { algorithm, keyId } = named("TokenKey", options, KEY);
    optionalText("algorithm", algorithm);
    optionalText("keyId", keyId);
    this._native = run(() => new native.NativeTokenKey(bytesOf(key), algorithm, keyId));
  }

  /** `HS256`, `RS256`, `ES256` or `EdDSA`. */
  get algorithm() {
    return this._native.algorithm;
  }

  /** The key's name in the header of tokens, or `undefined`. */
  get keyId() {
    return this._native.keyId ?? undefined;
  }

  /** A key does not show what it is. */
  [Symbol.for("nodejs.util.inspect.custom")]() {
    return `<TokenKey ${this.algorithm}>`;
  }
}

/** Signs tokens with one key, which is read once. */
class TokenSigner {
  #signer;

  constructor(key, options) {
    const own = oneKey(key, named("TokenSigner", options, KEY));
    this.#signer = run(() => new native.NativeTokenSigner(own._native));
  }

  /** The token with these claims. Times are seconds since 1970, or a `Date`. */
  encode(claims, options) {
    const { check = true } = named("encode", options, CHECK);
    const checkedAt = flag("check", check) ? Date.now() / 1000 : undefined;
    if (typeof claims !== "object" || claims === null || Array.isArray(claims)) {
      throw new WrongTypeError(`the claims are an object, not ${shown(claims)}`);
    }
    return run(() => this.#signer.encode(json(inSeconds(claims)), checkedAt));
  }
}

/** Checks tokens with some keys, which are read once. */
class TokenVerifier {
  #verifier;

  constructor(keys, options) {
    const given = named("TokenVerifier", options, RULES);
    const { algorithms, issuer, audience, leewayS = 5, required = ["sub", "exp"] } = given;
    const own = severalKeys(keys).map((key) => key._native);
    const names = algorithms && [...algorithms].map((algorithm) => text("algorithms", algorithm));
    const claims = [...required].map((claim) => text("required", claim));
    const rules = [names, optionalText("issuer", issuer), optionalText("audience", audience)];
    whole("leewayS", leewayS);
    this.#verifier = run(() => new native.NativeTokenVerifier(own, ...rules, leewayS, claims));
  }

  /** The claims of a good token. `now` is seconds since 1970, for tests. */
  decode(token, options) {
    const { now = Date.now() / 1000 } = named("decode", options, NOW);
    if (typeof now !== "number" || !(now >= 0)) {
      throw new InvalidArgumentError(`now is a number of seconds since 1970, not ${shown(now)}`);
    }
    return JSON.parse(run(() => this.#verifier.decode(text("the token", token), now)));
  }
}

/** A token with these claims, signed with `key`. */
function encode(claims, key, options) {
  const { check, ...own } = named("encode", options, ENCODE);
  return new TokenSigner(key, own).encode(claims, { check });
}

/** The claims of a token that one of `keys` signed. */
function decode(token, keys, options) {
  const { now, ...rules } = named("decode", options, DECODE);
  return new TokenVerifier(keys, rules).decode(token, { now });
}

function oneKey(key, { algorithm, keyId } = {}) {
  if (!(key instanceof TokenKey)) return new TokenKey(key, { algorithm, keyId });
  if (algorithm !== undefined && algorithm !== key.algorithm) {
    throw new InvalidArgumentError(`the key is for ${key.algorithm}, not for ${algorithm}`);
  }
  return key;
}

/** One key, some of them, or an object with keys by their ids. */
function severalKeys(keys) {
  if (typeof keys === "string" || keys instanceof TokenKey || ArrayBuffer.isView(keys)) return [oneKey(keys)];
  if (Array.isArray(keys)) return keys.map((key) => oneKey(key));
  if (typeof keys === "object" && keys !== null) {
    return Object.entries(keys).map(([keyId, key]) => new TokenKey(key, { keyId }));
  }
  throw new WrongTypeError(
    `keys are a key, an array of keys, or an object of them by their ids, not ${shown(keys)}`,
  );
}

function bytesOf(key) {
  if (typeof key === "string") return Buffer.from(key);
  if (ArrayBuffer.isView(key)) return Buffer.from(key.buffer, key.byteOffset, key.byteLength);
  throw new WrongTypeError(`a key is a string or bytes, not ${shown(key)}`);
}

/** The claims with times as tokens have them: in seconds. */
function inSeconds(claims) {
  const copy = { ...claims };
  for (const name of TIMES) {
    const value = copy[name];
    if (value instanceof Date) copy[name] = Math.floor(value.getTime() / 1000);
    else if (value !== undefined && typeof value !== "number") {
      throw new WrongTypeError(`${name} is a Date or a number of seconds since 1970, not ${shown(value)}`);
    }
  }
  return copy;
}

function run(action) {
  try {
    return action();
  } catch (error) {
    throw translated(error);
  }
}

module.exports = { TokenError, TokenKey, TokenSigner, TokenVerifier, decode, encode };
