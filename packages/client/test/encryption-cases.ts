/** The vectors of encryption, as a client and WebCrypto want them. */

import { base64 } from "../src/core/bytes.js";
import type { Envelope } from "../src/core/layers.js";
import { unhex } from "./vectors.js";

export interface SessionCase {
  name: string;
  kind: "session" | "public_key";
  version: 1 | 2;
  client_private_key: string;
  client_public_key: string;
  server_public_key: string;
  client_iv_random?: string;
  connection_id?: string;
  identity_public_key?: string;
  identity_signature?: string;
  messages: { from: string; plain: string; sealed: string; then_key?: string }[];
  opened?: { by: string; plain: string; sealed: string }[];
  refused: { by: string; sealed: string; error: string }[];
  public_key: string;
  usable: boolean;
}

/** The client's keys of a session, as JSON Web Keys. */
export function keysOf(session: SessionCase): { privateKey: JsonWebKey; publicKey: JsonWebKey } {
  const url = (digits: string) => Buffer.from(digits, "hex").toString("base64url");
  const x = url(session.client_public_key.slice(2, 66));
  const publicKey = { kty: "EC", crv: "P-256", x, y: url(session.client_public_key.slice(66)) };
  return { privateKey: { ...publicKey, d: url(session.client_private_key) }, publicKey };
}

/** The payload of the server's hello. */
export function helloOf(session: SessionCase): Envelope {
  const encoded = (digits: string | undefined) => digits && base64(unhex(digits));
  return {
    encryption_public_key: encoded(session.server_public_key),
    encryption_version: session.version,
    identity_public_key: encoded(session.identity_public_key),
    identity_signature: encoded(session.identity_signature),
  };
}
