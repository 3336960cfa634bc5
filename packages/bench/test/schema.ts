/** A validator for the report's JSON Schema: the keywords that it uses, and an error for any other. */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

type Schema = Record<string, unknown>;

const FILE = fileURLToPath(new URL("../../../docs/report-1.schema.json", import.meta.url));
const ROOT = JSON.parse(readFileSync(FILE, "utf8")) as Schema;

/** The faults of a report, one line for each finding. */
export function violations(report: unknown): string[] {
  const found: string[] = [];
  check(ROOT, report, "report", found);
  return found;
}

const TYPES: Record<string, (value: unknown) => boolean> = {
  object: (value) => typeof value === "object" && value !== null && !Array.isArray(value),
  array: (value) => Array.isArray(value),
  string: (value) => typeof value === "string",
  number: (value) => typeof value === "number",
  integer: (value) => Number.isInteger(value),
  boolean: (value) => typeof value === "boolean",
};

const KEYWORDS: Record<string, (argument: never, value: never, at: string, found: string[]) => void> = {
  type: (type: string, value, at, found) => {
    if (!TYPES[type]!(value)) found.push(`${at} is no ${type}`);
  },
  enum: (values: unknown[], value, at, found) => {
    if (!values.includes(value)) found.push(`${at} is none of ${JSON.stringify(values)}`);
  },
  const: (wanted: unknown, value, at, found) => {
    if (value !== wanted) found.push(`${at} is not ${JSON.stringify(wanted)}`);
  },
  minimum: (least: number, value: number, at, found) => {
    if (value < least) found.push(`${at} is less than ${least}`);
  },
  maximum: (most: number, value: number, at, found) => {
    if (value > most) found.push(`${at} is more than ${most}`);
  },
  minItems: (least: number, value: unknown[], at, found) => {
    if (value.length < least) found.push(`${at} has less than ${least} items`);
  },
  maxItems: (most: number, value: unknown[], at, found) => {
    if (value.length > most) found.push(`${at} has more than ${most} items`);
  },
  pattern: (pattern: string, value: string, at, found) => {
    if (!new RegExp(pattern).test(value)) found.push(`${at} does not match ${pattern}`);
  },
  format: (format: string, value: string, at, found) => {
    if (format !== "date-time")
      throw new Error(`the schema has a format that this validator does not know: ${format}`);
    if (!/^[0-9-]+T[0-9:.]+Z$/.test(value) || Number.isNaN(Date.parse(value))) found.push(`${at} is no time`);
  },
  required: (names: string[], value: object, at, found) => {
    for (const name of names) if (!Object.hasOwn(value, name)) found.push(`${at} has no ${name}`);
  },
  $ref: (reference: string, value, at, found) => check(resolve(reference), value, at, found),
};

const IGNORED = new Set(["$schema", "$id", "$defs", "title", "description", "prefixItems"]);

function check(schema: Schema, value: unknown, at: string, found: string[]): void {
  for (const [keyword, argument] of Object.entries(schema)) {
    if (IGNORED.has(keyword)) continue;
    if (keyword === "properties") {
      for (const [name, one] of Object.entries(argument as Record<string, Schema>)) {
        const member = (value as Record<string, unknown>)[name];
        if (member !== undefined) check(one, member, `${at}.${name}`, found);
      }
    } else if (keyword === "additionalProperties" || keyword === "items") {
      members(schema, value, keyword).forEach(([name, member]) => {
        check(argument as Schema, member, `${at}.${name}`, found);
      });
    } else {
      const keep = KEYWORDS[keyword];
      if (keep === undefined)
        throw new Error(`the schema has a keyword that this validator does not know: ${keyword}`);
      keep(argument as never, value as never, at, found);
    }
  }
}

function members(schema: Schema, value: unknown, keyword: string): [string, unknown][] {
  if (typeof value !== "object" || value === null) return [];
  if (keyword === "items") return Array.isArray(value) ? Object.entries(value) : [];
  const known = Object.keys((schema.properties as object | undefined) ?? {});
  return Object.entries(value).filter(([name]) => !known.includes(name));
}

function resolve(reference: string): Schema {
  let schema: unknown = ROOT;
  for (const part of reference.replace("#/", "").split("/")) schema = (schema as Schema)[part];
  return schema as Schema;
}
