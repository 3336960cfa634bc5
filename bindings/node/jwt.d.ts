// The types of `jwt`: JSON Web Tokens (RFC 7519), signed and checked by the server's own code.

import { TokenError } from "./index.js";

export { TokenError };

export type Algorithm = "HS256" | "RS256" | "ES256" | "EdDSA";
/** A secret of at least 32 bytes, or PEM text. */
export type KeyText = string | ArrayBufferView;

export interface KeyOptions {
  /** By default the only one that the key can be for. */
  algorithm?: Algorithm;
  /** The key's name in the header of tokens. */
  keyId?: string;
}

/** A key for one algorithm. */
export class TokenKey {
  constructor(key: KeyText, options?: KeyOptions);
  get algorithm(): Algorithm;
  get keyId(): string | undefined;
}

export type Keys = KeyText | TokenKey | (KeyText | TokenKey)[] | Record<string, KeyText>;

export interface Claims {
  sub?: string;
  /** Seconds since 1970, or a `Date`. */
  exp?: number | Date;
  nbf?: number | Date;
  iat?: number | Date;
  [name: string]: unknown;
}

export interface EncodeOptions {
  /**
   * Throw an `InvalidArgumentError` for claims that a server would refuse: without `sub` or `exp`, with a wrong type, or
   * with an `exp` that is past; and for a token that is too long. Default true.
   */
  check?: boolean;
}

/** Signs tokens with one key, which is read once. */
export class TokenSigner {
  constructor(key: KeyText | TokenKey, options?: KeyOptions);
  encode(claims: Claims, options?: EncodeOptions): string;
}

export interface VerifyOptions {
  algorithms?: Algorithm[];
  issuer?: string;
  audience?: string;
  /** The allowed difference of clocks, in seconds. Default 5. */
  leewayS?: number;
  /** Claims that have to be there. Default `sub` and `exp`. */
  required?: Iterable<string>;
}

export interface DecodeOptions {
  /** Seconds since 1970; by default those of the clock. */
  now?: number;
}

/** Checks tokens with some keys, which are read once. */
export class TokenVerifier {
  constructor(keys: Keys, options?: VerifyOptions);
  decode(token: string, options?: DecodeOptions): Record<string, any>;
}

/** A token with these claims, signed with `key`. */
export function encode(
  claims: Claims,
  key: KeyText | TokenKey,
  options?: KeyOptions & EncodeOptions,
): string;
/** The claims of a token that one of `keys` signed. */
export function decode(token: string, keys: Keys, options?: VerifyOptions & DecodeOptions): Record<string, any>;
