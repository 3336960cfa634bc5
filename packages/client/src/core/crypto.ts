/** The parts of WebCrypto that signatures and encryption share. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import type { Bytes } from "./bytes.js";

/**
 * `crypto.subtle`. Throws `NOT_SUPPORTED` where there is none: a page of plain `http:` that is not
 * on localhost.
 */
export function subtle(purpose: string): SubtleCrypto {
  const found = globalThis.crypto?.subtle;
  if (found) return found;
  throw new TidewireError(
    "NOT_SUPPORTED",
    DEVELOPMENT && `${purpose} needs crypto.subtle: serve the page by https or from localhost`,
  );
}

export async function sha256(bytes: Uint8Array): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes as Bytes));
}

/** A key for {@link hmac}. */
export function hmacKey(secret: Uint8Array): Promise<CryptoKey> {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  return crypto.subtle.importKey("raw", secret as Bytes, algorithm, false, ["sign"]);
}

/** HMAC with SHA-256. */
export async function hmac(key: CryptoKey, bytes: Uint8Array): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, bytes as Bytes));
}
