"use strict";

// What a server logs: its handlers, and the engine. The engine's log is one of the process: the server that was started
// last receives it.

const { shown } = require("./arguments.js");
const { ConfigurationError } = require("./errors.js");
const native = require("./native.js");

const LEVELS = ["off", "error", "warn", "info", "debug", "trace"];

/** The log of one server: a function of the application, and the lowest level that it is called for. */
class Log {
  #write;
  #level;
  #number;
  #listener;

  constructor(write, level) {
    this.#write = write;
    this.#level = level;
    this.#number = LEVELS.indexOf(level);
  }

  /** Writes a line. */
  line(level, message, error) {
    if (LEVELS.indexOf(level) > this.#number) return;
    try {
      if (error === undefined) this.#write(level, message);
      else this.#write(level, message, error);
    } catch {
      // A logger that is broken is no reason to end.
    }
  }

  /** Receives what the engine logs from now on. */
  listen() {
    if (this.#level === "off") return;
    this.#listener = native.logListen(this.#level, () => this.#receive());
  }

  /** Receives what is there, and then nothing more. */
  leave() {
    if (this.#listener === undefined) return;
    this.#receive();
    native.logLeave(this.#listener);
    this.#listener = undefined;
  }

  #receive() {
    const lines = native.logTake();
    for (let at = 0; at < lines.length; at += 2) this.line(lines[at], lines[at + 1]);
  }
}

/** A level, as an option of a server has it. */
function level(value) {
  if (LEVELS.includes(value)) return value;
  throw new ConfigurationError(`logLevel: ${shown(value)}: expected one of ${LEVELS.join(", ")}`);
}

/** Writes to the console. */
function toConsole(level, message, error) {
  const write = level === "trace" ? console.debug : console[level];
  if (error === undefined) write(`tidewire: ${message}`);
  else write(`tidewire: ${message}:`, error);
}

module.exports = { level, Log, toConsole };
