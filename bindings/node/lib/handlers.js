"use strict";

// Handlers: what is called for which message, and what becomes of it when one fails.

const { randomUUID } = require("node:crypto");
const { callable, shown } = require("./arguments.js");
const { CallError, InvalidArgumentError, TidewireError, WrongTypeError } = require("./errors.js");
const { NO_HANDLER, PUBLICATION, REQUEST } = require("./batch.js");
const { LineLimit } = require("./line-limit.js");

/** Names that stand for what happens to a connection instead of a type of messages. */
const EVENTS = ["connect", "disconnect", "snapshotRequest"];

/** Stands for every type that has no handler of its own. */
const REST = "*";

const HANDLER_ERROR = "HANDLER_ERROR";

const TYPES_NAMED_MAX = 100;
const TYPE_CHARACTERS_MAX = 100;
const CODE_BYTES_MAX = 128;

/** A function and what is known of it. */
class Handler {
  #lines = new LineLimit((count) => `${this.name} failed for ${count} more messages`);
  #run;
  #isSurrounded = false;
  /** Publications that middleware has passed on to it. */
  #reached = new WeakSet();

  /** `answers` is what becomes of its result: `reply`, `accept` of a publication, or nothing. */
  constructor(type, run, answers) {
    this.#run = run;
    this.call = run;
    this.answers = answers;
    this.name = `${run.name || "handler"} of ${shown(type)}`;
  }

  /** Puts middleware around it, the first outermost. */
  surround(middleware) {
    const run = this.#run;
    this.#isSurrounded = true;
    const from = (index, message) => {
      if (index === middleware.length) {
        if (this.answers === "accept") this.#reached.add(message);
        return run(message);
      }
      return middleware[index](message, () => from(index + 1, message));
    };
    this.call = (message) => from(0, message);
  }

  /** Whether it has seen a publication: middleware that does not call `next` keeps it away. */
  hasSeen(message) {
    return !this.#isSurrounded || this.#reached.has(message);
  }

  /** Logs an error with its stack; past the limit of a second only their number. */
  log(log, message, error) {
    this.#lines.line(log, `${this.name} failed, for connection ${message.connection?.id}`, error);
  }

  /** Logs the number of errors that were not logged one by one. */
  logUnlogged(log) {
    this.#lines.conclude(log);
  }
}

/** The handlers of a server, and what they have done. */
class Handlers {
  #log;
  #messages = new Map();
  #requests = new Map();
  #events = new Map();
  #messagesByPlace = [];
  #requestsByPlace = [];
  #publications = new Map();
  #publicationsByPlace = [];
  #typesNamed = new Set();
  #rest;
  #restOfRequests;
  #middleware = [];

  handled = 0;
  errors = 0;
  timeouts = 0;
  refused = 0;
  unrouted = 0;
  blocked = 0;

  constructor(log) {
    this.#log = log;
  }

