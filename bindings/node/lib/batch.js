"use strict";

// Received messages. A batch is a block of numbers and bytes that src/server/inbox.rs has written; messages are objects
// that are made when somebody looks at them, and decode only what is asked for.

const { isAscii } = require("node:buffer");
const { ACCEPT, FAIL, REPLY, SEND_BINARY, SEND_TEXT } = require("./outbox.js");
const { Connection } = require("./connection.js");
const { InvalidArgumentError, InvalidMessageError, translated } = require("./errors.js");
const { MARK } = require("./message-mark.js");
const { decode, decodePayload, encode, payloadOf } = require("./json.js");
const { name, text } = require("./arguments.js");
const { named } = require("./names.js");
const native = require("./native.js");

const HEAD_NUMBERS = 4;
const ROW_NUMBERS = 8;

const TEXT = 0;
const BINARY = 1;
const MESSAGEPACK = 2;
const REQUEST = 3;
const SNAPSHOT_REQUEST = 4;
const CONNECT = 5;
const DISCONNECT = 6;
const PUBLICATION = 7;

const KINDS = [
  "message",
  "message",
  "message",
  "request",
  "snapshotRequest",
  "connect",
  "disconnect",
  "publication",
];
const REASONS = ["peer", "server", "lost"];

/** A type without a handler of its own. */
const NO_HANDLER = 0xffffffff;

/** The payloads that handlers have put in the place of those of publications, as JSON texts. */
const replacements = new WeakMap();

const SNAPSHOT_OPTIONS = new Set(["type"]);

/** The begin of a binary message that is MessagePack. */
const MESSAGEPACK_PREFIX = Buffer.from("M:");

/** Messages of one turn of the engine, in the order in which they arrived. */
class Batch {
  #server;
  #connections;
  #memory;
  #buffer;
  #numbers;
  #rows;
  #bytes;
  #messagesEnd;
  /** How many texts were decoded one by one; -1 if all are, since they are not ASCII. */
  #decoded = 0;
  #ascii;

  /** For this package alone: `at` is where the batch begins in the memory. */
  constructor(server, memory, at) {
    const { buffer, numbers } = memory;
    const head = at >> 2;
    const length = numbers[head];
    this.length = length;
    this.#server = server;
    this.#memory = memory;
    this.#buffer = buffer;
    this.#numbers = numbers;
    this.#rows = head + HEAD_NUMBERS;
    this.#bytes = numbers[head + 1];
    this.#messagesEnd = numbers[head + 3];
    this.#connections = new Array(length);
    this.#meet(server.connectionsByPlace);
  }

