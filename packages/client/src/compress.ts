/**
 * Compression of messages by zlib (PROTOCOL 9.1), by the functions that the browser or Node has.
 */

import { DEVELOPMENT } from "#development";
import { type Bytes, concat } from "./core/bytes.js";
import { layered } from "./core/layered.js";
import type { Compression } from "./core/layers.js";
import { TidewireError } from "./errors.js";

/**
 * Compression as a layer of a connection. In Node it answers at once, by `node:zlib`; elsewhere by
 * the streams of the platform. Throws `NOT_SUPPORTED` where there are none.
 */
export function compress(): Compression {
  const zlib = globalThis.process?.getBuiltinModule?.("node:zlib");
  return zlib ? byZlib(zlib) : byStreams();
}

type Zlib = typeof import("node:zlib");

function byZlib(zlib: Zlib): Compression {
  return {
    pipeline: layered,
    deflate: (bytes) => zlib.deflateSync(bytes),
    inflate(bytes, bytesMax) {
      // With `info` it returns how many bytes it has read, beside the result.
      const options = { maxOutputLength: Math.max(bytesMax, 1), info: true };
      let inflated: { buffer: Bytes; engine: { bytesWritten: number } };
      try {
        inflated = zlib.inflateSync(bytes, options) as unknown as typeof inflated;
      } catch (cause) {
        throw (cause as { code?: string }).code === "ERR_BUFFER_TOO_LARGE"
          ? tooLarge(bytesMax)
          : broken(cause);
      }
      if (inflated.engine.bytesWritten !== bytes.length) throw broken();
      return inflated.buffer;
    },
  };
}

/** @internal Exported for tests in Node. */
export function byStreams(): Compression {
  if (typeof DecompressionStream === "undefined" || typeof CompressionStream === "undefined") {
    throw new TidewireError(
      "NOT_SUPPORTED",
      DEVELOPMENT && "compression needs CompressionStream, which this platform lacks",
    );
  }
  return {
    pipeline: layered,
    deflate: (bytes) => pump(new CompressionStream("deflate"), bytes, Number.POSITIVE_INFINITY),
    async inflate(bytes, bytesMax) {
      const end = [...bytes.subarray(-4)].reduce((value, byte) => value * 256 + byte, 0);
      const inflated = await pump(new DecompressionStream("deflate"), bytes, bytesMax);
      // Some platforms ignore bytes behind the stream. Its last four are the checksum of the output.
      if (adler32(inflated) !== end) throw broken();
      return inflated;
    },
  };
}

async function pump(stream: CompressionStream, bytes: Uint8Array, bytesMax: number): Promise<Bytes> {
  const writer = stream.writable.getWriter();
  // An error of the stream arrives at the reader as well.
  writer.write(bytes.slice()).catch(() => {});
  writer.close().catch(() => {});
  const reader = stream.readable.getReader();
  const parts: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const { value } = await reader.read().catch((cause) => {
      throw broken(cause);
    });
    if (!value) return concat(...parts);
    length += value.length;
    parts.push(value);
    if (length > bytesMax) {
      reader.cancel().catch(() => {});
      throw tooLarge(bytesMax);
    }
  }
}

function adler32(bytes: Uint8Array): number {
  let a = 1;
  let b = 0;
  for (let at = 0; at < bytes.length; ) {
    // The sums of 3,800 bytes stay below 2^32.
    for (const end = Math.min(at + 3800, bytes.length); at < end; at += 1) {
      a += bytes[at]!;
      b += a;
    }
    a %= 65_521;
    b %= 65_521;
  }
  return b * 65_536 + a;
}

function tooLarge(bytesMax: number): TidewireError {
  const words = DEVELOPMENT && `a message of the server inflates to more than ${bytesMax} bytes`;
  return new TidewireError("MESSAGE_TOO_LARGE", words, { fault: "server" });
}

function broken(cause?: unknown): TidewireError {
  const words = DEVELOPMENT && "a compressed message of the server is no whole zlib stream";
  return new TidewireError("PROTOCOL_ERROR", words, { fault: "server", cause });
}
