/** Encryption inside the WebSocket (PROTOCOL 10), by WebCrypto. */

import { DEVELOPMENT } from "#development";
import { type Bytes, base64, concat, fromBase64, utf8 } from "./core/bytes.js";
import { hmac, hmacKey, sha256, subtle } from "./core/crypto.js";
import { layered } from "./core/layered.js";
import type { Encryption, Envelope, KeyExchange } from "./core/layers.js";
import { TidewireError } from "./errors.js";

export interface EncryptOptions {
  /** The newest version to offer. Default 2; 1 is for servers that know no other. */
  version?: 1 | 2;
  /**
   * The server's identity key: 65 bytes, or their base64. The connection then ends if the server
   * has another one.
   */
  serverKey?: Uint8Array | string;
}

/**
 * Encryption as a layer of a connection, with keys of its own for each connection. Throws
 * `NOT_SUPPORTED` without `crypto.subtle`, and `INVALID_OPTION` for a key that is none or that goes
 * with version 1.
 */
export function encrypt({ version = 2, serverKey }: EncryptOptions = {}): Encryption {
  subtle("encryption");
  const pinned = typeof serverKey === "string" ? fromBase64(serverKey) : serverKey;
  if (serverKey !== undefined && (pinned?.length !== 65 || pinned[0] !== 4 || version === 1)) {
    const words =
      DEVELOPMENT && "serverKey of encrypt() is an uncompressed P-256 point of 65 bytes, and needs version 2";
    throw new TidewireError("INVALID_OPTION", words);
  }
  return {
    pipeline: layered,
    async begin() {
      const pair = await crypto.subtle.generateKey(ECDH, false, ["deriveBits"]);
      return keyExchange(pair, version, pinned, crypto.getRandomValues(new Uint8Array(4)));
    },
  };
}

/** @internal A key exchange with this key pair. `ivRandom` are 4 bytes for version 1. */
export async function keyExchange(
  pair: CryptoKeyPair,
  offered: 1 | 2,
  pinned: Uint8Array | undefined,
  ivRandom: Uint8Array,
): Promise<KeyExchange> {
  const ownKey = new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey));
  return new Exchange(pair.privateKey, ownKey, offered, pinned, ivRandom);
}

class Exchange implements KeyExchange {
  readonly hello: KeyExchange["hello"];
  version: 1 | 2 = 1;
  isSealed = false;
  readonly #privateKey: CryptoKey;
  readonly #ownKey: Bytes;
  readonly #pinned: Uint8Array | undefined;
  readonly #ivHead: Uint8Array;
  #sealing: Direction | undefined;
  #opening: Direction | undefined;

  constructor(
    privateKey: CryptoKey,
    ownKey: Bytes,
    offered: 1 | 2,
    pinned: Uint8Array | undefined,
    ivRandom: Uint8Array,
  ) {
    this.hello = { encryption_public_key: base64(ownKey), encryption_version: offered };
    this.#privateKey = privateKey;
    this.#ownKey = ownKey;
    this.#pinned = pinned;
    // A client's first bit is 0, so that its IVs are never those of a server.
    this.#ivHead = Uint8Array.of(ivRandom[0]! & 0x7f, ...ivRandom.subarray(1, 4));
  }