  /** Puts a function around the handlers of messages, requests and publications, those to come, too. */
  surround(middleware) {
    this.#middleware.push(callable("the middleware", middleware));
    for (const handler of this.#routed()) handler.surround(this.#middleware);
  }

  /** Registers the handler of a type, an event, or the rest. */
  add(type, call, replies) {
    if (typeof type !== "string" || type === "") {
      throw new WrongTypeError(`the type of messages is a string, not ${shown(type)}`);
    }
    callable("the handler", call);
    const isEvent = !replies && EVENTS.includes(type);
    const handler = new Handler(type, call, replies ? "reply" : undefined);
    if (!isEvent && this.#middleware.length > 0) handler.surround(this.#middleware);
    if (type === REST) {
      const taken = replies ? this.#restOfRequests : this.#rest;
      if (taken) throw new InvalidArgumentError(`"*" has a handler already: ${taken.name}`);
      if (replies) this.#restOfRequests = handler;
      else this.#rest = handler;
      return;
    }
    const table = replies ? this.#requests : isEvent ? this.#events : this.#messages;
    if (table.has(type))
      throw new InvalidArgumentError(`${shown(type)} has a handler already: ${table.get(type).name}`);
    table.set(type, handler);
    this.#messagesByPlace = [...this.#messages.values()];
    this.#requestsByPlace = [...this.#requests.values()];
  }

  /** Registers the handler that decides about the publications of clients to a topic or pattern. */
  addPublication(topic, call, decideAbout) {
    if (typeof topic !== "string" || topic === "") {
      throw new WrongTypeError(`a topic or pattern is a string, not ${shown(topic)}`);
    }
    callable("the handler", call);
    const held = this.#publications.get(topic);
    if (held) throw new InvalidArgumentError(`${shown(topic)} has a handler already: ${held.name}`);
    const handler = new Handler(topic, call, "accept");
    if (this.#middleware.length > 0) handler.surround(this.#middleware);
    // From now on the engine names its place.
    decideAbout([...this.#publications.keys(), topic]);
    this.#publications.set(topic, handler);
    this.#publicationsByPlace.push(handler);
  }

  /** What they have done, by name. */
  counts() {
    const { handled, errors, timeouts, refused, unrouted, blocked } = this;
    return { handled, errors, timeouts, refused, unrouted, blocked };
  }

  get isEmpty() {
    return this.all().length === 0;
  }

  get messageTypes() {
    return [...this.#messages.keys()];
  }

  get requestTypes() {
    return [...this.#requests.keys()];
  }

  all() {
    return [...this.#routed(), ...this.#events.values()];
  }

  /** The handlers of messages, requests and publications. */
  #routed() {
    const rest = [this.#rest, this.#restOfRequests].filter((handler) => handler !== undefined);
    return [...this.#messages.values(), ...this.#requests.values(), ...this.#publications.values(), ...rest];
  }

  /** The handler of a message, or `undefined`. */
  find(message) {
    const place = message._handler;
    const kind = message._kind;
    if (kind < REQUEST) return place === NO_HANDLER ? this.#rest : this.#messagesByPlace[place];
    if (kind === REQUEST) return place === NO_HANDLER ? this.#restOfRequests : this.#requestsByPlace[place];
    if (kind === PUBLICATION) return this.#publicationsByPlace[place];
    return this.#events.get(message.kind);
  }

  /** Answers a message that has no handler. */
  passOver(message) {
    const kind = message.kind;
    if (EVENTS.includes(kind)) return;
    this.unrouted += 1;
    const type = typeOf(message).slice(0, TYPE_CHARACTERS_MAX);
    if (!this.#typesNamed.has(type) && this.#typesNamed.size < TYPES_NAMED_MAX) {
      this.#typesNamed.add(type);
      this.#log("warn", `no handler takes ${kind}s of the type ${shown(type)}`);
    }
    if (kind === "request") this.#tell(message, "NOT_FOUND", `nobody answers requests of the type ${type}`);
  }

  /** Takes what a handler returned. */
  done(handler, message, result) {
    if (handler.answers === "accept" && !handler.hasSeen(message)) {
      this.refused += 1;
      this.#tell(message, "TOPIC_FORBIDDEN", "the application refuses this publication");
      return;
    }
    if (handler.answers !== undefined) {
      try {
        if (handler.answers === "reply") message.reply(result);
        else message._accept();
      } catch (error) {
        this.failed(handler, message, error);
        return;
      }
    }
    this.handled += 1;
  }

  /** Handles an error of a handler: the client receives an error, and the log has the stack. */
  failed(handler, message, error) {
    if (isRefusal(error)) {
      this.refused += 1;
      this.#tell(message, error.code, error.message);
      return;
    }
    this.errors += 1;
    handler.log(this.#log, message, error);
    this.#tell(message, HANDLER_ERROR, "the handler failed");
  }

  /** Takes note of a handler that takes too long. */
  timedOut(handler, message, timeoutMs) {
    this.errors += 1;
    this.timeouts += 1;
    this.#log(
      "error",
      `${handler.name} did not end within ${timeoutMs} ms, for connection ${message.connection.id}`,
    );
    this.#tell(message, HANDLER_ERROR, "the handler took too long");
  }

  /** Takes note of a handler that kept the event loop from running. */
  hasBlocked(handler, ms) {
    this.blocked += 1;
    this.#log(
      "warn",
      `${handler.name} has blocked the event loop for ${Math.round(ms)} ms; nothing else ran meanwhile. ` +
        "Let it wait with await, or move the work to a worker thread",
    );
  }

  logUnlogged() {
    for (const handler of this.all()) handler.logUnlogged(this.#log);
  }

  /** Tells the client that its message was not handled. */
  #tell(message, code, text) {
    try {
      if (message.kind === "request" || message.kind === "publication") message.fail(code, text);
      // A message without a type is not of the protocol: its sender would not understand the answer.
      else if (message.kind === "message" && typeOf(message) !== "") {
        message.connection.sendRaw(errorText(message, code, text));
      }
    } catch (error) {
      // A client that cannot receive the error is no reason to end, whatever it has sent.
      this.#log("debug", `the client was not told of ${code}`, error);
    }
  }
}

/** The type of a message; empty if it has none, as when a client does not speak the protocol. */
function typeOf(message) {
  try {
    return message.type ?? "";
  } catch (error) {
    if (error instanceof TidewireError) return "";
    throw error;
  }
}

/** Whether an error has words for the other side: `CallError` with a code that can be sent. */
function isRefusal(error) {
  if (!(error instanceof CallError)) return false;
  const { code, message } = error;
  if (typeof code !== "string" || typeof message !== "string") return false;
  const length = Buffer.byteLength(code);
  return length >= 1 && length <= CODE_BYTES_MAX;
}

/** The protocol's message of an error (PROTOCOL.md, section 7.11). */
function errorText(message, code, text) {
  const whole = {
    c: "WSE",
    t: "error",
    id: randomUUID(),
    ts: new Date().toISOString(),
    p: { code, message: text, recoverable: true, retry_after: null },
    v: 1,
  };
  try {
    const { cid } = message.json();
    if (typeof cid === "string") whole.cid = cid;
  } catch {
    // Without its id the client cannot know which message it was, but it receives the error.
  }
  return JSON.stringify(whole);
}

module.exports = { EVENTS, Handlers };
