"use strict";

// What is useful without a server, and Node lacks.

const { text } = require("./arguments.js");
const { translated } = require("./errors.js");
const { encode } = require("./json.js");
const native = require("./native.js");

/** A filter of payloads, compiled once: the documents that subscriptions take. */
class Filter {
  #filter;

  constructor(document) {
    this.#filter = run(() => new native.NativeFilter(encode(document)));
  }

  /** Whether the filter takes a payload. */
  matches(payload) {
    return this.#filter.matches(encode(payload));
  }

  /** Those of `payloads` that match, in their order. */
  select(payloads) {
    return [...payloads].filter((payload) => this.matches(payload));
  }

  /** The filter's document as JSON text, the same for equal documents. */
  get document() {
    return this.#filter.document;
  }
}

/** MessagePack with the value of JSON text. */
function jsonToMsgpack(json) {
  return run(() => native.jsonToMessagepack(text("json", json)));
}

/** JSON text with the value of MessagePack. */
function msgpackToJson(bytes) {
  return run(() => native.messagepackToJson(bytes));
}

function run(action) {
  try {
    return action();
  } catch (error) {
    throw translated(error);
  }
}

module.exports = { Filter, jsonToMsgpack, msgpackToJson };
