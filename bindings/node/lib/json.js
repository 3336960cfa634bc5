"use strict";

// JSON text from values, and values from JSON text.

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

/** What a payload of bytes begins with on its way to the native module and back; no JSON text begins so. */
const BYTES = "\0";

/** The JSON text of a payload, or the mark of bytes and their base64; `undefined` is `null`. */
function encode(value) {
  if (value === undefined) return "null";
  if (typeof value === "object" && value !== null) {
    if (value instanceof RawJson) {
      if (value.text.startsWith(BYTES)) throw new WrongTypeError("RawJson takes JSON text");
      return value.text;
    }
    const bytes = bytesIn(value);
    if (bytes !== undefined) return `${BYTES}"${bytes.toString("base64")}"`;
  }
  let text;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new WrongTypeError(`this value has no form in JSON: ${error.message}`, { cause: error });
  }
  if (text === undefined) throw new WrongTypeError(`a ${typeof value} has no form in JSON`);
  return text;
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
  const payload = whole.p !== undefined ? whole.p : whole.payload;
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
