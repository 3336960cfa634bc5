// The values of `protocol/values/cases.json` in JavaScript; `../notation.py` explains both functions.
import { createHash } from "node:crypto";

const WHOLE_MAX = 256;
export const MISSING = undefined;

export function build(spec) {
  if (Array.isArray(spec)) return spec.map(build);
  if (spec === null || typeof spec !== "object") return spec;
  switch (spec.$) {
    case undefined:
      return Object.fromEntries(Object.entries(spec).map(([key, value]) => [key, build(value)]));
    case "missing":
      return MISSING;
    case "number":
      return Number(spec.text);
    case "units":
      return String.fromCharCode(...spec.hex.match(/.{4}/g).map((unit) => Number.parseInt(unit, 16)));
    case "repeat":
      return spec.text.repeat(spec.times);
    case "nest":
      return Array.from({ length: spec.levels - 1 }).reduce((value) => [value], []);
    case "bytes":
      // An element keeps the lowest 8 bits.
      return new Uint8Array(spec.count).map((_, index) => index);
    case "json":
      return JSON.parse(spec.text);
    case "typescript":
      return new Function(`return ${spec.text}`)();
    default:
      throw new Error(`no form ${spec.$} in ${JSON.stringify(spec)}`);
  }
}

export function describe(value) {
  if (value === null || typeof value === "boolean") return value;
  if (typeof value === "string") return longForm("text", Buffer.from(value)) ?? ["text", value];
  if (ArrayBuffer.isView(value)) {
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    return longForm("bytes", bytes) ?? ["bytes", bytes.toString("base64")];
  }
  if (typeof value === "bigint") return ["number", value.toString()];
  if (typeof value === "number") return describeNumber(value);
  if (Array.isArray(value)) return ["array", value.map(describe)];
  if (typeof value === "object") {
    return ["object", Object.fromEntries(Object.entries(value).map(([key, item]) => [key, describe(item)]))];
  }
  return ["other", typeof value];
}

function describeNumber(value) {
  if (Number.isInteger(value)) return ["number", BigInt(value).toString()];
  const bits = Buffer.alloc(8);
  bits.writeDoubleBE(value);
  return ["double", bits.toString("hex")];
}

function longForm(kind, bytes) {
  if (bytes.length <= WHOLE_MAX) return undefined;
  return [`long ${kind}`, bytes.length, createHash("sha256").update(bytes).digest("hex")];
}
