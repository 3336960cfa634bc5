/** The vectors of signatures, taken apart as a client makes them. */

import type { EnvelopeFields } from "../src/core/layers.js";
import { msgpack } from "../src/msgpack.js";
import { unhex, vectors } from "./vectors.js";

export interface SignatureCase {
  name: string;
  format: "json" | "messagepack";
  algorithm: "hs256" | "es256";
  secret: string;
  message: string;
  version: 1 | 2;
  time_unix_s: number;
  nonce: string;
  signed_bytes: string;
  signature: string;
  expected: string;
}

/** What a client with a secret signs. */
export function hmacCases(): SignatureCase[] {
  const cases = vectors<SignatureCase>("signatures");
  return cases.filter((one) => one.expected === "accepted" && one.algorithm === "hs256");
}

/** The fields of a message and the bytes of its payload as they stand in it. */
export function partsOf(one: SignatureCase): { fields: EnvelopeFields; payload: Uint8Array } {
  const bytes = unhex(one.message);
  if (one.format === "json") {
    const text = new TextDecoder().decode(bytes);
    const { p, payload = p, type, t = type, ...fields } = JSON.parse(text);
    // As it was written, with its white space.
    const found = /"(?:p|payload)":(\{.*?\})(?:,"sig"|\}$)/.exec(text);
    if (payload !== undefined && !found) throw new Error(`no payload in ${text}`);
    return { fields: { t, ...fields }, payload: new TextEncoder().encode(found?.[1] ?? "") };
  }
  const { p, ...fields } = msgpack().read(bytes);
  const payload = msgpack().payload(p) as Uint8Array;
  const at = Buffer.from(bytes).indexOf(payload);
  if (at < 0) throw new Error("the payload is written otherwise");
  return { fields: fields as unknown as EnvelopeFields, payload };
}
