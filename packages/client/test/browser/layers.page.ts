/** The layers of a connection in a page, which a test drives by bytes in hex. */

import { compress } from "../../src/compress.js";
import { hex } from "../../src/core/bytes.js";
import { hmacKey } from "../../src/core/crypto.js";
import type { Envelope, EnvelopeFields, KeyExchange } from "../../src/core/layers.js";
import { encrypt, keyExchange } from "../../src/encrypt.js";
import { TidewireError } from "../../src/errors.js";
import { msgpack } from "../../src/msgpack.js";
import { signature } from "../../src/sign.js";

const ECDH = { name: "ECDH", namedCurve: "P-256" };
const format = msgpack();
let exchange: KeyExchange;

function unhex(digits: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(digits.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
}

/** What a call gives, or the code of its error. */
async function outcome(call: () => unknown): Promise<unknown> {
  try {
    const result = await call();
    return result instanceof Uint8Array ? hex(result) : result;
  } catch (error) {
    return error instanceof TidewireError ? error.code : String(error);
  }
}

const layers = {
  read: (bytes: string) => outcome(() => format.read(unhex(bytes))),
  again: (bytes: string) =>
    outcome(() => {
      const { p, ...fields } = format.read(unhex(bytes));
      return format.envelope(fields as unknown as EnvelopeFields, p === undefined ? p : format.payload(p));
    }),
  inflate: (bytes: string, bytesMax: number) => outcome(() => compress().inflate(unhex(bytes), bytesMax)),
  deflate: (bytes: string) => outcome(() => compress().deflate(unhex(bytes))),
  sign: (
    secret: string,
    version: 1 | 2,
    fields: EnvelopeFields,
    payload: string,
    time: number,
    nonce: string,
  ) =>
    outcome(async () =>
      signature(await hmacKey(unhex(secret)), version, fields, unhex(payload), time, nonce),
    ),

  async begin(privateKey: JsonWebKey, publicKey: JsonWebKey, ivRandom: string): Promise<string> {
    const pair = {
      privateKey: await crypto.subtle.importKey("jwk", privateKey, ECDH, false, ["deriveBits"]),
      publicKey: await crypto.subtle.importKey("jwk", publicKey, ECDH, true, []),
    };
    exchange = await keyExchange(pair, 2, undefined, unhex(ivRandom));
    return exchange.hello.encryption_public_key;
  },
  accept: (hello: Envelope, connectionId: string) => outcome(() => exchange.accept(hello, connectionId)),
  seal: (bytes: string) => outcome(() => exchange.seal(unhex(bytes))),
  open: (bytes: string) => outcome(() => exchange.open(unhex(bytes))),
  updateSealingKey: () => exchange.updateSealingKey(),
  updateOpeningKey: () => exchange.updateOpeningKey(),
  encrypt: () => outcome(() => typeof encrypt()),
};

export type Layers = typeof layers;

Object.assign(globalThis, { layers });
