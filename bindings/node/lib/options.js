"use strict";

// The options of a server: those of the engine go to it as JSON, those of the handlers stay here.

const { callable, flag, optionalWhole, shown, whole } = require("./arguments.js");
const { ConfigurationError, WrongTypeError } = require("./errors.js");
const { level, toConsole } = require("./log.js");
const { unknown } = require("./names.js");
const native = require("./native.js");

const INT_MAX = 2_147_483_647;

/** The options of handlers, and how to read them. */
const OWN = {
  handlersMax: (value) => whole("handlersMax", value ?? 256, 1, INT_MAX),
  waitingMax: (value) => whole("waitingMax", value ?? 1024, 1, INT_MAX),
  waitingBytesMax: (value) => whole("waitingBytesMax", value ?? 16 * 1024 * 1024, 1, INT_MAX),
  handlerTimeoutMs: (value) => optionalWhole("handlerTimeoutMs", value, 1, INT_MAX),
  keepOrder: (value) => flag("keepOrder", value ?? true),
  blockedWarningMs: (value) => whole("blockedWarningMs", value ?? 250, 0, INT_MAX),
  stopTimeoutMs: (value) => whole("stopTimeoutMs", value ?? 5_000, 0, INT_MAX),
  log: (value) => callable("log", value ?? toConsole),
  logLevel: (value) => level(value ?? "warn"),
};

/** The names of all options. */
const optionNames = () => [...native.NativeServer.optionNames(), ...Object.keys(OWN)];

/** The options of the engine as JSON text, and those of the handlers. */
function read(options) {
  if (typeof options !== "object" || options === null || Array.isArray(options)) {
    throw new WrongTypeError(`the options of a server are an object, not ${shown(options)}`);
  }
  const known = new Set(optionNames());
  const engine = {};
  for (const [name, value] of Object.entries(options)) {
    if (!known.has(name)) throw new ConfigurationError(unknown(name, known));
    if (Object.hasOwn(OWN, name)) continue;
    if (typeof value === "function" || typeof value === "bigint" || typeof value === "symbol") {
      throw new ConfigurationError(`${name}: ${shown(value)} is no value of an option`);
    }
    if (typeof value === "number" && !Number.isFinite(value)) {
      throw new ConfigurationError(`${name}: a finite number is needed, not ${value}`);
    }
    engine[name] = value;
  }
  const limits = {};
  for (const [name, take] of Object.entries(OWN)) limits[name] = take(options[name]);
  return { text: JSON.stringify(engine), limits };
}

module.exports = { optionNames, read };
