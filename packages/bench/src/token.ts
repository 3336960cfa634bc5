/** Tokens for the connections: HS256 (RFC 7515, RFC 7518), signed with the server's secret. */

import { createHmac } from "node:crypto";

const TTL_S = 24 * 3600;

/** A token for one user, good for a day. */
export function tokenFor(user: string, secret: string): string {
  const claims = { sub: user, exp: Math.floor(Date.now() / 1000) + TTL_S };
  const body = `${part({ alg: "HS256", typ: "JWT" })}.${part(claims)}`;
  return `${body}.${createHmac("sha256", secret).update(body).digest("base64url")}`;
}

function part(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}
