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

/** The JSON text of a payload; `undefined` is `null`. */
function encode(value) {
  if (value === undefined) return "null";
  if (value instanceof RawJson) return value.text;
  let text;
  try {
    text = JSON.stringify(value);
  } catch (error) {
    throw new WrongTypeError(`this value has no form in JSON: ${error.message}`, { cause: error });
  }
  if (text === undefined) throw new WrongTypeError(`a ${typeof value} has no form in JSON`);
  return text;
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

module.exports = { RawJson, decode, encode };