  /** Finds the connection of each row; those that are new are made, those that ended are forgotten. */
  #meet(known) {
    const numbers = this.#numbers;
    const connections = this.#connections;
    for (let index = 0, row = this.#rows; index < connections.length; index++, row += ROW_NUMBERS) {
      const kind = numbers[row] & 0xff;
      const place = numbers[row + 1];
      if (kind === CONNECT) {
        const described = JSON.parse(this._text(numbers[row + 2], numbers[row + 3]));
        const { core, outbox, attachments } = this.#server;
        const connection = new Connection(core, outbox, place, numbers[row + 5], described);
        const [, , , , adoption] = described;
        if (adoption !== null) connection.attachment = attachments.take(adoption);
        known[place] = connection;
      }
      connections[index] = known[place];
      if (kind === DISCONNECT) known[place] = undefined;
    }
  }

  /** The message at a place, from 0; a negative place counts from the end. */
  at(index) {
    const place = index < 0 ? this.length + index : index;
    if (!(place >= 0 && place < this.length)) return undefined;
    return new Message(this, Math.trunc(place));
  }

  *entries() {
    for (let index = 0; index < this.length; index++) yield [index, new Message(this, index)];
  }

  [Symbol.iterator]() {
    return new Messages(this);
  }

  /** One number of a row. */
  _number(index, column) {
    return this.#numbers[this.#rows + index * ROW_NUMBERS + column];
  }

  /** The kind of a row: a number. */
  _kind(index) {
    return this.#numbers[this.#rows + index * ROW_NUMBERS] & 0xff;
  }

  _connection(index) {
    return this.#connections[index];
  }

  get _server() {
    return this.#server;
  }

  /** Bytes of the batch, not copied. */
  _view(start, end) {
    return this.#buffer.subarray(this.#bytes + start, this.#bytes + end);
  }

  /** Bytes of the batch for the application, which may change them: what is sent from here is copied from now on. */
  _shared(start, end) {
    const memory = this.#memory;
    if (!memory.isShared) {
      memory.isShared = true;
      this.#server.outbox.release(this.#buffer);
    }
    return this._view(start, end);
  }

  _text(start, end) {
    return this.#buffer.utf8Slice(this.#bytes + start, this.#bytes + end);
  }

  /** Text that is soon forgotten: it may keep the text of the whole batch in memory, which one decoding makes. */
  _fleetingText(start, end) {
    if (this.#ascii === undefined) {
      // The first is decoded by itself: perhaps nobody looks at another.
      if (this.#decoded < 0 || this.length === 1 || this.#decoded++ === 0) return this._text(start, end);
      if (!isAscii(this._view(0, this.#messagesEnd))) {
        this.#decoded = -1;
        return this._text(start, end);
      }
      this.#ascii = this.#buffer.latin1Slice(this.#bytes, this.#bytes + this.#messagesEnd);
    }
    if (end > this.#messagesEnd) return this._text(start, end);
    return this.#ascii.substring(start, end);
  }

  /** Adds the bytes of a message to an outbox. */
  _addTo(outbox, what, place, generation, start, end) {
    const [from, to] = [this.#bytes + start, this.#bytes + end];
    if (this.#memory.isShared) outbox.addBytes(what, place, generation, this.#buffer, from, to);
    else outbox.addOfBatch(what, place, generation, this.#buffer, from, to);
  }

  [Symbol.for("nodejs.util.inspect.custom")]() {
    return `<Batch of ${this.length} message${this.length === 1 ? "" : "s"}>`;
  }
}

/** Walks through a batch. */
class Messages {
  #batch;
  #next = 0;

  constructor(batch) {
    this.#batch = batch;
  }

  next() {
    const index = this.#next;
    if (index >= this.#batch.length) return { done: true, value: undefined };
    this.#next = index + 1;
    return { done: false, value: new Message(this.#batch, index) };
  }

  [Symbol.iterator]() {
    return this;
  }
}

/** Something that happened on a connection; `kind` says what. */
class Message {
  #batch;
  #index;
  #whole;
  #isDecoded = false;
  #payload;
  #isAnswered = false;

  /** For this package alone. */
  constructor(batch, index) {
    this.#batch = batch;
    this.#index = index;
  }

  /** `message`, `request`, `publication`, `snapshotRequest`, `connect` or `disconnect`. */
  get kind() {
    return KINDS[this.#batch._kind(this.#index)];
  }

  /** The connection on which it happened. */
  get connection() {
    return this.#batch._connection(this.#index);
  }

  /** The user that the connection's token names, or `undefined`. */
  get user() {
    return this.connection.user;
  }

  /** The size of `data` in bytes. */
  get length() {
    if (this.#batch._kind(this.#index) > MESSAGEPACK) return 0;
    return this.#batch._number(this.#index, 3) - this.#batch._number(this.#index, 2);
  }

  /** The bytes that were received, as a Buffer without a copy; empty for other kinds than `message`. */
  get data() {
    if (this.#batch._kind(this.#index) > MESSAGEPACK) return this.#batch._view(0, 0);
    return this.#batch._shared(this.#batch._number(this.#index, 2), this.#batch._number(this.#index, 3));
  }

  /** The bytes for this package, which does not change them. */
  #bytes() {
    return this.#batch._view(this.#batch._number(this.#index, 2), this.#batch._number(this.#index, 3));
  }

  /** The text that was received; empty for other kinds than `message`. */
  get text() {
    const kind = this.#batch._kind(this.#index);
    if (kind > MESSAGEPACK) return "";
    if (kind === MESSAGEPACK) return this.#jsonText();
    return this.#batch._text(this.#batch._number(this.#index, 2), this.#batch._number(this.#index, 3));
  }

  /** `text`, `binary`, or `msgpack`. */
  get encoding() {
    const kind = this.#batch._kind(this.#index);
    return kind === BINARY ? "binary" : kind === MESSAGEPACK ? "msgpack" : "text";
  }

  /** The whole message, decoded once. */
  json() {
    if (!this.#isDecoded) {
      this.#whole = this.#decode();
      this.#isDecoded = true;
    }
    return this.#whole;
  }

  #decode() {
    const start = this.#batch._number(this.#index, 2);
    const end = this.#batch._number(this.#index, 3);
    switch (this.#batch._kind(this.#index)) {
      case TEXT:
        return decode(this.#batch._fleetingText(start, end));
      case MESSAGEPACK:
        return decode(this.#jsonText());
      case BINARY:
        throw new InvalidMessageError("the message is binary, not JSON");
      case REQUEST:
        return { t: this.type, p: decodePayload(this.#batch._text(start + this.#typeBytes(), end)) };
      case PUBLICATION: {
        const text = this.#batch._text(start + this.#typeBytes() + this.#batch._number(this.#index, 7), end);
        return { t: this.type, tp: this.topic, p: decodePayload(text) };
      }
      case SNAPSHOT_REQUEST:
        return { t: "sync_request", p: decode(this.#batch._text(start, end)) };
      default:
        return {};
    }
  }

  #jsonText() {
    try {
      return native.messageToJson(this.#bytes());
    } catch (error) {
      throw translated(error);
    }
  }

  #typeBytes() {
    return this.#batch._number(this.#index, 0) >>> 8;
  }

  /** The payload: its `p`, or `payload`; `undefined` if there is none. A binary one is a Buffer. */
  get payload() {
    if (this.#payload === undefined) this.#payload = this.#decodePayload();
    return this.#payload;
  }

  #decodePayload() {
    const kind = this.#batch._kind(this.#index);
    if (kind === TEXT && !this.#isDecoded) {
      const end = this.#batch._number(this.#index, 6);
      if (end !== 0) {
        const payload = decode(this.#batch._fleetingText(this.#batch._number(this.#index, 5), end));
        return this.#batch._number(this.#index, 7) === 0 ? payload : Buffer.from(payload, "base64");
      }
    }
    if (kind === CONNECT || kind === DISCONNECT) return undefined;
    if (kind > MESSAGEPACK) return this.json().p;
    return payloadOf(this.json());
  }

  /** The type, such as `chat`; `undefined` if it has none, and for a connection's start and end. */
  get type() {
    switch (this.#batch._kind(this.#index)) {
      case TEXT:
      case MESSAGEPACK: {
        const handler = this.#batch._number(this.#index, 4);
        if (handler !== NO_HANDLER) return this.#batch._server.messageTypes[handler];
        const whole = this.json();
        const type = whole?.t ?? whole?.type;
        return typeof type === "string" ? type : undefined;
      }
      case REQUEST:
      case PUBLICATION: {
        const start = this.#batch._number(this.#index, 2);
        return this.#batch._text(start, start + this.#typeBytes());
      }
      default:
        return undefined;
    }
  }

  /** The topic that it names, if it names one. */
  get topic() {
    const kind = this.#batch._kind(this.#index);
    if (kind === PUBLICATION) {
      const start = this.#batch._number(this.#index, 2) + this.#typeBytes();
      return this.#batch._text(start, start + this.#batch._number(this.#index, 7));
    }
    if (kind !== TEXT && kind !== MESSAGEPACK) return undefined;
    const topic = this.json()?.tp;
    return typeof topic === "string" ? topic : undefined;
  }

  /** The topics that a `snapshotRequest` asks for. */
  get topics() {
    return this.#batch._kind(this.#index) === SNAPSHOT_REQUEST ? this.json().p.topics : [];
  }

  /** Why a connection ended: `peer`, `server` or `lost`; `undefined` for other kinds. */
  get reason() {
    return this.#batch._kind(this.#index) === DISCONNECT
      ? REASONS[this.#batch._number(this.#index, 5)]
      : undefined;
  }

  /** The code with which a connection ended, if there was one. */
  get closeCode() {
    if (this.#batch._kind(this.#index) !== DISCONNECT) return undefined;
    return this.#batch._number(this.#index, 6) || undefined;
  }

  /** How long the client waits for the answer to a `request`, in milliseconds. */
  get timeoutMs() {
    return this.#batch._kind(this.#index) === REQUEST ? this.#batch._number(this.#index, 7) : undefined;
  }

  /** Answers a `request`; false if it was answered before, or too late. */
  reply(payload) {
    if (this.#batch._kind(this.#index) !== REQUEST) {
      throw new InvalidArgumentError("only a message of the kind request is replied to");
    }
    return this.#answer(REPLY, "", encode(payload ?? null));
  }

  /** Answers a `request` with an error, or refuses a `publication`; false if it was answered before, or too late. */
  fail(code, message) {
    const kind = this.#batch._kind(this.#index);
    if (kind !== REQUEST && kind !== PUBLICATION) {
      throw new InvalidArgumentError("only a message of the kind request or publication fails");
    }
    return this.#answer(FAIL, name("code", code), text("message", message));
  }

  /** Replaces the payload of a `publication`: subscribers get this one. */
  replace(payload) {
    if (this.#batch._kind(this.#index) !== PUBLICATION) {
      throw new InvalidArgumentError("only the payload of a message of the kind publication is replaced");
    }
    replacements.set(this, encode(payload ?? null));
  }

  /** Lets a `publication` go on, with the payload that has replaced its own, if one has. */
  _accept() {
    const replacement = replacements.get(this);
    if (replacement === undefined) this.#answer(ACCEPT, "", "");
    else this.#answer(REPLY, "", replacement);
  }

  #answer(what, first, second) {
    if (this.#isAnswered) return false;
    const { core, outbox } = this.#batch._server;
    const place = this.#batch._number(this.#index, 5);
    const generation = this.#batch._number(this.#index, 6);
    this.#isAnswered = true;
    if (!core.isUnanswered(place, generation)) return false;
    outbox.add(what, place, generation, first, second, 0);
    return true;
  }

  /** Answers a `snapshotRequest` for one of its topics. */
  replySnapshot(topic, payload, options) {
    if (this.#batch._kind(this.#index) !== SNAPSHOT_REQUEST) {
      throw new InvalidArgumentError("only a message of the kind snapshotRequest is answered with snapshots");
    }
    text("topic", topic);
    const type = name("type", named("replySnapshot", options, SNAPSHOT_OPTIONS).type ?? "snapshot");
    const { core, outbox } = this.#batch._server;
    const { _place: place, _generation: generation } = this.connection;
    const id = this.json().p.correlationId ?? undefined;
    outbox.flush();
    try {
      core.sendSnapshot(place, generation, topic, type, encode(payload), id);
    } catch (error) {
      throw translated(error);
    }
  }

  /** The kind as a number. */
  get _kind() {
    return this.#batch._kind(this.#index);
  }

  /** The number of the handler of its type. */
  get _handler() {
    return this.#batch._number(this.#index, 4);
  }

  /** Adds it to an outbox as it came. */
  _forward(outbox, place, generation) {
    const kind = this.#batch._kind(this.#index);
    if (kind > MESSAGEPACK) {
      throw new InvalidArgumentError("only a message of the kind message can be sent on");
    }
    if (kind === MESSAGEPACK) {
      const bytes = Buffer.concat([MESSAGEPACK_PREFIX, this.#bytes()]);
      outbox.addBytes(SEND_BINARY, place, generation, bytes, 0, bytes.length);
      return;
    }
    const start = this.#batch._number(this.#index, 2);
    const end = this.#batch._number(this.#index, 3);
    const what = kind === TEXT ? SEND_TEXT : SEND_BINARY;
    this.#batch._addTo(outbox, what, place, generation, start, end);
  }

  get [MARK]() {
    return true;
  }

  [Symbol.for("nodejs.util.inspect.custom")]() {
    const about =
      this.kind === "request" || this.kind === "publication"
        ? ` ${this.type}`
        : this.kind === "message"
          ? ` of ${this.length} bytes`
          : "";
    return `<Message ${this.kind}${about} from ${this.connection}>`;
  }
}

module.exports = { Batch, CONNECT, DISCONNECT, Message, NO_HANDLER, PUBLICATION, REQUEST, SNAPSHOT_REQUEST };
