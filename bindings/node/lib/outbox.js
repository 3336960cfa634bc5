"use strict";

// Messages to connections, gathered and handed over with one crossing. src/server/outbox.rs reads it.

const { BusyError, StoppedError, translated } = require("./errors.js");

const SEND_TEXT = 1;
const SEND_BINARY = 2;
const SEND = 3;
const REPLY = 4;
const FAIL = 5;
const ACCEPT = 6;

/** Added to the kind of a record whose bytes are in a batch. It has their begin there and their number, not two lengths. */
const IN_BATCH = 8;
const NO_BATCH = Buffer.alloc(0);

/** The bytes of a record before its texts. */
const HEAD_BYTES = 28;
const SIZE_MIN = 16 * 1024;
/** A buffer that grew past this is not kept. */
const SIZE_KEPT = 1024 * 1024;
/** The limit of messages that wait because the server has not caught up. */
const WAITING_BYTES_MAX = 64 * 1024 * 1024;
/** The largest batch that is gathered before it is handed over. */
const GATHERED_BYTES = 256 * 1024;
const RETRY_MS = 1;

/** The records of one server. */
class Outbox {
  #core;
  #log;
  #buffer = Buffer.allocUnsafeSlow(SIZE_MIN);
  #numbers = new Uint32Array(this.#buffer.buffer);
  #start = 0;
  #end = 0;
  /** The memory of batches that records refer to. */
  #batch = NO_BATCH;
  #isScheduled = false;
  #retry = undefined;
  #flushSoon = () => {
    this.#isScheduled = false;
    this.flush();
  };

  /** Whether the caller flushes by itself, at the end of a batch. */
  isHeld = false;
  /** Called when what has waited was handed over. */
  onRoom = () => {};

  constructor(core, log) {
    this.#core = core;
    this.#log = log;
  }

  /** Whether something waits because the server has not caught up. */
  get isStuck() {
    return this.#retry !== undefined;
  }

  /** Adds a record with two texts. */
  add(what, place, generation, first, second, priority) {
    const at = this.#reserve(HEAD_BYTES + 3 * (first.length + second.length));
    const buffer = this.#buffer;
    let end = at + HEAD_BYTES;
    const firstBytes = first.length === 0 ? 0 : buffer.write(first, end);
    end += firstBytes;
    const secondBytes = second.length === 0 ? 0 : buffer.write(second, end);
    this.#finish(at, firstBytes + secondBytes, what, place, generation, firstBytes, secondBytes, priority);
  }

  /** Adds a record with bytes of an array. */
  addBytes(what, place, generation, bytes, from, to) {
    const length = to - from;
    const at = this.#reserve(HEAD_BYTES + length);
    const { buffer, byteOffset } = bytes;
    this.#buffer.set(new Uint8Array(buffer, byteOffset + from, length), at + HEAD_BYTES);
    this.#finish(at, length, what, place, generation, 0, length, 0);
  }

  /** Adds a record with bytes of a batch, which are not copied: they are read when the record is handed over. */
  addOfBatch(what, place, generation, batch, from, to) {
    if (this.#batch !== batch) {
      if (this.#batch !== NO_BATCH) this.flush();
      if (this.#batch !== NO_BATCH) {
        // The server has not caught up, and records refer to one piece of memory at a time.
        this.addBytes(what, place, generation, batch, from, to);
        return;
      }
      this.#batch = batch;
    }
    const at = this.#reserve(HEAD_BYTES);
    this.#finish(at, 0, what + IN_BATCH, place, generation, from, to - from, 0);
  }

  /** Hands over what refers to a batch whose bytes may change from now on, or copies the batch. */
  release(batch) {
    if (this.#batch !== batch) return;
    this.flush();
    if (this.#batch === batch) this.#batch = Buffer.from(batch);
  }

  #finish(at, textBytes, what, place, generation, first, second, priority) {
    const length = (HEAD_BYTES + textBytes + 3) & ~3;
    const numbers = this.#numbers;
    const head = at >> 2;
    numbers[head] = length;
    numbers[head + 1] = what;
    numbers[head + 2] = place;
    numbers[head + 3] = generation;
    numbers[head + 4] = first;
    numbers[head + 5] = second;
    numbers[head + 6] = priority;
    this.#end = at + length;
    if (this.#end - this.#start > GATHERED_BYTES) this.flush();
    else if (!this.isHeld && !this.#isScheduled) {
      this.#isScheduled = true;
      queueMicrotask(this.#flushSoon);
    }
  }

  /** Reserves room for `bytes` bytes at the end. */
  #reserve(bytes) {
    const at = this.#end;
    if (at + bytes <= this.#buffer.length) return at;
    if (this.isStuck && at - this.#start + bytes > WAITING_BYTES_MAX) {
      throw new BusyError("the server has not caught up with what was sent before", { retryAfterMs: 100 });
    }
    const waiting = at - this.#start;
    const size = Math.max(SIZE_MIN, 2 ** Math.ceil(Math.log2(waiting + bytes + 8)));
    const buffer = size > this.#buffer.length ? Buffer.allocUnsafeSlow(size) : this.#buffer;
    this.#buffer.copy(buffer, 0, this.#start, at);
    this.#buffer = buffer;
    this.#numbers = new Uint32Array(buffer.buffer);
    this.#start = 0;
    this.#end = waiting;
    return waiting;
  }

  /** Hands over what was gathered. */
  flush() {
    if (this.#start === this.#end || this.isStuck) return;
    try {
      while (this.#start < this.#end) {
        const at = this.#core.flush(this.#buffer, this.#start, this.#end, this.#batch);
        if (at < 0) {
          // One record was refused; its sender is not here any more.
          this.#start = -at;
          this.#log("error", "a message could not be sent", this.#refusal());
        } else if (at < this.#end) {
          this.#start = at;
          this.#retry = setTimeout(() => {
            this.#retry = undefined;
            this.flush();
            if (!this.isStuck) this.onRoom();
          }, RETRY_MS);
          return;
        } else {
          this.#start = at;
        }
      }
    } catch (error) {
      const own = translated(error);
      // Whoever sends to a server that has stopped sends to connections that are gone.
      if (!(own instanceof StoppedError)) this.#log("error", "messages could not be sent", own);
    }
    this.#clear();
  }

  #refusal() {
    try {
      return this.#core.takeRefusal();
    } catch (error) {
      return translated(error);
    }
  }

  #clear() {
    this.#start = 0;
    this.#end = 0;
    this.#batch = NO_BATCH;
    if (this.#buffer.length > SIZE_KEPT) {
      this.#buffer = Buffer.allocUnsafeSlow(SIZE_MIN);
      this.#numbers = new Uint32Array(this.#buffer.buffer);
    }
  }
}

module.exports = { ACCEPT, FAIL, Outbox, REPLY, SEND, SEND_BINARY, SEND_TEXT };
