/**
 * permessage-deflate (RFC 7692, PROTOCOL 9.2), the client's side. Neither side may refer to earlier messages: each message is
 * handled by one call of zlib, and a connection keeps no window.
 */

import { constants, deflateRawSync, inflateRawSync } from "node:zlib";
import { FrameError } from "./frames.js";

/** The name of the extension. */
export const DEFLATE = "permessage-deflate";

/** What a request offers. */
export const DEFLATE_OFFER = `${DEFLATE}; server_no_context_takeover; client_no_context_takeover; client_max_window_bits`;

/** What client and server have agreed on. */
export interface DeflateParameters {
  server_no_context_takeover: boolean;
  client_no_context_takeover: boolean;
  server_max_window_bits: number;
  client_max_window_bits: number;
}

const WINDOW_BITS_MAX = 15;
/** zlib writes no raw stream with a window of 8 bits; with 9 it refers at most 250 bytes back, which fits into 8. */
const WRITTEN_WINDOW_BITS_MIN = 9;
/** The end of a message that does not travel. */
const TAIL = Buffer.from([0, 0, 0xff, 0xff]);
/** The most streams that a message may have: a last block ends a stream (RFC 7692, section 7.2.3.4). */
const STREAMS_MAX = 64;
/** The least and the most memory that zlib reserves at a time. A short message keeps what was reserved for it. */
const CHUNK_BYTES_MIN = 256;
const CHUNK_BYTES_MAX = 16 * 1024;

/** Reads the answer to {@link DEFLATE_OFFER}; `undefined` if it is no valid one. */
export function readDeflateAnswer(answer: string): DeflateParameters | undefined {
  const [name, ...parts] = answer.split(";").map((part) => part.trim());
  if (name?.toLowerCase() !== DEFLATE) return undefined;
  const agreed: DeflateParameters = {
    server_no_context_takeover: false,
    client_no_context_takeover: true,
    server_max_window_bits: WINDOW_BITS_MAX,
    client_max_window_bits: WINDOW_BITS_MAX,
  };
  const seen = new Set<string>();
  for (const part of parts) {
    const [, parameter = "", quoted, bare] =
      /^([a-z_]+)(?:\s*=\s*(?:"([0-9]+)"|([0-9]+)))?$/.exec(part) ?? [];
    const value = quoted ?? bare;
    if (seen.has(parameter)) return undefined;
    seen.add(parameter);
    switch (parameter) {
      case "server_no_context_takeover":
      case "client_no_context_takeover":
        if (value !== undefined) return undefined;
        agreed[parameter] = true;
        break;
      case "server_max_window_bits":
      case "client_max_window_bits":
        if (!/^([89]|1[0-5])$/.test(value ?? "")) return undefined;
        agreed[parameter] = Number(value);
        break;
      default:
        return undefined;
    }
  }
  return agreed.server_no_context_takeover ? agreed : undefined;
}

/** The payload of a frame with the first reserved bit; a payload that is not shorter should travel as it is. */
export function deflate(message: Uint8Array, agreed: DeflateParameters): Uint8Array {
  const deflated = deflateRawSync(message, {
    finishFlush: constants.Z_SYNC_FLUSH,
    windowBits: Math.max(agreed.client_max_window_bits, WRITTEN_WINDOW_BITS_MIN),
  });
  return deflated.subarray(0, deflated.length - TAIL.length);
}

/**
 * The message behind a payload.
 *
 * @throws {FrameError} if it has more than `bytesMax` bytes, or is no deflated message.
 */
export function inflate(payload: Uint8Array, bytesMax: number): Buffer {
  const chunkSize = Math.max(CHUNK_BYTES_MIN, Math.min(CHUNK_BYTES_MAX, 4 * payload.length));
  const parts: Buffer[] = [];
  let bytes = 0;
  for (let rest = Buffer.concat([payload, TAIL]); rest.length > 0; ) {
    if (parts.length === STREAMS_MAX) throw new FrameError("invalid_deflate");
    const { buffer, engine } = inflateStream(rest, chunkSize, bytesMax - bytes);
    parts.push(buffer);
    bytes += buffer.length;
    if (bytes > bytesMax) throw new FrameError("message_too_large");
    rest = rest.subarray(engine.bytesWritten);
  }
  return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
}

/** The result of zlib with `info`: `bytesWritten` are the bytes that it has read. */
interface Inflated {
  buffer: Buffer;
  engine: { bytesWritten: number };
}

/** Inflates to the end of a stream, or of `payload`. */
function inflateStream(payload: Buffer, chunkSize: number, bytesMax: number): Inflated {
  const options = {
    finishFlush: constants.Z_SYNC_FLUSH,
    chunkSize,
    maxOutputLength: Math.max(bytesMax, 1),
    info: true,
  };
  try {
    return inflateRawSync(payload, options) as unknown as Inflated;
  } catch (error) {
    const isLong = (error as { code?: string }).code === "ERR_BUFFER_TOO_LARGE";
    throw new FrameError(isLong ? "message_too_large" : "invalid_deflate");
  }
}
