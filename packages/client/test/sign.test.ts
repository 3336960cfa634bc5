import { createHmac } from "node:crypto";
import { describe, expect, test } from "vitest";
import { hmacKey } from "../src/core/crypto.js";
import { sign, signature } from "../src/sign.js";
import { hmacCases, partsOf } from "./signature-cases.js";
import { unhex } from "./vectors.js";

const signed = hmacCases();

describe("signatures", () => {
  test("there are vectors of both versions and formats", () => {
    expect(new Set(signed.map((one) => `${one.version} ${one.format}`)).size).toBe(4);
  });

  test.each(signed)("$name", async (one) => {
    const key = await hmacKey(unhex(one.secret));
    const { fields, payload } = partsOf(one);
    const made = await signature(key, one.version, fields, payload, one.time_unix_s, one.nonce);
    expect(made).toBe(one.signature);
    const mac = createHmac("sha256", unhex(one.secret)).update(unhex(one.signed_bytes));
    expect(made.endsWith(mac.digest(one.version === 1 ? "hex" : "base64url"))).toBe(true);
  });

  test("each has a nonce of its own and the time in seconds", async () => {
    const signing = sign({ secret: "s".repeat(32) });
    const made = await Promise.all(
      [1, 2].map(() => signing.sign({ t: "a" }, new Uint8Array(), 1_732_212_345_999)),
    );
    const form = /^2:hs256:1732212345:([0-9a-f]{32}):[\w-]{43}$/;
    const nonces = made.map((text) => form.exec(text)?.[1]);
    expect(nonces[0]).toBeTruthy();
    expect(nonces[1]).not.toBe(nonces[0]);
    const first = await sign({ secret: new Uint8Array(32), version: 1 }).sign(
      { t: "a" },
      new Uint8Array(),
      5_000,
    );
    expect(first).toMatch(/^[0-9a-f]{64}:5:[0-9a-f]{32}:[0-9a-f]{64}$/);
  });

  test("a line break in a signed field is refused, a short secret as well", async () => {
    const signing = sign({ secret: new Uint8Array(32) });
    for (const fields of [
      { t: "a\nb" },
      { t: "a", id: "\n" },
      { t: "a", tp: "x\n" },
      { t: "a", cid: "\n" },
    ]) {
      const refused = expect(signing.sign(fields, new Uint8Array(), 0));
      await refused.rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    }
    expect(() => sign({ secret: "é".repeat(15) })).toThrow("at least 32 bytes");
    expect(() => sign({ secret: "é".repeat(16) })).not.toThrow();
  });
});
