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

/** The levels of objects and arrays in a payload, which the envelope and a batch around it leave of the protocol's 64. */
const LEVELS_MAX = 61;
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
  check(value, "payload", 0);
  return JSON.stringify(value);
}

/** Throws for what JSON would leave out, change, or not read back. */
function check(value, place, level) {
  switch (typeof value) {
    case "string":
      if (!value.isWellFormed()) refuse(place, "has half of a surrogate pair");
      return;
    case "number":
      if (!Number.isFinite(value)) refuse(place, `is ${value}`);
      return;
    case "boolean":
      return;
    case "object":
      if (value === null || value instanceof RawJson) return;
      break;
    default:
      refuse(place, `is ${typeof value === "undefined" ? "undefined" : `a ${typeof value}`}`);
  }
  if (level === LEVELS_MAX) refuse(place.slice(0, 80), `is nested deeper than ${LEVELS_MAX} levels`);
  if (Array.isArray(value)) {
    // A hole is undefined here.
    for (let index = 0; index < value.length; index += 1)
      check(value[index], `${place}[${index}]`, level + 1);
    return;
  }
  const prototype = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) checkInstance(value, place);
  for (const key in value) {
    if (!key.isWellFormed()) refuse(place, "has a name with half of a surrogate pair");
    check(value[key], `${place}.${key}`, level + 1);
  }
}

/** Objects of an application's own classes are sent with their fields; those of the language have others that JSON omits. */
function checkInstance(value, place) {
  const name = value.constructor?.name ?? "object";
  if (typeof value.toJSON === "function" || isOfTheLanguage(value)) refuse(place, `is a ${name}`);
}

function isOfTheLanguage(value) {
  return (
    bytesIn(value) !== undefined ||
    types.isBoxedPrimitive(value) ||
    OF_THE_LANGUAGE.some((kind) => value instanceof kind)
  );
}

function refuse(place, why) {
  throw new WrongTypeError(`this value has no form in JSON: ${place} ${why}`);
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

/** The payload of a whole message: bytes if it is marked as binary. */
function payloadOf(whole) {
  if (typeof whole !== "object" || whole === null) return undefined;
  const payload = whole.p !== undefined ? whole.p : (whole.payload ?? (whole.payload === null ? null : {}));
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
