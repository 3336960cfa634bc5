"use strict";

// Names of options. One that a call does not have is refused with the nearest that it has.

const { shown } = require("./arguments.js");
const { InvalidArgumentError, WrongTypeError } = require("./errors.js");
const native = require("./native.js");

/** What a caller who gives no options has given. */
const NONE = Object.freeze({});

const nearest = (name, known) => native.nearestName(name, [...known]);

/** The words that refuse a name among many, with the nearest that exists. */
function unknown(name, known) {
  const found = nearest(name, known);
  return `unknown option ${name}${found === null ? "" : `: did you mean ${found}?`}`;
}

/** The words that refuse a name among the few of a call. */
function unknownOf(call, name, known) {
  const found = nearest(name, known);
  const hint = found === null ? `it has ${[...known].join(", ")}` : `did you mean ${found}?`;
  return `${call} has no option ${name}: ${hint}`;
}

/** The options of a call, whose names are all `known`; an empty object if there are none. */
function named(call, options, known) {
  if (options === undefined || options === null) return NONE;
  if (typeof options !== "object" || Array.isArray(options)) {
    throw new WrongTypeError(`the options of ${call} are an object, not ${shown(options)}`);
  }
  for (const name in options) {
    if (!known.has(name)) throw new InvalidArgumentError(unknownOf(call, name, known));
  }
  return options;
}

module.exports = { named, unknown };
