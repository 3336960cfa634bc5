"use strict";

// Arguments of callers. A wrong type names the argument, the expected type and the given one.

const { InvalidArgumentError, WrongTypeError } = require("./errors.js");

function shown(value) {
  if (value === null) return "null";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (typeof value === "string") return value.length > 40 ? "a long string" : JSON.stringify(value);
  return Array.isArray(value) ? "an array" : `a ${typeof value}`;
}

function text(argument, value) {
  if (typeof value !== "string") throw new WrongTypeError(`${argument} is a string, not ${shown(value)}`);
  return value;
}

function optionalText(argument, value) {
  return value === undefined || value === null ? undefined : text(argument, value);
}

/** A type of messages: 1 to 128 bytes. */
function name(argument, value) {
  if (text(argument, value).length === 0 || value.length > 128) {
    throw new InvalidArgumentError(`${argument} has 1 to 128 bytes, not ${value.length}`);
  }
  return value;
}

function flag(argument, value) {
  if (typeof value !== "boolean")
    throw new WrongTypeError(`${argument} is true or false, not ${shown(value)}`);
  return value;
}

/** A whole number in a range. */
function whole(argument, value, min = 0, max = 4_294_967_295) {
  if (typeof value !== "number") {
    throw new WrongTypeError(`${argument} is a whole number from ${min} to ${max}, not ${shown(value)}`);
  }
  if (!Number.isInteger(value) || value < min || value > max) {
    throw new InvalidArgumentError(`${argument} is ${value}; it is a whole number from ${min} to ${max}`);
  }
  return value;
}

function optionalWhole(argument, value, min, max) {
  return value === undefined || value === null ? undefined : whole(argument, value, min, max);
}

const PRIORITIES = new Set([1, 3, 5, 8, 10]);

/** The number of a priority; 0 for that of the topic. */
function priorityNumber(value) {
  if (value === undefined || value === null) return 0;
  if (!PRIORITIES.has(value))
    throw new InvalidArgumentError(`priority is 1, 3, 5, 8 or 10, not ${shown(value)}`);
  return value;
}

/** Beside the number of a priority: the message is volatile. */
const VOLATILE = 128;

/** The number of a priority, and whether the message is volatile. */
function urgency(priority, volatile) {
  const number = priorityNumber(priority);
  if (volatile === undefined || volatile === null) return number;
  return flag("volatile", volatile) ? number | VOLATILE : number;
}

function closing(code, reason) {
  whole("code", code, 0, 0xffff);
  text("reason", reason);
}

function callable(argument, value) {
  if (typeof value !== "function") throw new WrongTypeError(`${argument} is a function, not ${shown(value)}`);
  return value;
}

module.exports = {
  callable,
  closing,
  flag,
  name,
  optionalText,
  optionalWhole,
  priorityNumber,
  shown,
  text,
  urgency,
  whole,
};