  async accept(serverHello: Envelope, connectionId: string): Promise<void> {
    const { encryption_public_key: encoded, encryption_version: version = 1 } = serverHello;
    if (!encoded) throw failed(DEVELOPMENT && "the server does not encrypt, and this client asks for it");
    const serverKey = bytesOf(encoded, 65);
    if (serverKey?.[0] !== 4) throw failed(DEVELOPMENT && "the public key of the server is unusable");
    if ((version !== 1 && version !== 2) || version > this.hello.encryption_version) {
      throw failed(DEVELOPMENT && "the server chose an encryption version that was not offered");
    }
    if (version === 1) {
      if (this.#pinned) throw failed(DEVELOPMENT && "the server has not proved its identity");
      const prk = await this.#extract(serverKey, new Uint8Array(32));
      const key = await expand(prk, "wse-encryption/aes-gcm-key");
      this.#sealing = this.#opening = new Direction(key, this.#ivHead, false);
    } else {
      if (connectionId.length !== 36) throw failed(DEVELOPMENT && "the connection id is not a UUID");
      const head = utf8("tidewire key exchange 2\0");
      const transcript = await sha256(concat(head, this.#ownKey, serverKey, utf8(connectionId)));
      await this.#checkIdentity(serverHello, transcript);
      const prk = await this.#extract(serverKey, transcript);
      const zeros = new Uint8Array(4);
      this.#sealing = new Direction(await expand(prk, "tidewire/2 client to server"), zeros, true);
      this.#opening = new Direction(await expand(prk, "tidewire/2 server to client"), zeros, true);
    }
    this.version = version;
  }

  seal(bytes: Uint8Array): Promise<Uint8Array> {
    return agreed(this.#sealing).seal(bytes);
  }

  open(bytes: Uint8Array): Promise<Uint8Array> {
    return agreed(this.#opening).open(bytes);
  }

  async updateSealingKey(): Promise<void> {
    this.#sealing = agreed(this.#sealing).next();
  }

  async updateOpeningKey(): Promise<void> {
    this.#opening = agreed(this.#opening).next();
  }

  get wantsKeyUpdate(): boolean {
    return this.version === 2 && agreed(this.#sealing).isWorn;
  }

  /** The pseudorandom key of HKDF. */
  async #extract(serverKey: Bytes, salt: Bytes): Promise<CryptoKey> {
    try {
      const publicKey = await crypto.subtle.importKey("raw", serverKey, ECDH, false, []);
      const secret = await crypto.subtle.deriveBits(
        { name: "ECDH", public: publicKey },
        this.#privateKey,
        256,
      );
      return await hmacKey(await hmac(await hmacKey(salt), new Uint8Array(secret)));
    } catch (cause) {
      throw failed(DEVELOPMENT && "the public key of the server is unusable", cause);
    }
  }

  async #checkIdentity(serverHello: Envelope, transcript: Bytes): Promise<void> {
    const { identity_public_key: encoded, identity_signature: signature } = serverHello;
    if (!encoded && !this.#pinned) return;
    const key = bytesOf(encoded, 65);
    const proof = bytesOf(signature, 64);
    const isPinned = !this.#pinned || this.#pinned.every((byte, index) => byte === key?.[index]);
    if (key && proof && isPinned) {
      const signed = concat(utf8("tidewire server identity 2\0"), transcript);
      const ecdsa = { name: "ECDSA", namedCurve: "P-256", hash: "SHA-256" };
      const isRight = await crypto.subtle
        .importKey("raw", key, ecdsa, false, ["verify"])
        .then((verifier) => crypto.subtle.verify(ecdsa, verifier, proof, signed))
        .catch(() => false);
      if (isRight) return;
    }
    throw failed(DEVELOPMENT && "the server has not proved its identity");
  }
}

/** One direction of version 2 under one key, or both directions of version 1. */
class Direction {
  readonly #secret: Promise<Bytes>;
  readonly #key: Promise<CryptoKey>;
  readonly #ivHead: Uint8Array;
  readonly #isCounted: boolean;
  #sealed = 0;
  #opened = 0;
  #bytes = 0;

  constructor(secret: Bytes | Promise<Bytes>, ivHead: Uint8Array, isCounted: boolean) {
    this.#secret = Promise.resolve(secret);
    this.#key = this.#secret.then((raw) =>
      crypto.subtle.importKey("raw", raw, "AES-GCM", false, ["encrypt", "decrypt"]),
    );
    // Where it fails, it fails each message.
    this.#key.catch(() => {});
    this.#ivHead = ivHead;
    this.#isCounted = isCounted;
  }

  get isWorn(): boolean {
    return this.#sealed >= 2 ** 24 || this.#bytes >= 2 ** 34;
  }

  /** The direction under the next key (10.5). */
  next(): Direction {
    const next = this.#secret.then(async (raw) => expand(await hmacKey(raw), "tidewire/2 key update"));
    return new Direction(next, this.#ivHead, true);
  }

  async seal(plain: Uint8Array): Promise<Uint8Array> {
    if (this.#sealed >= 2 ** 32) throw failed(DEVELOPMENT && "the encryption key is used up; connect again");
    // The number is assigned and the bytes are copied before anything is awaited, so that calls need not wait.
    const iv = this.#iv(this.#sealed);
    const copy = plain.slice();
    this.#sealed += 1;
    this.#bytes += plain.length;
    const sealed = await crypto.subtle.encrypt(this.#algorithm(iv), await this.#key, copy);
    return concat(PREFIX, iv, new Uint8Array(sealed));
  }

  async open(sealed: Uint8Array): Promise<Uint8Array> {
    const iv = sealed.slice(0, 12);
    const rest = sealed.slice(12);
    const isOurs = this.#isCounted ? !isEqual(iv, this.#iv(this.#opened)) : this.#isOwn(iv);
    this.#opened += 1;
    try {
      if (isOurs) throw new Error("an initialization vector that is not the server's next");
      return new Uint8Array(await crypto.subtle.decrypt(this.#algorithm(iv), await this.#key, rest));
    } catch (cause) {
      const words = DEVELOPMENT && "an encrypted message of the server cannot be opened";
      throw new TidewireError("PROTOCOL_ERROR", words, { fault: "server", cause });
    }
  }

  /** Whether a message of version 1 is one that this side has sealed, sent back. */
  #isOwn(iv: Bytes): boolean {
    const { buffer } = iv;
    const count = iv.length === 12 ? Number(new DataView(buffer).getBigUint64(4)) : 0;
    return count < this.#sealed && isEqual(iv.subarray(0, 4), this.#ivHead);
  }

  #iv(count: number): Bytes {
    const iv = new Uint8Array(12);
    iv.set(this.#ivHead);
    new DataView(iv.buffer).setBigUint64(4, BigInt(count));
    return iv;
  }

  #algorithm(iv: Bytes): AesGcmParams {
    return this.#isCounted ? { name: "AES-GCM", iv, additionalData: PREFIX } : { name: "AES-GCM", iv };
  }
}

function isEqual(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}

/** The first 32 bytes of HKDF-Expand. */
function expand(prk: CryptoKey, info: string): Promise<Bytes> {
  return hmac(prk, concat(utf8(info), Uint8Array.of(1)));
}

function bytesOf(value: unknown, length: number): Bytes | undefined {
  const bytes = fromBase64(value);
  return bytes?.length === length ? bytes : undefined;
}

function agreed(direction: Direction | undefined): Direction {
  if (!direction) throw failed(DEVELOPMENT && "no key has been agreed on");
  return direction;
}

function failed(words: string | false, cause?: unknown): TidewireError {
  return new TidewireError("KEY_EXCHANGE_FAILED", words, { fault: "server", cause });
}

const ECDH = { name: "ECDH", namedCurve: "P-256" };
const PREFIX = utf8("E:");
