/** The vectors of `protocol/vectors`, as far as the Node transport's tests use them. */

export { vectors } from "../vectors.js";

export interface FrameCase {
  name: string;
  reader: "server" | "client";
  bytes: string;
  events: Record<string, unknown>[];
  error?: { name: string; close_code: number };
  message_bytes_max?: number;
  deflate?: boolean;
  frame?: { opcode: "text" | "binary" | "close" | "ping" | "pong"; payload: string; mask?: string };
  fragments?: unknown;
}

export interface ResponseCase {
  name: string;
  key: string;
  protocols: string[];
  offers_deflate: boolean;
  response: string;
  head_bytes_max?: number;
  accepted?: { head_bytes: number; protocol: string | null; server: string | null; deflate?: true };
  refused?: { error: string; status?: number; retry_after?: number };
  incomplete?: true;
}

export interface RequestCase {
  name: string;
  request: string;
  accepted?: { path: string; query: string; host: string; accept: string; protocols?: string[] };
}

/** A frame, taken apart as far as its bytes go. */
export interface RawFrame {
  first: number;
  mask: Buffer | undefined;
  /** The header without the bit for the mask and without the mask. */
  header: Buffer;
  /** Without the mask. */
  payload: Buffer;
}

/** Takes the frames of a byte stream apart; the last one may be cut. */
export function rawFrames(bytes: Buffer): RawFrame[] {
  const frames: RawFrame[] = [];
  let at = 0;
  while (at < bytes.length) {
    const second = bytes[at + 1] ?? 0;
    const short = second & 0x7f;
    const headerBytes = short === 127 ? 10 : short === 126 ? 4 : 2;
    const header = Buffer.from(bytes.subarray(at, at + headerBytes));
    if (header.length > 1) header[1] = short;
    const length =
      short === 127
        ? bytes.length > at + 10
          ? Number(bytes.readBigUInt64BE(at + 2))
          : 0
        : short === 126
          ? bytes.length > at + 4
            ? bytes.readUInt16BE(at + 2)
            : 0
          : short;
    at += headerBytes;
    let mask: Buffer | undefined;
    if ((second & 0x80) !== 0) {
      mask = bytes.subarray(at, at + 4);
      at += 4;
    }
    const payload = Buffer.from(bytes.subarray(at, at + length));
    if (mask !== undefined) for (let i = 0; i < payload.length; i += 1) payload[i]! ^= mask[i & 3]!;
    at += length;
    frames.push({ first: header[0]!, mask, header, payload });
  }
  return frames;
}

/** The same frames as a server sends them. */
export function withoutMasks(bytes: Buffer): Buffer {
  return Buffer.concat(rawFrames(bytes).flatMap((frame) => [frame.header, frame.payload]));
}
