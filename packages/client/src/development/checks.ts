/** Checks of options: names that do not exist, with the nearest that does, and numbers that are none. */

import { defaultReconnect } from "../core/backoff.js";
import { defaultBreaker } from "../core/breaker.js";
import { isLeaf, isRecord, isWhole, LEVELS_AROUND, LEVELS_MAX, levelsAround } from "../core/payload.js";
import { isPattern } from "../core/topics.js";
import { type ClientOptions, defaults, invalid } from "../options.js";
import type { SubscribeOptions } from "../subscription.js";

/** Options without a default. */
export const optional: readonly (keyof ClientOptions)[] = [
  "on",
  "format",
  "compression",
  "encryption",
  "signing",
  "quality",
  "queue",
  "shared",
  "transport",
  "signal",
  "log",
  "token",
  "tokenPlacement",
];

const SUBSCRIBE_OPTIONS: readonly string[] = [
  "recover",
  "from",
  "replay",
  "filter",
  "overload",
  "queueGroup",
  "acknowledge",
  "window",
  "presence",
  "tokens",
  "buffer",
  "signal",
];

const PUBLISH_OPTIONS = ["type", "priority", "id", "key", "ttlMs", "excludeSelf", "isSnapshot", "signal"];

export function checkClient(options: { reconnect?: object | false }, resolved: object): void {
  checkNames("", options, [...Object.keys(defaults), ...optional, "reconnect"]);
  checkNames("reconnect.", options.reconnect || {}, Object.keys(defaultReconnect));
  checkNumbers({ ...resolved, ...options.reconnect });
}

export function checkEndpoints(options: { breaker?: object }, breaker: object): void {
  checkNames("", options, ["choice", "breaker"]);
  checkNames("breaker.", options.breaker ?? {}, Object.keys(defaultBreaker));
  checkNumbers(breaker);
}

/** What a client gives {@link checkSubscribe}. */
interface Subscribing {
  driver: { options: Pick<ClientOptions, "log"> };
  degraded(what: string, reason: string): void;
}

export function checkSubscribe(
  client: Subscribing,
  names: readonly string[],
  options: SubscribeOptions,
): void {
  checkNames("subscribe: ", options, SUBSCRIBE_OPTIONS);
  const pattern = names.find((name) => isPattern(name));
  if (pattern === undefined) return;
  for (const what of ["recover", "replay"] as const) {
    if (!options[what]) continue;
    const reason = `${what} has no effect on the pattern ${pattern}: the server keeps no position of a pattern (PROTOCOL 19.4); subscribe to the topics by their names`;
    client.driver.options.log?.("warn", reason);
    client.degraded(what, reason);
  }
}

export function checkPublish(options: object): void {
  checkNames("publish: ", options, PUBLISH_OPTIONS);
}

/** Refuses a name that is not among `known`, and names the nearest one. */
function checkNames(prefix: string, value: object, known: readonly string[]): void {
  for (const name of Object.keys(value)) {
    if (known.includes(name)) continue;
    const nearest = known.reduce((best, other) =>
      distance(name, other) < distance(name, best) ? other : best,
    );
    const hint = distance(name, nearest) <= 1 + name.length / 3 ? `; did you mean ${prefix}${nearest}?` : "";
    throw invalid(`there is no option ${prefix}${name}${hint}`);
  }
}

/** Refuses times, sizes and counts that are none. */
function checkNumbers(values: object): void {
  for (const [name, value] of Object.entries(values)) {
    if (/(Ms|Max)$/.test(name) && !(typeof value === "number" && value >= 0)) {
      throw invalid(`${name} must be a number from 0 on, not ${String(value)}`);
    }
  }
}

/** The Levenshtein distance of two names, in lower case. */
function distance(left: string, right: string): number {
  const [a, b] = [left.toLowerCase(), right.toLowerCase()];
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      next[j] = Math.min(row[j]! + 1, next[j - 1]! + 1, row[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
    }
    row = next;
  }
  return row[b.length]!;
}

/** What of a value cannot be sent, such as `payload.at is a Date`. Its place begins with `name`. */
export function explainFlaw(name: string, value: unknown, isBinary: boolean | undefined): string {
  const flaw = flawOf(value, levelsAround(name), isBinary) ?? " is a value that messages do not have";
  // The place of a deeply nested value is long.
  const place = (name + flaw).replace(/^\./, "").replace(/^(.{60}).{9,}(.{60})$/s, "$1…$2");
  return `${place}, which cannot be sent; send values of JSON, or bytes as the whole payload`;
}

function flawOf(value: unknown, level: number, isBinary: boolean | undefined): string | undefined {
  if (typeof value === "string") return isWhole(value) ? undefined : " has half a character";
  if (isLeaf(value) || (isBinary && has64Bits(value))) return undefined;
  if (value === undefined) return " is undefined";
  if (typeof value === "number") return ` is ${value}`;
  if (typeof value !== "object") return ` is a ${typeof value}`;
  if (level >= LEVELS_MAX) return ` is deeper than ${LEVELS_MAX - LEVELS_AROUND} levels`;
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const flaw = flawOf(value[index], level + 1, isBinary);
      if (flaw) return `[${index}]${flaw}`;
    }
    return undefined;
  }
  if (!isRecord(value as object)) return ` is a ${(value as object).constructor?.name}`;
  for (const [key, field] of Object.entries(value as object)) {
    if (!isWhole(key)) return " has a name with half a character";
    const flaw = flawOf(field, level + 1, isBinary);
    if (flaw) return `.${key}${flaw}`;
  }
  return undefined;
}

function has64Bits(value: unknown): boolean {
  return (
    typeof value === "bigint" && (BigInt.asUintN(64, value) === value || BigInt.asIntN(64, value) === value)
  );
}
