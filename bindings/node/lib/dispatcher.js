"use strict";

// Calls handlers for what a server receives. A handler that waits for something keeps its connection: later messages of
// the connection wait for it, those of others continue. At the limits nothing more is received, and the engine stops
// reading from the sockets when its queue is full.

const { performance } = require("node:perf_hooks");
const { isCalledByHandler } = require("./callers.js");

/** Calls handlers, message by message, as far as the limits allow. */
class Dispatcher {
  #handlers;
  #limits;
  #batch = undefined;
  #next = 0;
  #waitingBytes = 0;

  /** Called when there is room again after `advance` has returned false. */
  onRoom = () => {};
  /** Handlers that wait for something. */
  running = 0;
  /** Those of them that wait for the end of the server. */
  ending = 0;
  /** Messages that wait for an earlier one of their connection. */
  waiting = 0;
  #isPaused = false;
  /** Whether a handler is being called, and whether it has ended the server. */
  #isCalling = false;
  #hasEnded = false;

  constructor(handlers, limits) {
    this.#handlers = handlers;
    this.#limits = limits;
  }

  /** Takes the next batch. `advance` has to have returned true before. */
  take(batch) {
    this.#batch = batch;
    this.#next = 0;
  }

  /** Handles messages until `until`, on the clock of `performance`: whether all of the batch were taken. */
  advance(until) {
    const batch = this.#batch;
    if (batch === undefined) return true;
    const { keepOrder } = this.#limits;
    let now = performance.now();
    while (this.#next < batch.length) {
      if (this.#isFull()) {
        this.#isPaused = true;
        return false;
      }
      const message = batch.at(this.#next);
      this.#next += 1;
      const queue = keepOrder ? message.connection._queue : null;
      if (queue !== null) {
        queue.push(message);
        this.waiting += 1;
        this.#waitingBytes += message.length;
      } else {
        now = this.#begin(message, now);
        if (now > until) return this.#next === batch.length;
      }
    }
    this.#batch = undefined;
    return true;
  }

  /** Whether `advance` stopped because of a limit. */
  get isPaused() {
    return this.#isPaused;
  }

  #isFull() {
    const { handlersMax, waitingMax, waitingBytesMax } = this.#limits;
    return this.running >= handlersMax || this.waiting >= waitingMax || this.#waitingBytes >= waitingBytesMax;
  }

  /** Calls the handler of a message at the time `started`; the time when it has returned. */
  #begin(message, started) {
    const handler = this.#handlers.find(message);
    if (handler === undefined) {
      this.#handlers.passOver(message);
      return started;
    }
    let result;
    this.#hasEnded = false;
    this.#isCalling = true;
    try {
      result = handler.call(message);
    } catch (error) {
      this.#handlers.failed(handler, message, error);
      return this.#look(handler, started);
    } finally {
      this.#isCalling = false;
    }
    if (typeof result === "object" && result !== null && typeof result.then === "function") {
      if (this.#hasEnded) this.ending += 1;
      this.#follow(handler, message, result);
    } else {
      this.#handlers.done(handler, message, result);
    }
    return this.#look(handler, started);
  }

  /** Looks how long a handler kept the event loop. */
  #look(handler, started) {
    const now = performance.now();
    const { blockedWarningMs } = this.#limits;
    if (blockedWarningMs > 0 && now - started > blockedWarningMs)
      this.#handlers.hasBlocked(handler, now - started);
    return now;
  }

  /** Waits for the end of a handler; the messages of its connection wait, too. */
  #follow(handler, message, promise) {
    const { handlerTimeoutMs } = this.#limits;
    const connection = message.connection;
    connection._queue ??= [];
    this.running += 1;
    let timer;
    let isOver = false;
    const end = (take) => {
      if (isOver) return;
      isOver = true;
      clearTimeout(timer);
      this.running -= 1;
      take();
      this.#goOn(connection);
    };
    if (handlerTimeoutMs !== undefined) {
      const late = () => end(() => this.#handlers.timedOut(handler, message, handlerTimeoutMs));
      timer = setTimeout(late, handlerTimeoutMs);
    }
    this._awaitHandler(
      promise,
      (result) => end(() => this.#handlers.done(handler, message, result)),
      (error) => end(() => this.#handlers.failed(handler, message, error)),
    );
  }

  /** Awaits a handler. `callers.js` finds this function in the stacks of what a handler calls. */
  async _awaitHandler(promise, done, failed) {
    let result;
    try {
      result = await promise;
    } catch (error) {
      failed(error);
      return;
    }
    done(result);
  }

  /** Somebody ends the server. If it is a handler, nobody waits for its end any more. */
  noteEnd() {
    // A handler that has not returned yet may turn out to be one that nobody has to wait for.
    if (this.#isCalling) this.#hasEnded = true;
    else if (isCalledByHandler()) this.ending += 1;
  }

  /** Whether every handler that runs waits for the end of the server. */
  get isIdle() {
    return this.running <= this.ending;
  }

  /** Handles the messages of a connection that have waited, up to the first that has to wait again. */
  #goOn(connection) {
    const queue = connection._queue;
    if (this.#limits.keepOrder) {
      connection._queue = null;
      while (queue.length > 0 && connection._queue === null) {
        const message = queue.shift();
        this.waiting -= 1;
        this.#waitingBytes -= message.length;
        this.#begin(message, performance.now());
      }
      if (queue.length > 0) connection._queue = queue;
    }
    if (this.#isPaused && !this.#isFull()) {
      this.#isPaused = false;
      this.onRoom();
    }
  }
}

module.exports = { Dispatcher };
