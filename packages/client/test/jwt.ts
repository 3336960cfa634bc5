/** HS256 tokens, as a backend would sign them. */

import { createHmac } from "node:crypto";

export const SECRET = "a secret of at least 32 bytes, for tests";

export function token(claims: { sub: string; expiresInS?: number; [name: string]: unknown }): string {
  const { expiresInS = 3600, ...rest } = claims;
  const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString("base64url");
  const head = `${encode({ alg: "HS256", typ: "JWT" })}.${encode({ exp: Math.floor(Date.now() / 1000) + expiresInS, ...rest })}`;
  return `${head}.${createHmac("sha256", SECRET).update(head).digest("base64url")}`;
}
