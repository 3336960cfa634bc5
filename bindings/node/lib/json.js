"use strict";

// JSON text from values, and values from JSON text.

const { types } = require("node:util");
const { InvalidMessageError, WrongTypeError } = require("./errors.js");

/** JSON text that is sent as it is where a payload is wanted. */
class RawJson {
  constructor(text) {
    if (typeof text !== "string") throw new WrongTypeError("RawJson takes JSON text");
    this.text = text;
  }

  toJSON() {
    return JSON.parse(this.text);
  }
}

/** The levels of objects and arrays in a payload (PROTOCOL 5.2). */
const LEVELS_MAX = 60;
/** The longest place that an error names, in characters. */
const PLACE_MAX = 80;
const OF_THE_LANGUAGE = [Map, Set, WeakMap, WeakSet, RegExp, Promise, Error];

/** What a payload of bytes begins with on its way to the native module and back; no JSON text begins so. */
const BYTES = "\0";

/** The JSON text of a payload, or the mark of bytes and their base64; `undefined` is `{}`, as no payload at all. */
function encode(value) {
  if (value === undefined) return "{}";
  if (typeof value === "object" && value !== null) {
    if (value instanceof RawJson) {
      if (value.text.startsWith(BYTES)) throw new WrongTypeError("RawJson takes JSON text");
      return value.text;
    }
    const bytes = bytesIn(value);
    if (bytes !== undefined) return `${BYTES}"${bytes.toString("base64")}"`;
  }
  path.length = 0;
  check(value);
  return JSON.stringify(value);
}

/** The names and indexes that lead to the value that is checked. */
const path = [];

/**
 * Throws for what JSON would leave out, change, or not read back. `core/payload.ts` of the TypeScript client has the same rules;
 * `conformance/values` holds both to `protocol/values/cases.json`.
 */
function check(value) {
  switch (typeof value) {
    case "string":
      if (!value.isWellFormed()) refuse("has half of a surrogate pair");
      return;
    case "number":
      if (!Number.isFinite(value)) refuse(`is ${value}`);
      return;
    case "boolean":
      return;
    case "object":
      if (value === null || value instanceof RawJson) return;
      break;
    default:
      refuse(`is ${typeof value === "undefined" ? "undefined" : `a ${typeof value}`}`);
  }
  if (path.length === LEVELS_MAX) refuse(`is nested deeper than ${LEVELS_MAX} levels`);
  if (Array.isArray(value)) {
    // A hole is undefined here.
    for (let index = 0; index < value.length; index += 1) checkMember(value[index], index);
    return;
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) checkInstance(value);
  for (const key of Object.keys(value)) {
    if (!key.isWellFormed()) refuse("has a name with half of a surrogate pair");
    checkMember(value[key], key);
  }
}

function checkMember(value, key) {
  path.push(key);
  check(value);
  path.pop();
}

/** Objects of an application's own classes are sent with their fields; those of the language have others that JSON omits. */
function checkInstance(value) {
  const isOfTheLanguage =
    bytesIn(value) !== undefined ||
    types.isBoxedPrimitive(value) ||
    OF_THE_LANGUAGE.some((kind) => value instanceof kind);
  if (typeof value.toJSON === "function" || isOfTheLanguage)
    refuse(`is a ${value.constructor?.name ?? "object"}`);
}

function refuse(why) {
  const place = path.map((key) => (typeof key === "number" ? `[${key}]` : `.${key}`)).join("");
  throw new WrongTypeError(`this value has no form in JSON: payload${place.slice(0, PLACE_MAX)} ${why}`);
}

/** The bytes of a view, an ArrayBuffer or a SharedArrayBuffer, without a copy; `undefined` for any other value. */
function bytesIn(value) {
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return Buffer.from(value);
  return undefined;
}

/** The value of a payload: bytes if it begins with their mark, or else that of JSON text. */
function decodePayload(text) {
  if (text.startsWith(BYTES)) return Buffer.from(text.slice(2, -1), "base64");
  return decode(text);
}

/** The payload of a whole message: bytes if it is marked as binary, `{}` if it is missing. */
function payloadOf(whole) {
  if (typeof whole !== "object" || whole === null) return undefined;
  const payload = whole.p === undefined ? whole.payload : whole.p;
  if (payload === undefined) return {};
  return whole.b === true && typeof payload === "string" ? Buffer.from(payload, "base64") : payload;
}

/** The value of JSON text that a peer has sent. */
function decode(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    // Older clients write the category of a message before it.
    const older = /^(?:WSE|S|U)(?=\{)/.exec(text);
    if (older !== null) return decode(text.slice(older[0].length));
    throw new InvalidMessageError(`the message is not JSON: ${error.message}`, { cause: error });
  }
}

module.exports = { RawJson, decode, decodePayload, encode, payloadOf };
