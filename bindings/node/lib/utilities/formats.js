"use strict";

// zlib, MessagePack, and filters of payloads.

const { flag, text, whole } = require("../arguments.js");
const { encode } = require("../json.js");
const native = require("../native.js");
const { bytes, run } = require("./shared.js");

const INFLATED_BYTES_MAX = 16 * 1024 * 1024;

/** The zlib stream of some bytes. */
function compress(data, { level = 6, prefix = false } = {}) {
  const given = [bytes("data", data), whole("level", level, 0, 9), flag("prefix", prefix)];
  return run(() => native.compress(...given));
}

/** The content of a zlib stream, with or without `C:` before it. */
function decompress(data, { bytesMax = INFLATED_BYTES_MAX } = {}) {
  const given = [bytes("data", data), whole("bytesMax", bytesMax, 0, Number.MAX_SAFE_INTEGER)];
  return run(() => native.decompress(...given));
}

/** MessagePack with the value of JSON text. */
function jsonToMsgpack(json, { prefix = false } = {}) {
  return run(() => native.jsonToMessagepack(text("json", json), flag("prefix", prefix)));
}

/** JSON text with the value of MessagePack, with or without `M:` before it. */
function msgpackToJson(data) {
  return run(() => native.messagepackToJson(bytes("data", data)));
}

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

module.exports = { Filter, compress, decompress, jsonToMsgpack, msgpackToJson };
