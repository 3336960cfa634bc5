/** Writer of RFC 6455 frames, the client's side: messages in, masked frames in slabs out, no I/O. */

import { PreparedFrame } from "../prepared.js";
import { COMPRESSED, CONTROL_BYTES_MAX, OPCODE } from "./frames.js";
import { applyMask, nextMask, writeMask } from "./masks.js";
import { acquireSlab, LARGE_BYTES, newSlab, releaseSlab, type Slab, SMALL_BYTES } from "./slabs.js";

/** Compresses a message, which then has the first reserved bit. */
export type Deflate = (message: Uint8Array) => Uint8Array;

/** Writes a part of a slab; the slab is free once `bytes` have been written. */
export type WriteSlab = (bytes: Buffer, slab: Slab) => void;

/** The largest header of a frame with a mask. */
const HEADER_BYTES_MAX = 14;
/** The most bytes of UTF-8 for one unit of a string. */
const UTF8_BYTES_MAX = 3;
const FINAL = 0x80;
/** What an encrypted message begins with, which does not get shorter (PROTOCOL 9.2 (6)). */
const ENCRYPTED = Buffer.from("E:");
const MASKED = 0x80;

/** Collects the frames of one connection until {@link FrameWriter.flush}, or until a slab is full. */
export class FrameWriter {
  readonly #write: WriteSlab;
  #slab: Slab | undefined;
  #at = 0;
  /** Whether the last turn needed a large slab, as the next one then does, too. */
  #isLarge = false;
  #deflate: Deflate | undefined;
  /** The shortest message that is compressed. */
  #deflateBytesMin = 0;

  constructor(write: WriteSlab) {
    this.#write = write;
  }

  /** Bytes that wait for {@link FrameWriter.flush}. */
  get waitingBytes(): number {
    return this.#at;
  }

  /** permessage-deflate was agreed on: messages of `bytesMin` bytes and more are compressed. */
  deflateWith(deflate: Deflate, bytesMin: number): void {
    this.#deflate = deflate;
    this.#deflateBytesMin = bytesMin;
  }

  /** Adds a message. */
  message(frame: string | Uint8Array | PreparedFrame): void {
    if (this.#deflate !== undefined) this.#deflated(this.#deflate, frame);
    else this.#plain(frame);
  }

  #deflated(deflate: Deflate, frame: string | Uint8Array | PreparedFrame): void {
    const { bytes, isText } = frame instanceof PreparedFrame ? frame : new PreparedFrame(frame);
    const isEncrypted = !isText && bytes[0] === ENCRYPTED[0] && bytes[1] === ENCRYPTED[1];
    const payload = isEncrypted || bytes.length < this.#deflateBytesMin ? bytes : deflate(bytes);
    if (payload.length < bytes.length)
      this.#payload(COMPRESSED | (isText ? OPCODE.text : OPCODE.binary), payload);
    else this.#plain(frame);
  }

  #plain(frame: string | Uint8Array | PreparedFrame): void {
    if (typeof frame === "string") this.#text(frame);
    else if (frame instanceof PreparedFrame) {
      this.#payload(frame.isText ? OPCODE.text : OPCODE.binary, frame.bytes);
    } else this.#payload(OPCODE.binary, frame);
  }

  /** Adds a control frame of at most 125 bytes. */
  control(opcode: number, payload: Uint8Array): void {
    if (payload.length > CONTROL_BYTES_MAX) {
      throw new RangeError(`a control frame has at most ${CONTROL_BYTES_MAX} bytes, not ${payload.length}`);
    }
    this.#payload(opcode, payload);
  }

  /** Hands over what has been collected. */
  flush(): void {
    const slab = this.#slab;
    if (slab === undefined) return;
    const bytes = slab.bytes.subarray(0, this.#at);
    this.#isLarge = this.#at > SMALL_BYTES;
    this.#slab = undefined;
    this.#at = 0;
    this.#write(bytes, slab);
  }

  #text(text: string): void {
    const room = text.length * UTF8_BYTES_MAX + HEADER_BYTES_MAX;
    const slab = this.#reserve(room <= LARGE_BYTES ? room : Buffer.byteLength(text) + HEADER_BYTES_MAX);
    // The header's size depends on the number of bytes, which for most texts is that of the characters.
    const guess = headerSize(text.length);
    let start = this.#at + guess;
    const length = slab.bytes.write(text, start, "utf8");
    const needed = headerSize(length);
    if (needed !== guess) {
      slab.bytes.copyWithin(start + needed - guess, start, start + length);
      start += needed - guess;
    }
    this.#seal(slab, OPCODE.text, start, length);
  }

  #payload(opcode: number, payload: Uint8Array): void {
    const slab = this.#reserve(payload.length + HEADER_BYTES_MAX);
    const start = this.#at + headerSize(payload.length);
    slab.bytes.set(payload, start);
    this.#seal(slab, opcode, start, payload.length);
  }

  /** Writes the header before a payload that lies at `start`, and masks it. */
  #seal(slab: Slab, opcode: number, start: number, length: number): void {
    const bytes = slab.bytes;
    let at = this.#at;
    bytes[at] = FINAL | opcode;
    if (length < 126) {
      bytes[at + 1] = MASKED | length;
    } else if (length < 65_536) {
      bytes[at + 1] = MASKED | 126;
      bytes[at + 2] = length >> 8;
      bytes[at + 3] = length;
    } else {
      bytes[at + 1] = MASKED | 127;
      bytes.writeUInt32BE(Math.floor(length / 2 ** 32), at + 2);
      bytes.writeUInt32BE(length >>> 0, at + 6);
    }
    const mask = nextMask();
    at = start - 4;
    writeMask(bytes, at, mask);
    applyMask(bytes, slab.words, start, start + length, mask);
    this.#at = start + length;
    if (bytes.length > LARGE_BYTES) this.flush();
  }

  /** A slab with this much room from {@link FrameWriter.waitingBytes} on. */
  #reserve(bytes: number): Slab {
    const slab = this.#slab;
    if (slab !== undefined && this.#at + bytes <= slab.bytes.length) return slab;
    if (slab !== undefined && slab.bytes.length === SMALL_BYTES && this.#at + bytes <= LARGE_BYTES) {
      const larger = acquireSlab(true);
      slab.bytes.copy(larger.bytes, 0, 0, this.#at);
      releaseSlab(slab);
      this.#slab = larger;
      return larger;
    }
    this.flush();
    if (bytes > LARGE_BYTES) this.#slab = newSlab(bytes);
    else this.#slab = acquireSlab(this.#isLarge || bytes > SMALL_BYTES);
    return this.#slab;
  }
}

/** The header of a masked frame with a payload of `length` bytes. */
function headerSize(length: number): number {
  if (length < 126) return 6;
  return length < 65_536 ? 8 : HEADER_BYTES_MAX;
}
