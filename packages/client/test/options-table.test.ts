/** The options and their defaults are those of the table of all clients, `options/client.json`. */

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { defaults, optional, resolveOptions } from "../src/options.js";
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
const OF_TYPESCRIPT = ["shared", "transport", "on", "signal", "log", "breaker"];

test("every option is in the table", () => {
  const known = [...Object.keys(defaults), ...optional, "reconnect", "breaker"];
  const ofTable = rows.map((row) => row.typescript).filter((name) => !name.includes("."));
  expect([...ofTable, ...OF_TYPESCRIPT].sort()).toEqual(known.sort());
});

test("every field of an object is in the table", () => {
  const resolved = resolveOptions("ws://a", {});
  for (const [name, fields] of Object.entries({
    reconnect: resolved.reconnect ?? {},
    breaker: resolved.breaker,
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

// With one address the breaker is open for no longer than the longest wait, which has the same default.
const resolved = { ...resolveOptions(["ws://a", "ws://b"], {}), queue: limitsOf({}) };
const withDefault = rows.filter((row) => row.typescript_default !== undefined);

test.each(withDefault)("$typescript has the default of the table", (row) => {
  const [name = "", field] = row.typescript.split(".");
  const value = (resolved as unknown as Record<string, unknown>)[name];
  const found = field === undefined ? value : (value as Record<string, unknown>)[field];
  expect(found).toEqual(row.typescript_default);
});

test("no default is missing in the table", () => {
  const missing = Object.keys(defaults).filter((name) => !withDefault.some((row) => row.typescript === name));
  // Without a fixed value: the version, and headers, which are an object.
  expect(missing.sort()).toEqual(["clientVersion", "headers"]);
});
