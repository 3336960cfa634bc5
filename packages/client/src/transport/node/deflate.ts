/**
 * permessage-deflate (RFC 7692, PROTOCOL 9.2), the client's side. Each message is handled at once; what a side remembers of
 * the messages before it is the dictionary of the next one.
 */

import { constants, deflateRawSync, inflateRawSync } from "node:zlib";
import { FrameError } from "./frames.js";

/** The name of the extension. */
export const DEFLATE = "permessage-deflate";

/** What a request offers. */
export const DEFLATE_OFFER = `${DEFLATE}; client_max_window_bits`;

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
const NOTHING = Buffer.alloc(0);

/** Reads the answer to {@link DEFLATE_OFFER}; `undefined` if it is no valid one. */
export function readDeflateAnswer(answer: string): DeflateParameters | undefined {
  const [name, ...parts] = answer.split(";").map((part) => part.trim());
  if (name?.toLowerCase() !== DEFLATE) return undefined;
  const agreed: DeflateParameters = {
    server_no_context_takeover: false,
    client_no_context_takeover: false,
    server_max_window_bits: WINDOW_BITS_MAX,
    client_max_window_bits: WINDOW_BITS_MAX,
  };
  const seen = new Set<string>();
  for (const part of parts) {
    const [, parameter = "", value] = /^([a-z_]+)(?:\s*=\s*"?([0-9]+)"?)?$/.exec(part) ?? [];
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
  return agreed;
}

/** The last bytes of one direction. */
class Window {
  readonly #bytesMax: number;
  #bytes: Buffer = NOTHING;

  constructor(bits: number, isForgotten: boolean) {
    this.#bytesMax = isForgotten ? 0 : 2 ** bits;
  }

  /** As an option of zlib. */
  get dictionary(): { dictionary?: Buffer } {
    return this.#bytes.length === 0 ? {} : { dictionary: this.#bytes };
  }

  remember(message: Uint8Array): void {
    if (this.#bytesMax === 0) return;
    const before = message.length >= this.#bytesMax ? NOTHING : this.#bytes;
    this.#bytes = Buffer.concat([before, message]).subarray(-this.#bytesMax);
  }
}

/** Compresses the messages of one connection. */
export class Deflater {
  readonly #window: Window;
  readonly #windowBits: number;

  constructor(agreed: DeflateParameters) {
    this.#windowBits = Math.max(agreed.client_max_window_bits, WRITTEN_WINDOW_BITS_MIN);
    this.#window = new Window(agreed.client_max_window_bits, agreed.client_no_context_takeover);
  }

  /** The payload of a frame with the first reserved bit. */
  deflate(message: Uint8Array): Uint8Array {
    const deflated = deflateRawSync(message, {
      finishFlush: constants.Z_SYNC_FLUSH,
      windowBits: this.#windowBits,
      ...this.#window.dictionary,
    });
    this.#window.remember(message);
    return deflated.subarray(0, deflated.length - TAIL.length);
  }
}

/** Inflates the messages of one connection. */
export class Inflater {
  readonly #window: Window;

  constructor(agreed: DeflateParameters) {
    this.#window = new Window(agreed.server_max_window_bits, agreed.server_no_context_takeover);
  }

  /**
   * The message behind a payload.
   *
   * @throws {FrameError} if it has more than `bytesMax` bytes, or is no deflated message.
   */
  inflate(payload: Uint8Array, bytesMax: number): Buffer {
    let message: Buffer;
    try {
      message = inflateRawSync(Buffer.concat([payload, TAIL]), {
        finishFlush: constants.Z_SYNC_FLUSH,
        maxOutputLength: Math.max(bytesMax, 1),
        ...this.#window.dictionary,
      });
    } catch (error) {
      const isLong = (error as { code?: string }).code === "ERR_BUFFER_TOO_LARGE";
      throw new FrameError(isLong ? "message_too_large" : "invalid_deflate");
    }
    this.#window.remember(message);
    return message;
  }
}
