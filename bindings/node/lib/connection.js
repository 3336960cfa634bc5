"use strict";

// A client's connection as the application sees it.

const { translated, WrongTypeError } = require("./errors.js");
const { decodePayload, encode } = require("./json.js");
const { isMessage } = require("./message-mark.js");
const { named } = require("./names.js");
const { SEND, SEND_BINARY, SEND_TEXT } = require("./outbox.js");
const { closing, name, text, urgency, whole } = require("./arguments.js");

/** A client's connection: one object as long as it is open. */
class Connection {
  #core;
  #outbox;

  /** For this package alone. */
  constructor(core, outbox, place, generation, [id, user, host, port]) {
    this.#core = core;
    this.#outbox = outbox;
    this._place = place;
    this._generation = generation;
    /** Messages that wait for an earlier one; `null` if none is being handled. */
    this._queue = null;
    this.id = id;
    this.user = user ?? undefined;
    this.address = host === null ? undefined : { host, port };
    this.attachment = undefined;
  }

  /** Whether it is open, as far as was received. */
  get isOpen() {
    return this.#core.isOpen(this._place, this._generation);
  }

  /** Sends a message. If the connection is gone, the message is dropped without an error. */
  send(payload, options) {
    let type = "message";
    let priority = 0;
    if (options !== undefined && options !== null) {
      // The names are looked at here first: a call for each message should not cost more for it.
      let isKnown = typeof options === "object";
      for (const given in options) isKnown &&= SEND_OPTIONS.has(given);
      if (!isKnown) named("send", options, SEND_OPTIONS);
      type = name("type", options.type ?? "message");
      priority = urgency(options.priority, options.volatile);
    }
    this.#outbox.add(SEND, this._place, this._generation, type, encode(payload), priority);
  }

  /** Sends a string as a text message, bytes as a binary one, and a received message as it came. */
  sendRaw(data) {
    if (typeof data === "string") {
      this.#outbox.add(SEND_TEXT, this._place, this._generation, "", data, 0);
    } else if (isMessage(data)) {
      data._forward(this.#outbox, this._place, this._generation);
    } else {
      const bytes = bytesOf(data);
      this.#outbox.addBytes(SEND_BINARY, this._place, this._generation, bytes, 0, bytes.length);
    }
  }

  /** Ends the connection with a code and a reason, after what was sent before. */
  close(code = 1000, reason = "") {
    closing(code, reason);
    this.#change(() => this.#core.close(this._place, this._generation, code, reason));
  }

  /** Subscribes it to a topic or pattern, whatever its access rules say. */
  subscribe(topic) {
    text("topic", topic);
    this.#change(() => this.#core.subscribe(this._place, this._generation, topic, true));
  }

  /** Ends a subscription. */
  unsubscribe(topic) {
    text("topic", topic);
    this.#change(() => this.#core.subscribe(this._place, this._generation, topic, false));
  }

  /**
   * Gives it access rules of its own, in place of those of the server and of its token. What is not allowed is
   * forbidden, and subscriptions that are no longer allowed end.
   */
  setAccess(rules) {
    const given = {};
    for (const [key, value] of Object.entries(named("setAccess", rules, ACCESS))) {
      if (value === undefined || value === null) continue;
      const topics = typeof value === "string" ? [value] : [...value];
      given[key] = topics.map((topic) => text(key, topic));
    }
    this.#change(() => this.#core.setAccess(this._place, this._generation, JSON.stringify(given)));
  }

  /** Asks its client something and waits for the answer. */
  async request(payload, options) {
    const given = named("request", options, REQUEST_OPTIONS);
    const type = name("type", given.type);
    const timeoutMs = whole("timeoutMs", given.timeoutMs ?? 10_000, 1, 86_400_000);
    this.#outbox.flush();
    try {
      const { _place: place, _generation: generation } = this;
      return decodePayload(await this.#core.request(place, generation, type, encode(payload), timeoutMs));
    } catch (error) {
      throw translated(error);
    }
  }

  #change(action) {
    this.#outbox.flush();
    try {
      action();
    } catch (error) {
      throw translated(error);
    }
  }

  toString() {
    return `Connection ${this.id}${this.user === undefined ? "" : ` of ${this.user}`}`;
  }

  [Symbol.for("nodejs.util.inspect.custom")]() {
    return `<${this.toString()}>`;
  }
}

/** The bytes of a view or an ArrayBuffer. */
function bytesOf(data) {
  if (data instanceof Uint8Array) return data;
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (data instanceof ArrayBuffer || data instanceof SharedArrayBuffer) return new Uint8Array(data);
  throw new WrongTypeError(
    `a string, bytes or a message is needed, not ${data === null ? "null" : typeof data}`,
  );
}

const SEND_OPTIONS = new Set(["type", "priority", "volatile"]);
const REQUEST_OPTIONS = new Set(["type", "timeoutMs"]);
const ACCESS = new Set([
  "subscribeAllow",
  "subscribeDeny",
  "publishAllow",
  "publishDeny",
  "presenceAllow",
  "presenceDeny",
  "queueGroupAllow",
  "queueGroupDeny",
]);

module.exports = { Connection, bytesOf };
