/** Reader of RFC 6455 frames, the client's side: bytes in, messages and control frames out, no I/O. */

import { isAscii, isUtf8 } from "node:buffer";
import { TextDecoder } from "node:util";
import type { Frame } from "../../transport.js";

/** The opcodes of RFC 6455, section 5.2. */
export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** The longest payload of a control frame. */
export const CONTROL_BYTES_MAX = 125;

/** A broken rule of the protocol's section 3. */
export type FrameErrorName =
  | "reserved_bits"
  | "reserved_opcode"
  | "masked"
  | "control_fragmented"
  | "control_too_long"
  | "length_encoding"
  | "unexpected_continuation"
  | "expected_continuation"
  | "close_payload"
  | "invalid_utf8"
  | "invalid_deflate"
  | "message_too_large";

/** The message behind a compressed payload. Throws a {@link FrameError} beyond `bytesMax`, and for what does not inflate. */
export type Inflate = (payload: Uint8Array, bytesMax: number) => Buffer;

/** What a reader finds, in order. */
export interface FrameSink {
  /** A message. Binary is a view that is valid only during the call of {@link FrameReader.read}. */
  message(frame: Frame): void;
  /** The payload is valid only during the call. */
  ping(payload: Uint8Array): void;
  /** The payload is valid only during the call. */
  pong(payload: Uint8Array): void;
  /** A close; `undefined` for one without a code. Nothing after it is read. */
  close(code: number | undefined, reason: string): void;
}

/** A broken rule ends the connection with this code. */
export class FrameError extends Error {
  override readonly name = "FrameError";
  readonly rule: FrameErrorName;

  constructor(rule: FrameErrorName) {
    super(`the server broke a rule of WebSocket frames: ${rule.replaceAll("_", " ")}`);
    this.rule = rule;
  }

  /** The close code for the broken rule. */
  get closeCode(): number {
    if (this.rule === "invalid_utf8" || this.rule === "invalid_deflate") return 1007;
    return this.rule === "message_too_large" ? 1009 : 1002;
  }
}

/** The largest header of a frame without a mask. */
const HEADER_BYTES_MAX = 10;
const EMPTY = Buffer.alloc(0);
/** What decoding puts in the place of bytes that are not UTF-8, and what may stand in a text itself. */
const REPLACEMENT = "\ufffd";
const SPACE = 0x20;
const RESERVED = 0x70;
/** The bit of a compressed message (RFC 7692, section 6). */
export const COMPRESSED = 0x40;

/**
 * Reads the frames of one connection. A message that lies in one read costs no copy but the one into its string.
 * Memory is reserved only for bytes that have arrived.
 */
export class FrameReader {
  readonly #bytesMax: number;
  readonly #sink: FrameSink;
  /** A header of which only a part has arrived. */
  readonly #header = Buffer.alloc(HEADER_BYTES_MAX);
  #headerBytes = 0;
  /** The frame whose payload is being read. */
  #opcode = 0;
  #isFinal = false;
  #length = 0;
  /** Bytes of the payload that have not arrived; -1 between frames. */
  #missing = -1;
  /** The kind of the fragmented message that is being read, 0 without one. */
  #messageKind = 0;
  #messageBytes = 0;
  /** The message of the current frame is compressed. */
  #isCompressed = false;
  #inflate: Inflate | undefined;
  /** The received part of a message that does not lie in one read. The buffer has at most twice its size. */
  #parts: Buffer = EMPTY;
  #validator: TextDecoder | undefined;
  #control: Buffer = EMPTY;
  #isOver = false;
  /** Texts that lie in the current read, not yet decoded: start and end of each. */
  readonly #texts: number[] = [];

  constructor(messageBytesMax: number, sink: FrameSink) {
    this.#bytesMax = messageBytesMax;
    this.#sink = sink;
  }

  /** permessage-deflate was agreed on. */
  inflateWith(inflate: Inflate): void {
    this.#inflate = inflate;
  }

