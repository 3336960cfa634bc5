"use strict";

// The calls of a server that may wait for a broker, as promises: the event loop runs meanwhile.

const { performance } = require("node:perf_hooks");
const { closing, text } = require("./arguments.js");
const calls = require("./calls.js");
const { BusyError, translated, WrongTypeError } = require("./errors.js");
const { encode } = require("./json.js");
const { Payloads } = require("./payloads.js");
const { pause } = require("./waiting.js");

const BUSY_PAUSE_MIN_MS = 1;
const BUSY_PAUSE_MAX_MS = 20;

/** The promises of one server: `server.promises`. */
class Promises {
  #core;
  #outbox;
  #payloads = new Payloads();

  constructor(core, outbox) {
    this.#core = core;
    this.#outbox = outbox;
  }

  /** Publishes to a topic: every subscriber gets it. */
  async publish(topic, payload, options) {
    text("topic", topic);
    const [type, chosen] = calls.publication(options);
    this.#outbox.flush();
    const start = () => this.#core.publishLater(topic, type, encode(payload), chosen);
    return calls.shownResult(await settled(start));
  }

  /** Publishes several payloads to one topic, in their order; how many were new. */
  async publishMany(topic, payloads, options) {
    text("topic", topic);
    const [type, priority, waitMs] = calls.publications(options);
    if (typeof payloads?.[Symbol.iterator] !== "function" || typeof payloads === "string") {
      throw new WrongTypeError("the payloads are an array, or another iterable");
    }
    const packed = this.#payloads.pack(payloads);
    this.#outbox.flush();
    let bytes = packed.buffer.subarray(0, packed.end);
    const publishFrom = (at) =>
      calls.run(() => this.#core.publishManyLater(topic, type, priority, bytes, at));
    let [at, published, pending] = publishFrom(0);
    // Others publish meanwhile, so what is left needs a place of its own.
    if (at < bytes.length) bytes = Buffer.from(bytes);
    const carryOn = async () => {
      if (!pending) {
        const [next, more, later] = publishFrom(at);
        at = next;
        published += more;
        pending = later;
      }
      if (pending) {
        const answer = pending;
        pending = undefined;
        const [, , duplicate] = await settled(() => answer);
        at += 4 + bytes.readUInt32LE(at);
        published += duplicate ? 0 : 1;
      } else if (at < bytes.length) {
        throw new BusyError(`${published} payloads are published, there is no room for the rest`);
      }
    };
    while (at < bytes.length) await untilFree(carryOn, waitMs);
    return published;
  }

  /** The history of a topic: its position, and some of its publications. */
  async history(topic, query) {
    const wanted = calls.historyQuery(topic, query);
    return calls.shownHistory(await settled(() => this.#core.historyLater(...wanted)));
  }

  /** Forgets what a topic keeps; false if there was nothing. */
  async forgetHistory(topic) {
    text("topic", topic);
    return JSON.parse(await settled(() => this.#core.forgetHistoryLater(topic)));
  }

  /** The users on a topic: how many, and some of them. */
  async presence(topic, query) {
    const wanted = calls.presenceQuery(topic, query);
    return JSON.parse(await settled(() => this.#core.presenceLater(...wanted)));
  }

  /** Some connections, in the order of their ids: all of a user, or all of a topic, or all. */
  async listConnections(query) {
    const wanted = calls.listQuery(query);
    return JSON.parse(await settled(() => this.#core.listConnectionsLater(...wanted)));
  }

  /** Some topics and patterns that have subscribers, in the order of their names. */
  async listTopics(query) {
    const wanted = calls.topicQuery(query);
    return JSON.parse(await settled(() => this.#core.listTopicsLater(...wanted)));
  }

  /** Subscribes every connection that a user has now, on every server. */
  async subscribeUser(user, topic) {
    await this.#changeSubscription(user, topic, true);
  }

  /** Ends a subscription of every connection of a user, on every server. */
  async unsubscribeUser(user, topic) {
    await this.#changeSubscription(user, topic, false);
  }

  async #changeSubscription(user, topic, isWanted) {
    text("user", user);
    text("topic", topic);
    this.#outbox.flush();
    await settled(() => this.#core.subscribeUserLater(user, topic, isWanted));
  }

  /** Ends every connection of a user, on every server. */
  async disconnectUser(user, code = 1000, reason = "") {
    text("user", user);
    closing(code, reason);
    this.#outbox.flush();
    await settled(() => this.#core.disconnectUserLater(user, code, reason));
  }

  /** Ends the connection with this id, on whichever server. */
  async disconnect(id, code = 1000, reason = "") {
    text("id", id);
    closing(code, reason);
    this.#outbox.flush();
    await settled(() => this.#core.disconnectLater(id, code, reason));
  }
}

/** The result of a call of the native module, at once or later; its errors become those of this package. */
async function settled(action) {
  try {
    return await action();
  } catch (error) {
    throw translated(error);
  }
}

/** Calls `action` again as long as it throws a `BusyError` or its promise is rejected with one, for `waitMs`. */
async function untilFree(action, waitMs) {
  const until = performance.now() + waitMs;
  for (let pauseMs = BUSY_PAUSE_MIN_MS; ; pauseMs = Math.min(2 * pauseMs, BUSY_PAUSE_MAX_MS)) {
    try {
      return await action();
    } catch (error) {
      if (!(error instanceof BusyError) || performance.now() >= until) throw error;
    }
    await pause(pauseMs);
  }
}

module.exports = { Promises, untilFree };
