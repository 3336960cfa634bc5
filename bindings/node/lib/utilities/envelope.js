"use strict";

// The envelope around the payload of a message: reading and writing.

const { name, optionalText } = require("../arguments.js");
const { InvalidMessageError, WrongTypeError } = require("../errors.js");
const { decodePayload, encode } = require("../json.js");
const { named } = require("../names.js");
const native = require("../native.js");
const { amount, offset, place, run, textOrBytes } = require("./shared.js");

/** A message that was read: its fields at once, its payload when it is asked for. */
class Envelope {
  #fields;
  #payloadText;
  #payload;

  /** Reads a message: JSON, or MessagePack behind `M:`. For this package alone: users call `parseEnvelope`. */
  constructor(message) {
    const given = textOrBytes("message", message);
    const [fields, payload] = run(() => native.parseEnvelope(given));
    this.#fields = JSON.parse(fields);
    this.#payloadText = payload ?? undefined;
  }

  #at(index) {
    return this.#fields[index] ?? undefined;
  }

  /** A number of the message; JavaScript cannot distinguish those past 2^53 - 1. */
  #number(index, what) {
    const value = this.#at(index);
    if (value !== undefined && !Number.isSafeInteger(value)) {
      throw new InvalidMessageError(`the message's ${what} is past 2^53 - 1`);
    }
    return value;
  }

  /** `update`, `snapshot` or `system`; `undefined` if the message does not say. */
  get category() {
    return this.#at(0);
  }

  /** The type of the message, such as `order_created`. */
  get type() {
    return this.#fields[1];
  }

  /** The message's id. */
  get id() {
    return this.#at(2);
  }

  /** When the message was made. */
  get time() {
    const text = this.#at(3);
    if (text === undefined) return undefined;
    const unixMs = this.#at(4);
    if (unixMs === undefined) throw new InvalidMessageError(`the message's time is no time: ${text}`);
    return new Date(unixMs);
  }

  /** The sender's count of its messages. */
  get sequence() {
    return this.#number(5, "sequence");
  }

  /** 1 (background), 3, 5 (normal), 8 or 10 (critical). */
  get priority() {
    return this.#fields[6];
  }

  /** The fields that an answer has in common with its request. */
  get correlationId() {
    return this.#at(7);
  }

  /** The sender's signature. */
  get signature() {
    return this.#at(8);
  }

  /** The topic that the message was published to. */
  get topic() {
    return this.#at(9);
  }

  /** Where the message stands in its topic's history. */
  get position() {
    const epoch = this.#at(10);
    return epoch === undefined ? undefined : { epoch, offset: this.#number(11, "offset") };
  }

  /** The producer's number of the message. */
  get number() {
    return this.#number(12, "number");
  }

  /** The number by which a member of a queue group acknowledges the message. */
  get delivery() {
    return this.#number(13, "number of its delivery");
  }

  /** Whether the message was delivered to another member before. */
  get redelivered() {
    return this.#fields[14];
  }

  /** The payload, decoded when it is first asked for; `undefined` if there is none. */
  get payload() {
    if (this.#payload === undefined && this.#payloadText !== undefined) {
      this.#payload = decodePayload(this.#payloadText);
    }
    return this.#payload;
  }

  /** The payload as JSON text, as it stands in the message. */
  get payloadJson() {
    return this.#payloadText?.replace("\0", "") ?? "null";
  }

  [Symbol.for("nodejs.util.inspect.custom")]() {
    const topic = this.topic === undefined ? "" : ` on ${this.topic}`;
    return `<Envelope ${this.type}${topic}>`;
  }
}

/** Reads a message: JSON, or MessagePack behind `M:`. */
const parseEnvelope = (message) => new Envelope(message);

const TEXTS = ["category", "id", "correlationId", "signature", "topic", "format"];
const NUMBERS = ["sequence", "number", "priority"];
const KNOWN = new Set([...TEXTS, ...NUMBERS, "time", "position"]);

/** A message with this type and payload: text, or with the format `msgpack` bytes. */
function encodeEnvelope(type, payload, options) {
  const fields = {};
  for (const [key, value] of Object.entries(named("encodeEnvelope", options, KNOWN))) {
    if (value === undefined || value === null) continue;
    if (TEXTS.includes(key)) fields[key] = optionalText(key, value);
    else if (NUMBERS.includes(key)) fields[key] = offset(value, key);
    else if (key === "time") fields.unixMs = Math.round(timeOf(value));
    else [fields.epoch, fields.offset] = place(value);
  }
  const text = encode(payload);
  return run(() => native.encodeEnvelope(name("type", type), text, fields));
}

/** Milliseconds since 1970. */
function timeOf(time) {
  if (time instanceof Date) return amount("time", time.getTime());
  if (typeof time !== "number") throw new WrongTypeError("time is a Date or milliseconds since 1970");
  return amount("time", time);
}

module.exports = { Envelope, encodeEnvelope, parseEnvelope };
