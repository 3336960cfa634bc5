/** The options and their defaults are those of the table of all clients, `options/client.json`. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { defaultBreaker } from "../src/core/breaker.js";
import { optional } from "../src/development/checks.js";
import { defaults, resolveOptions } from "../src/options.js";
import { limitsOf } from "../src/queue/limits.js";

interface Row {
  name: string;
  typescript?: string;
  typescript_default?: unknown;
}

const table = JSON.parse(readFileSync(new URL("../../../options/client.json", import.meta.url), "utf8")) as {
  groups: { options: Row[] }[];
};
const rows = table.groups
  .flatMap((group) => group.options)
  .filter((row): row is Row & { typescript: string } => row.typescript !== undefined);

/** Objects and functions that only a program in TypeScript can give. */
const OF_TYPESCRIPT = ["quality", "shared", "transport", "on", "signal", "log"];
/** What `endpoints()` has in its options. */
const endpoints = { choice: "weighted", breaker: defaultBreaker };

test("every option is in the table", () => {
  const known = [...Object.keys(defaults), ...optional, "reconnect"];
  const ofTable = rows.map((row) => row.typescript).filter((name) => !name.includes("."));
  expect([...ofTable, ...OF_TYPESCRIPT].sort()).toEqual(known.sort());
});

test("every field of an object is in the table", () => {
  const resolved = resolveOptions("ws://a", {});
  for (const [name, fields] of Object.entries({
    reconnect: resolved.reconnect ?? {},
    "endpoints.breaker": endpoints.breaker,
    queue: limitsOf({}),
  })) {
    const ofTable = rows.map((row) => row.typescript).filter((other) => other.startsWith(`${name}.`));
    expect(ofTable.sort()).toEqual(
      Object.keys(fields)
        .map((field) => `${name}.${field}`)
        .sort(),
    );
  }
});

const resolved = { ...resolveOptions("ws://a", {}), endpoints, queue: limitsOf({}) };
const withDefault = rows.filter((row) => row.typescript_default !== undefined);

test.each(withDefault)("$typescript has the default of the table", (row) => {
  let found: unknown = resolved;
  for (const name of row.typescript.split(".")) found = (found as Record<string, unknown>)[name];
  expect(found).toEqual(row.typescript_default);
});

test("no default is missing in the table", () => {
  const missing = Object.keys(defaults).filter((name) => !withDefault.some((row) => row.typescript === name));
  // Without a fixed value: the version, and headers, which are an object.
  expect(missing.sort()).toEqual(["clientVersion", "headers"]);
});
