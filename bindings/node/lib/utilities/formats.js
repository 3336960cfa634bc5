"use strict";

// zlib, MessagePack, and filters of payloads.

const { flag, text, whole } = require("../arguments.js");
const { encode } = require("../json.js");
const { named } = require("../names.js");
const native = require("../native.js");
const { bytes, run } = require("./shared.js");

const INFLATED_BYTES_MAX = 16 * 1024 * 1024;

const COMPRESS = new Set(["level", "prefix"]);
const DECOMPRESS = new Set(["bytesMax"]);
const PREFIX = new Set(["prefix"]);

/** The zlib stream of some bytes. */
function compress(data, options) {
  const { level = 6, prefix = false } = named("compress", options, COMPRESS);
  const given = [bytes("data", data), whole("level", level, 0, 9), flag("prefix", prefix)];
  return run(() => native.compress(...given));
}

/** The content of a zlib stream, with or without `C:` before it. */
function decompress(data, options) {
  const { bytesMax = INFLATED_BYTES_MAX } = named("decompress", options, DECOMPRESS);
  const given = [bytes("data", data), whole("bytesMax", bytesMax, 0, Number.MAX_SAFE_INTEGER)];
  return run(() => native.decompress(...given));
}

/** MessagePack with the value of JSON text. */
function jsonToMsgpack(json, options) {
  const { prefix = false } = named("jsonToMsgpack", options, PREFIX);
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