  /**
   * Reads all frames of `chunk`. Overwrites headers in it, so that all its texts can be checked at once.
   *
   * @throws {FrameError} for a broken rule; the sink has received everything before it.
   */
  read(chunk: Buffer): void {
    let at = 0;
    try {
      while (at < chunk.length && !this.#isOver) at = this.#step(chunk, at);
    } catch (error) {
      this.#isOver = true;
      this.#settle(chunk);
      throw error;
    }
    this.#settle(chunk);
  }

  /** Reads one frame, or the available part of it, and returns where the next one begins. */
  #step(chunk: Buffer, at: number): number {
    if (this.#missing >= 0) return this.#continuePayload(chunk, at);
    if (this.#headerBytes > 0) return this.#continueHeader(chunk, at);
    const size = headerSize(chunk, at, chunk.length - at);
    if (size > chunk.length - at) {
      this.#headerBytes = chunk.copy(this.#header, 0, at);
      this.#checkPartial(this.#header, 0, this.#headerBytes);
      return chunk.length;
    }
    const start = at + size;
    this.#open(chunk, at);
    const end = start + this.#length;
    if (end > chunk.length || this.#opcode >= OPCODE.close || !this.#isWhole()) {
      this.#missing = this.#length;
      return this.#continuePayload(chunk, start);
    }
    if (this.#isCompressed) {
      this.#settle(chunk);
      this.#sink.message(this.#inflated(chunk.subarray(start, end), this.#opcode === OPCODE.text));
    } else if (this.#opcode === OPCODE.text) {
      for (let index = at; index < start; index += 1) chunk[index] = SPACE;
      this.#texts.push(start, end);
    } else {
      this.#settle(chunk);
      this.#sink.message(chunk.subarray(start, end));
    }
    return end;
  }

  /** Whether the frame is a message of its own. */
  #isWhole(): boolean {
    return this.#isFinal && this.#messageKind === 0;
  }

  #continueHeader(chunk: Buffer, at: number): number {
    let next = at;
    while (next < chunk.length) {
      this.#header[this.#headerBytes] = chunk[next]!;
      this.#headerBytes += 1;
      next += 1;
      this.#checkPartial(this.#header, 0, this.#headerBytes);
      if (headerSize(this.#header, 0, this.#headerBytes) === this.#headerBytes) {
        this.#headerBytes = 0;
        this.#open(this.#header, 0);
        this.#missing = this.#length;
        return this.#continuePayload(chunk, next);
      }
    }
    return next;
  }

  /** Checks the two bytes that decide on all but the length, as far as they have arrived. */
  #checkPartial(bytes: Buffer, at: number, available: number): void {
    const first = bytes[at]!;
    const opcode = first & 0x0f;
    const reserved = first & RESERVED;
    if (reserved !== 0) {
      const beginsMessage = opcode === OPCODE.text || opcode === OPCODE.binary;
      const mayBeCompressed = this.#inflate !== undefined && beginsMessage;
      if (reserved !== COMPRESSED || !mayBeCompressed) throw new FrameError("reserved_bits");
    }
    if ((opcode > OPCODE.binary && opcode < OPCODE.close) || opcode > OPCODE.pong) {
      throw new FrameError("reserved_opcode");
    }
    const isFinal = (first & 0x80) !== 0;
    if (opcode >= OPCODE.close) {
      if (!isFinal) throw new FrameError("control_fragmented");
    } else if (opcode === OPCODE.continuation) {
      if (this.#messageKind === 0) throw new FrameError("unexpected_continuation");
    } else if (this.#messageKind !== 0) {
      throw new FrameError("expected_continuation");
    }
    if (available < 2) return;
    const second = bytes[at + 1]!;
    if ((second & 0x80) !== 0) throw new FrameError("masked");
    if (opcode >= OPCODE.close && second > CONTROL_BYTES_MAX) throw new FrameError("control_too_long");
  }

  /** Reads a whole header. */
  #open(bytes: Buffer, at: number): void {
    this.#checkPartial(bytes, at, 2);
    const first = bytes[at]!;
    this.#opcode = first & 0x0f;
    this.#isFinal = (first & 0x80) !== 0;
    this.#length = lengthOf(bytes, at);
    if (this.#opcode >= OPCODE.close) return;
    if (this.#opcode !== OPCODE.continuation) this.#isCompressed = (first & COMPRESSED) !== 0;
    if (this.#length > this.#payloadBytesMax - this.#messageBytes) {
      throw new FrameError("message_too_large");
    }
  }

  /** The most bytes of the payloads of a message. What does not compress gets a little longer (PROTOCOL 9.2 (5)). */
  get #payloadBytesMax(): number {
    return this.#bytesMax + (this.#isCompressed ? Math.ceil(this.#bytesMax / 2048) + 64 : 0);
  }

  /** Reads the chunk's part of the payload. */
  #continuePayload(chunk: Buffer, at: number): number {
    const end = Math.min(chunk.length, at + this.#missing);
    this.#missing -= end - at;
    const part = chunk.subarray(at, end);
    const isLast = this.#missing === 0;
    if (this.#opcode >= OPCODE.close) {
      this.#control = this.#control.length === 0 ? part : Buffer.concat([this.#control, part]);
      if (isLast) this.#takeControl(chunk);
      else this.#control = Buffer.from(this.#control);
    } else {
      this.#takePart(chunk, part, isLast);
    }
    if (isLast) this.#missing = -1;
    return end;
  }

  #takePart(chunk: Buffer, part: Buffer, isLast: boolean): void {
    if (this.#opcode !== OPCODE.continuation) this.#messageKind = this.#opcode;
    const isEnd = isLast && this.#isFinal;
    const isText = this.#messageKind === OPCODE.text;
    if (isText && !this.#isCompressed) this.#validate(part, isEnd);
    this.#keep(part);
    if (!isEnd) return;
    this.#settle(chunk);
    const payload = this.#parts.subarray(0, this.#messageBytes);
    this.#parts = EMPTY;
    this.#messageKind = 0;
    this.#messageBytes = 0;
    if (this.#isCompressed) this.#sink.message(this.#inflated(payload, isText));
    else this.#sink.message(isText ? payload.toString("utf8") : payload);
  }

  /** The message behind a compressed payload. */
  #inflated(payload: Uint8Array, isText: boolean): Frame {
    const message = this.#inflate!(payload, this.#bytesMax);
    return isText ? decode(message, 0, message.length) : message;
  }

  /** Checks a part of a text, so that an error is seen before the message ends. */
  #validate(part: Buffer, isEnd: boolean): void {
    this.#validator ??= new TextDecoder("utf-8", { fatal: true });
    try {
      this.#validator.decode(part, { stream: !isEnd });
    } catch {
      throw new FrameError("invalid_utf8");
    }
  }

  /** Adds a part to the message. Many small parts need no more memory than few large ones. */
  #keep(part: Buffer): void {
    const bytes = this.#messageBytes + part.length;
    if (bytes > this.#parts.length) {
      const larger = Buffer.allocUnsafeSlow(
        Math.max(bytes, Math.min(this.#payloadBytesMax, 2 * this.#parts.length)),
      );
      this.#parts.copy(larger, 0, 0, this.#messageBytes);
      this.#parts = larger;
    }
    part.copy(this.#parts, this.#messageBytes);
    this.#messageBytes = bytes;
  }

  #takeControl(chunk: Buffer): void {
    this.#settle(chunk);
    const payload = this.#control;
    this.#control = EMPTY;
    if (this.#opcode === OPCODE.ping) this.#sink.ping(payload);
    else if (this.#opcode === OPCODE.pong) this.#sink.pong(payload);
    else {
      const [code, reason] = readClose(payload);
      this.#isOver = true;
      this.#sink.close(code, reason);
    }
  }

  /** Decodes the texts of the current read that wait for it. */
  #settle(chunk: Buffer): void {
    const texts = this.#texts;
    if (texts.length === 0) return;
    const areAscii = isAscii(chunk.subarray(texts[0], texts[texts.length - 1]));
    try {
      for (let index = 0; index < texts.length; index += 2) {
        const start = texts[index]!;
        const end = texts[index + 1]!;
        this.#sink.message(areAscii ? chunk.toString("latin1", start, end) : decode(chunk, start, end));
      }
    } finally {
      texts.length = 0;
    }
  }
}

/** The bytes of the header at `at`, as far as they can be known: the least that is needed to go on. */
function headerSize(bytes: Buffer, at: number, available: number): number {
  if (available < 2) return 2;
  const length = bytes[at + 1]! & 0x7f;
  if (length < 126) return 2;
  return length === 126 ? 4 : HEADER_BYTES_MAX;
}

/** The length of the payload, from a whole header. */
function lengthOf(bytes: Buffer, at: number): number {
  const short = bytes[at + 1]! & 0x7f;
  if (short < 126) return short;
  if (short === 126) {
    const length = (bytes[at + 2]! << 8) | bytes[at + 3]!;
    if (length < 126) throw new FrameError("length_encoding");
    return length;
  }
  const high = bytes.readUInt32BE(at + 2);
  const length = high * 2 ** 32 + bytes.readUInt32BE(at + 6);
  if (high >= 2 ** 31 || length < 65_536) throw new FrameError("length_encoding");
  return length;
}

/** Decodes one text and checks that it is UTF-8. */
function decode(chunk: Buffer, start: number, end: number): string {
  const text = chunk.toString("utf8", start, end);
  if (text.includes(REPLACEMENT) && !isUtf8(chunk.subarray(start, end))) throw new FrameError("invalid_utf8");
  return text;
}

/** The code and the reason of a close. */
function readClose(payload: Buffer): [code: number | undefined, reason: string] {
  if (payload.length === 0) return [undefined, ""];
  if (payload.length === 1) throw new FrameError("close_payload");
  const code = payload.readUInt16BE(0);
  if (!isCloseCode(code)) throw new FrameError("close_payload");
  return [code, decode(payload, 2, payload.length)];
}

/** Whether a code may stand in a close frame (protocol, section 3). */
export function isCloseCode(code: number): boolean {
  if (!Number.isInteger(code)) return false;
  return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) || (code >= 3000 && code <= 4999);
}
