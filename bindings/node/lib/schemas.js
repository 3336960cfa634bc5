"use strict";

// Schemas of payloads, in the common form of libraries such as Zod, Valibot and ArkType: https://standardschema.dev.

const { CallError, WrongTypeError } = require("./errors.js");
const { callable, shown } = require("./arguments.js");

const INVALID_PAYLOAD = "INVALID_PAYLOAD";
/** Faults that the words of a refusal name. */
const FAULTS_MAX = 3;

/** The function that checks payloads, by a schema. */
function checkOf(schema) {
  const standard = schema?.["~standard"];
  if (typeof standard?.validate !== "function") {
    throw new WrongTypeError(
      `a schema is one of Zod, Valibot, ArkType or another library of Standard Schema, not ${shown(schema)}`,
    );
  }
  return (payload) => {
    const result = standard.validate(payload);
    return isPromise(result) ? result.then(accepted) : accepted(result);
  };
}

const isPromise = (value) => typeof value?.then === "function";

/** The checked value, or the refusal that names what is wrong. */
function accepted({ issues, value }) {
  if (issues === undefined) return value;
  const words = issues.slice(0, FAULTS_MAX).map(({ path = [], message }) => {
    const place = path.map((part) => String(typeof part === "object" ? part.key : part)).join(".");
    return place === "" ? message : `${place}: ${message}`;
  });
  const more = issues.length - words.length;
  if (more > 0) words.push(`${more} more`);
  throw new CallError(words.join("; "), { code: INVALID_PAYLOAD });
}

/** A handler that gets the checked payload as its second argument. */
function checked(schema, handler) {
  const check = checkOf(schema);
  const call = (message) => {
    const value = check(message.payload);
    return isPromise(value) ? value.then((ready) => handler(message, ready)) : handler(message, value);
  };
  Object.defineProperty(call, "name", { value: handler.name });
  return call;
}

/** The handler among the last arguments of a registration, behind its schema if there is one. */
function handlerOf(given) {
  const handler = callable("the handler", given.at(-1));
  return given.length > 1 ? checked(given[0], handler) : handler;
}

module.exports = { handlerOf };
