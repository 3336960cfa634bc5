"use strict";

// Signatures of messages, and encryption between two sides.

const { optionalText, text, whole } = require("../arguments.js");
const { WrongTypeError } = require("../errors.js");
const { named } = require("../names.js");
const native = require("../native.js");
const { bytes, run, textOrBytes, unixSeconds } = require("./shared.js");

const NONCES_MAX = 1_000_000;

const NOW = new Set(["now"]);
const VERSION = new Set(["version", "now"]);
const PARTS = ["type", "id", "topic", "correlationId"];
const SIGN = new Set([...VERSION, ...PARTS]);
const VERIFY = new Set([...NOW, ...PARTS]);
const SIGNER = new Set(["secret", "privateKey"]);
const VERIFIER = new Set(["secret", "publicKey", "noncesMax"]);
const ACCEPT = new Set(["version", "identity"]);
const FINISH = new Set(["version", "proof", "pinned"]);

/** HMAC-SHA256 of a message: 32 bytes. */
function hmacSha256(key, message) {
  return native.hmacSha256(textOrBytes("key", key), textOrBytes("message", message));
}

/** A signature of `payload`, with the time and a nonce in it. */
function sign(payload, secret, options) {
  return new Signer({ secret }).sign(payload, options);
}

/** Checks a signature of `sign`, but not that it is new: for that there is `Verifier`. Its version. */
function verify(payload, signature, secret, options) {
  const { now } = named("verify", options, NOW);
  const verifier = run(() => new native.NativeVerifier(textOrBytes("secret", secret), undefined, 0));
  const given = [textOrBytes("payload", payload), text("signature", signature), unixSeconds(now)];
  return run(() => verifier.check(...given));
}

/** A key that signs: a secret of at least 32 bytes, or the private key of P-256 as PKCS#8 in PEM. */
class Signer {
  #signer;

  constructor(options) {
    const { secret, privateKey } = named("Signer", options, SIGNER);
    const key = secret === undefined ? undefined : textOrBytes("secret", secret);
    optionalText("privateKey", privateKey);
    this.#signer = run(() => new native.NativeSigner(key, privateKey));
  }

