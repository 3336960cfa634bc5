"use strict";

// A rate limit, a queue of priorities, and messages in order. Items stay in JavaScript; the native module orders numbers.

const { shown, text, whole } = require("../arguments.js");
const { BusyError, InvalidArgumentError, WrongTypeError } = require("../errors.js");
const { named } = require("../names.js");
const native = require("../native.js");
const { epochText, offset, optionalAmount, place, run } = require("./shared.js");

const MAX = Number.MAX_SAFE_INTEGER;

const QUEUE = new Set(["itemsMax", "bytesMax"]);
const PUSH = new Set(["size"]);
const SEQUENCER = new Set(["topicsMax", "heldMessagesMax", "windowMs"]);
const AT = new Set(["nowMs"]);

/** The time among the options of a call, or `undefined` for the clock's own. */
function timeOf(call, options) {
  const { nowMs } = named(call, options, AT);
  return optionalAmount("nowMs", nowMs);
}

/** A rate limit: `capacity` at once, and `refillPerS` a second in the long run. It begins full. */
class TokenBucket {
  #bucket;
  #capacity;
  #refillPerS;

  constructor(capacity, refillPerS) {
    whole("capacity", capacity, 1, MAX);
    if (typeof refillPerS !== "number")
      throw new WrongTypeError(`refillPerS is a number, not ${shown(refillPerS)}`);
    this.#bucket = run(() => new native.NativeTokenBucket(capacity, refillPerS));
    this.#capacity = capacity;
    this.#refillPerS = refillPerS;
  }

  /** Takes `n` tokens, or none. `nowMs` is on any clock that does not go back; by default the bucket's own. */
  take(n = 1, options) {
    whole("n", n, 1, MAX);
    const now = timeOf("take", options);
    const [allowed, low, remaining, retryAfterMs] = run(() => this.#bucket.take(n, now));
    return { allowed, low, remaining, retryAfterMs: retryAfterMs ?? undefined };
  }

  /** Tokens that a full bucket holds. */
  get capacity() {
    return this.#capacity;
  }

  /** Tokens that come in a second. */
  get refillPerS() {
    return this.#refillPerS;
  }
}

/** Items under small numbers that are used again. */
class Slots {
  #items = [];
  #free = [];

  put(item) {
    const slot = this.#free.pop() ?? this.#items.length;
    this.#items[slot] = item;
    return slot;
  }

  get(slot) {
    return this.#items[slot];
  }

  take(slot) {
    const item = this.#items[slot];
    this.#items[slot] = undefined;
    this.#free.push(slot);
    return item;
  }
}

/** A bounded queue of five priorities: 10 (critical), 8, 5 (normal), 3, 1; in order of age within each. */
class PriorityQueue {
  #queue;
  #slots = new Slots();

  constructor(options) {
    const { itemsMax = 10_000, bytesMax = 16 * 1024 * 1024 } = named("PriorityQueue", options, QUEUE);
    whole("itemsMax", itemsMax, 0);
    whole("bytesMax", bytesMax, 0, MAX);
    this.#queue = new native.NativePriorityQueue(itemsMax, bytesMax);
  }

