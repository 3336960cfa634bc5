/** Signatures of messages by a shared secret (PROTOCOL 11). */

import { DEVELOPMENT } from "#development";
import { base64, hex, utf8 } from "./core/bytes.js";
import { hmac, hmacKey, sha256, subtle } from "./core/crypto.js";
import { layered } from "./core/layered.js";
import type { EnvelopeFields, Signing } from "./core/layers.js";
import { TidewireError } from "./errors.js";

export interface SignOptions {
  /** The secret that the server knows as well: at least 32 bytes; a text counts as UTF-8. */
  secret: string | Uint8Array;
  /** 1 covers the payload alone; 2 also the type, id, topic and correlation id. Default 2. */
  version?: 1 | 2;
}

/**
 * Signs each message by HMAC-SHA256. Throws `NOT_SUPPORTED` without `crypto.subtle`, and
 * `INVALID_OPTION` for a short secret.
 */
export function sign({ secret, version = 2 }: SignOptions): Signing {
  subtle("signing");
  const bytes = typeof secret === "string" ? utf8(secret) : secret;
  if (bytes.length < 32) {
    throw new TidewireError(
      "INVALID_OPTION",
      DEVELOPMENT && "the secret of sign() is too short: give it at least 32 bytes",
    );
  }
  const key = hmacKey(bytes);
  return {
    pipeline: layered,
    length: version === 1 ? 173 : 95,
    sign(fields, payload, unixMs) {
      const nonce = hex(crypto.getRandomValues(new Uint8Array(16)));
      return signature(key, version, fields, payload, Math.floor(unixMs / 1000), nonce);
    },
  };
}

/** @internal The signature at this time, in seconds, with this nonce. */
export async function signature(
  key: CryptoKey | Promise<CryptoKey>,
  version: 1 | 2,
  fields: EnvelopeFields,
  payload: Uint8Array,
  time: number,
  nonce: string,
): Promise<string> {
  const hash = hex(await sha256(payload));
  if (version === 1) {
    const text = `${hash}:${time}:${nonce}`;
    return `${text}:${hex(await hmac(await key, utf8(text)))}`;
  }
  const { t, id = "", tp = "", cid = "" } = fields;
  const lines = ["tidewire signature 2", t, id, tp, cid, time, nonce, hash];
  const text = lines.join("\n");
  if (text.split("\n").length !== lines.length) {
    throw new TidewireError(
      "INVALID_ARGUMENT",
      DEVELOPMENT && "a signed field of a message must not have a line break",
    );
  }
  const mac = base64(await hmac(await key, utf8(text)));
  const url = mac.replaceAll("+", "-").replaceAll("/", "_").replace("=", "");
  return `2:hs256:${time}:${nonce}:${url}`;
}
