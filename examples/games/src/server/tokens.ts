/**
 * Tokens of players: JSON Web Tokens (RFC 7519) with HS256, which the engine checks. A player is
 * `NAME~SUFFIX`: the suffix is random, so that two players may have the same name.
 */

import { createHmac, randomBytes, timingSafeEqual } from "node:crypto";

const LIFE_S = 24 * 3_600;
const NAME = /^[\p{L}\p{N}][\p{L}\p{N} _'-]{0,23}$/u;

const encode = (value: unknown) => Buffer.from(JSON.stringify(value)).toString("base64url");

export interface Login {
  player: string;
  token: string;
}

/** A token for a player, good for a day. */
export function tokenFor(player: string, secret: string, nowS: number): string {
  const signed = `${encode({ alg: "HS256", typ: "JWT" })}.${encode({ sub: player, exp: nowS + LIFE_S })}`;
  return `${signed}.${sign(signed, secret)}`;
}

/**
 * The player of a token; `undefined` if the token is not ours. A token that has expired still
 * proves who it was.
 */
export function playerOf(token: string, secret: string): string | undefined {
  const [head, body, signature] = token.split(".");
  if (!head || !body || !signature) return undefined;
  const expected = Buffer.from(sign(`${head}.${body}`, secret));
  const given = Buffer.from(signature);
  if (expected.length !== given.length || !timingSafeEqual(expected, given)) return undefined;
  const { sub } = JSON.parse(Buffer.from(body, "base64url").toString()) as { sub?: unknown };
  return typeof sub === "string" ? sub : undefined;
}

/**
 * A new player of this name, or the player of an earlier token; `undefined` if the name cannot be
 * used.
 */
export function login(name: unknown, earlier: unknown, secret: string, nowS: number): Login | undefined {
  const known = typeof earlier === "string" ? playerOf(earlier, secret) : undefined;
  if (known === undefined && (typeof name !== "string" || !NAME.test(name))) return undefined;
  const player = known ?? `${name}~${randomBytes(6).toString("base64url")}`;
  return { player, token: tokenFor(player, secret, nowS) };
}

function sign(text: string, secret: string): string {
  return createHmac("sha256", secret).update(text).digest("base64url");
}