  /** A signature of a message's parts. Version 1 covers the payload alone. */
  sign(payload, options) {
    const { version = 2, now, ...parts } = named("sign", options, SIGN);
    const given = [textOrBytes("payload", payload), partsOf(parts), versionOf(version), unixSeconds(now)];
    return run(() => this.#signer.sign(...given));
  }

  /** A signature of a whole message, JSON or MessagePack. */
  signMessage(message, options) {
    const { version = 2, now } = named("signMessage", options, VERSION);
    const given = [textOrBytes("message", message), versionOf(version), unixSeconds(now)];
    return run(() => this.#signer.signMessage(...given));
  }

  /** The key for a `Verifier`, if it is not a secret: 65 bytes. */
  get publicKey() {
    return this.#signer.publicKey ?? undefined;
  }
}

/** Checks signatures, and that each comes once within 5 minutes; remembers up to `noncesMax` of them. */
class Verifier {
  #verifier;

  constructor(options) {
    const { secret, publicKey, noncesMax = NONCES_MAX } = named("Verifier", options, VERIFIER);
    const key = secret === undefined ? undefined : textOrBytes("secret", secret);
    const point = publicKey === undefined ? undefined : bytes("publicKey", publicKey);
    whole("noncesMax", noncesMax, 0, Number.MAX_SAFE_INTEGER);
    this.#verifier = run(() => new native.NativeVerifier(key, point, noncesMax));
  }

  /** Checks the signature of a message's parts, and that it is new. The version of the signature. */
  verify(payload, signature, options) {
    const { now, ...parts } = named("verify", options, VERIFY);
    const given = [textOrBytes("payload", payload), text("signature", signature), partsOf(parts)];
    const nowS = unixSeconds(now);
    return run(() => this.#verifier.verify(...given, nowS));
  }

  /** Checks the signature in a whole message, and that it is new. The version of the signature. */
  verifyMessage(message, options) {
    const { now } = named("verifyMessage", options, NOW);
    const given = [textOrBytes("message", message), unixSeconds(now)];
    return run(() => this.#verifier.verifyMessage(...given));
  }

  /** How many signatures are remembered. */
  get nonces() {
    return this.#verifier.nonces;
  }
}

/** The parts of a message that are signed besides its payload. */
function partsOf({ type, id, topic, correlationId }) {
  return {
    type: optionalText("type", type) ?? "",
    id: optionalText("id", id) ?? "",
    topic: optionalText("topic", topic) ?? "",
    correlationId: optionalText("correlationId", correlationId) ?? "",
  };
}

function versionOf(version) {
  return whole("version", version, 1, 2);
}

/** One side's fresh keys for one agreement (ECDH on P-256, HKDF-SHA256). */
class KeyPair {
  #pair = run(() => new native.NativeKeyPair());

  /** The public key for the other side: an uncompressed point, 65 bytes. */
  get publicKey() {
    return this.#pair.publicKey;
  }

  /** The side that was spoken to: what both sides seal and open with from now on. */
  accept(peerPublicKey, session, options) {
    const { version = 2, identity } = named("accept", options, ACCEPT);
    if (identity !== undefined && !(identity instanceof IdentityKey)) {
      throw new WrongTypeError("identity is an IdentityKey");
    }
    const given = [bytes("peerPublicKey", peerPublicKey), text("session", session), versionOf(version)];
    return made(run(() => this.#pair.accept(...given, identity?._native)));
  }

  /** The side that spoke first: what both sides seal and open with from now on. */
  finish(peerPublicKey, session, options) {
    const { version = 2, proof, pinned } = named("finish", options, FINISH);
    const given = [bytes("peerPublicKey", peerPublicKey), text("session", session), versionOf(version)];
    const proven = proof === undefined ? undefined : bytes("proof", proof);
    const expected = pinned === undefined ? undefined : bytes("pinned", pinned);
    return made(run(() => this.#pair.finish(...given, proven, expected)));
  }
}

/** A lasting key, by which one side is known: the private key of P-256 as PKCS#8 in PEM. */
class IdentityKey {
  constructor(privateKey) {
    text("privateKey", privateKey);
    const key = run(() => new native.NativeIdentityKey(privateKey));
    Object.defineProperty(this, "_native", { value: key });
  }

  /** The key that the other side pins: an uncompressed point, 65 bytes. */
  get publicKey() {
    return this._native.publicKey;
  }
}

const MADE_HERE = Symbol("a cipher of a key pair");
const made = (cipher) => new SessionCipher(MADE_HERE, cipher);

/** The cipher of both sides once they agreed (AES-256-GCM). */
class SessionCipher {
  #cipher;

  constructor(token, cipher) {
    if (token !== MADE_HERE) {
      throw new WrongTypeError("a SessionCipher comes from KeyPair.accept() or KeyPair.finish()");
    }
    this.#cipher = cipher;
  }

  /** `plain`, encrypted: 30 bytes more. A string counts as its UTF-8. */
  seal(plain) {
    const data = textOrBytes("plain", plain);
    return run(() => this.#cipher.seal(data));
  }

  /** The content of a sealed message of the other side. */
  open(message) {
    const data = bytes("message", message);
    return run(() => this.#cipher.open(data));
  }

  /** 1 or 2, as agreed. */
  get version() {
    return this.#cipher.version;
  }

  /** The `proof` for `KeyPair.finish`, if `KeyPair.accept` was given an identity. */
  get proof() {
    return this.#cipher.proof ?? undefined;
  }

  /** Whether it is time for another key; never in version 1. */
  get wantsKeyUpdate() {
    return this.#cipher.wantsKeyUpdate;
  }

  /** Changes the key of this side, when the other side has been notified. */
  updateSealingKey() {
    run(() => this.#cipher.updateSealingKey());
  }

  /** Changes the key of the other side, when it has said so. */
  updateOpeningKey() {
    run(() => this.#cipher.updateOpeningKey());
  }
}

module.exports = { hmacSha256, IdentityKey, KeyPair, SessionCipher, sign, Signer, Verifier, verify };