  /** Puts an item behind those of its priority. */
  push(item, priority = 5, options) {
    const [level, size] = [levelOf(priority), sizeOf("push", item, options)];
    const slot = this.#slots.put(item);
    if (this.#queue.push(slot, level, size)) return;
    this.#slots.take(slot);
    throw new BusyError(FULL, { code: "QUEUE_FULL" });
  }

  /** `push` for which less urgent items give way; returns them. */
  pushDisplacing(item, priority = 5, options) {
    const [level, size] = [levelOf(priority), sizeOf("pushDisplacing", item, options)];
    const slot = this.#slots.put(item);
    const displaced = this.#queue.pushDisplacing(slot, level, size);
    if (displaced !== null) return displaced.map((joined) => this.#taken(joined));
    this.#slots.take(slot);
    throw new BusyError(FULL, { code: "QUEUE_FULL" });
  }

  /** Takes the next item, with its priority; `undefined` if there is none. */
  pop() {
    const joined = this.#queue.pop();
    return joined < 0 ? undefined : this.#taken(joined);
  }

  /** Takes up to `n` items, with their priorities. */
  popMany(n) {
    whole("n", n, 0, MAX);
    const items = [];
    while (items.length < n) {
      const joined = this.#queue.pop();
      if (joined < 0) break;
      items.push(this.#taken(joined));
    }
    return items;
  }

  /** The next item, which stays; `undefined` if there is none. */
  peek() {
    const joined = this.#queue.peek();
    if (joined < 0) return undefined;
    return { priority: joined % 16, item: this.#slots.get(Math.floor(joined / 16)) };
  }

  #taken(joined) {
    return { priority: joined % 16, item: this.#slots.take(Math.floor(joined / 16)) };
  }

  /** The total weight of the items. */
  get bytes() {
    return this.#queue.bytes;
  }

  /** How many items there are. */
  get length() {
    return this.#queue.length;
  }
}

function levelOf(priority) {
  if (typeof priority !== "number") {
    throw new WrongTypeError(`priority is 1, 3, 5, 8 or 10, not ${shown(priority)}`);
  }
  if (![1, 3, 5, 8, 10].includes(priority)) {
    throw new InvalidArgumentError(`priority is 1, 3, 5, 8 or 10, not ${priority}`);
  }
  return priority;
}

/** The bytes that an item counts for: as the caller says, or those of a string and of bytes. */
function sizeOf(call, item, options) {
  const { size } = named(call, options, PUSH);
  if (size !== undefined && size !== null) return whole("size", size, 0, MAX);
  if (typeof item === "string") return Buffer.byteLength(item);
  if (ArrayBuffer.isView(item) || item instanceof ArrayBuffer) return item.byteLength;
  return 0;
}

const FULL = "the queue is full; take something out, or make room with pushDisplacing()";

/** Messages of a topic that have not come: those from `first` to `last`, both included. */
class Gap {
  constructor(topic, epoch, first, last) {
    this.topic = topic;
    this.epoch = epoch;
    this.first = first;
    this.last = last;
  }

  /** How many they are. */
  get length() {
    return this.last - this.first + 1;
  }
}

const OUTCOMES = ["delivered", "held", "duplicate", "newEpoch"];
/** Others are let through as well. */
const OTHERS = 4;

/** Puts the messages of many topics in order by their positions, drops duplicates, and reports gaps. */
class Sequencer {
  #sequencer;
  #slots = new Slots();

  constructor(options) {
    const given = named("Sequencer", options, SEQUENCER);
    const { topicsMax = 10_000, heldMessagesMax = 1_024, windowMs = 1_000 } = given;
    whole("topicsMax", topicsMax, 1, MAX);
    whole("heldMessagesMax", heldMessagesMax, 0, MAX);
    whole("windowMs", windowMs, 0, MAX);
    this.#sequencer = new native.NativeSequencer(topicsMax, heldMessagesMax, windowMs);
  }

  /** Accepts a message: what became of it, and what can be let through now, in order. */
  add(topic, position, message, options) {
    text("topic", topic);
    const [epoch, at] = place(position);
    const now = timeOf("add", options);
    const slot = this.#slots.put(message);
    let code;
    try {
      code = run(() => this.#sequencer.add(topic, epoch, at, slot, now));
    } catch (error) {
      this.#slots.take(slot);
      throw error;
    }
    const outcome = OUTCOMES[code % OTHERS];
    if (code >= OTHERS) {
      const released = this.#listed(this.#sequencer.takeReleased());
      if (outcome === "duplicate") this.#slots.take(slot);
      return { outcome, released };
    }
    if (outcome === "held") return { outcome, released: [] };
    this.#slots.take(slot);
    return { outcome, released: outcome === "duplicate" ? [] : [message] };
  }

  /** Takes note that everything up to `position` has been seen. What can be let through now. */
  advance(topic, position, options) {
    text("topic", topic);
    const [epoch, at] = place(position);
    const now = timeOf("advance", options);
    return this.#listed(run(() => this.#sequencer.advance(topic, epoch, at, now)));
  }

  /** Takes note that the messages from `first` to `last` will not come. What can be let through now. */
  skip(topic, epoch, first, last, options) {
    const given = [text("topic", topic), epochText(epoch), offset(first, "first"), offset(last, "last")];
    const now = timeOf("skip", options);
    return this.#listed(run(() => this.#sequencer.skip(...given, now)));
  }

  /** Gives up waiting where the time is over: the gaps, and the messages behind them. */
  expire(options) {
    const now = timeOf("expire", options);
    return this.#listed(this.#sequencer.expire(now));
  }

  /** Forgets a topic, and lets through what it held. */
  forget(topic) {
    return this.#listed(this.#sequencer.forget(text("topic", topic)));
  }

  /** The position of the last message of a topic that was let through; `undefined` if the topic is unknown. */
  position(topic) {
    const position = this.#sequencer.position(text("topic", topic));
    return position === null ? undefined : { epoch: position[0], offset: position[1] };
  }

  #listed(released) {
    return released.map((item) => {
      if (typeof item === "number") return this.#slots.take(item);
      return new Gap(item.topic, item.epoch, item.first, item.last);
    });
  }

  /** When `expire` wants to be called, on the clock of `nowMs`; `undefined` if nothing is held. */
  get deadlineMs() {
    return this.#sequencer.deadlineMs ?? undefined;
  }

  /** How many topics are known. */
  get topics() {
    return this.#sequencer.topics;
  }

  /** How many messages are held. */
  get held() {
    return this.#sequencer.held;
  }
}

module.exports = { Gap, PriorityQueue, Sequencer, TokenBucket };
