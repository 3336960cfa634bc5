"use strict";

// Shared parts of the utilities: bytes and times as callers give them, and the errors of the native module.

const { shown, text } = require("../arguments.js");
const { InvalidArgumentError, translated, WrongTypeError } = require("../errors.js");

/** A Buffer on bytes of any kind, not copied. */
function bytes(argument, value) {
  if (Buffer.isBuffer(value)) return value;
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return Buffer.from(value);
  throw new WrongTypeError(`${argument} is bytes (a Buffer, a view or an ArrayBuffer), not ${shown(value)}`);
}

/** Bytes, or the UTF-8 of a string. */
function textOrBytes(argument, value) {
  return typeof value === "string" ? Buffer.from(value) : bytes(argument, value);
}

/** A finite number from 0 on. */
function amount(argument, value) {
  if (typeof value !== "number") {
    throw new WrongTypeError(`${argument} is a number from 0 on, not ${shown(value)}`);
  }
  if (!(value >= 0 && value < Number.POSITIVE_INFINITY)) {
    throw new InvalidArgumentError(`${argument} is ${value}; it is a number from 0 on`);
  }
  return value;
}

function optionalAmount(argument, value) {
  return value === undefined || value === null ? undefined : amount(argument, value);
}

/** Seconds since 1970: those of a number or a `Date`, or the clock's. */
function unixSeconds(now) {
  if (now === undefined || now === null) return Date.now() / 1000;
  return amount("now", now instanceof Date ? now.getTime() / 1000 : now);
}

/** The epoch and the offset of a position in a history. */
function place(position) {
  if (typeof position !== "object" || position === null) {
    throw new WrongTypeError(
      `a position is an object such as { epoch: "6f0d2c1a", offset: 4711 }, not ${shown(position)}`,
    );
  }
  return [epochText(position.epoch), offset(position.offset)];
}

function epochText(epoch) {
  return text("epoch", epoch);
}

function offset(value, argument = "offset") {
  if (typeof value !== "number")
    throw new WrongTypeError(`${argument} is a whole number, not ${shown(value)}`);
  if (!Number.isSafeInteger(value) || value < 0) {
    throw new InvalidArgumentError(`${argument} is ${value}; it is a whole number from 0 to 2^53 - 1`);
  }
  return value;
}

/** Calls the native module; its errors become those of this package. */
function run(action) {
  try {
    return action();
  } catch (error) {
    throw translated(error);
  }
}

module.exports = {
  amount,
  bytes,
  epochText,
  offset,
  optionalAmount,
  place,
  run,
  textOrBytes,
  unixSeconds,
};
