/**
 * The pipeline with layers: signature, compression and encryption, in that order, and back. Layers may answer by
 * promises; messages keep their order all the same.
 */

import { DEVELOPMENT } from "#development";
import type { Message } from "../message.js";
import type { Frame } from "../transport.js";
import { unreadable } from "./envelope.js";
import type { Awaitable, EncodedPayload, Envelope, EnvelopeFields } from "./layers.js";
import {
  type Layers,
  type Pipeline,
  type PipelineFactory,
  Refused,
  readPlain,
  readText,
} from "./pipeline.js";

/** Messages that need no signature (PROTOCOL 11.3). */
const UNSIGNED = new Set(["ping", "PONG", "client_hello", "key_update"]);
/** Messages from this size on are compressed. */
const COMPRESS_BYTES_MIN = 1_024;

const encoder = new TextEncoder();

export const layered: PipelineFactory = (layers, send, fail) => new LayeredPipeline(layers, send, fail);

class LayeredPipeline implements Pipeline {
  readonly #layers: Layers;
  readonly #send: (frame: Frame) => void;
  readonly #fail: (error: unknown) => void;
  /** The last message that is still being encoded. */
  #tail: Promise<void> | undefined;
  /** The key exchange is done: everything is sealed from here on. */
  isSealed = false;

  constructor(layers: Layers, send: (frame: Frame) => void, fail: (error: unknown) => void) {
    this.#layers = layers;
    this.#send = send;
    this.#fail = fail;
  }

  /** Whether messages are still being encoded. */
  get isBusy(): boolean {
    return this.#tail !== undefined;
  }

  /** Encodes and sends a message, after those before it. `after` runs when it has been sealed. */
  write(fields: EnvelopeFields, payload: EncodedPayload | undefined, after?: () => unknown): void {
    const isPlain = !this.isSealed;
    const encode = () => this.#encode(fields, payload, isPlain);
    const tail = (this.#tail ?? Promise.resolve())
      .then(encode)
      .then(async (frame) => {
        this.#send(frame);
        await after?.();
      })
      .catch(this.#fail)
      .then(() => {
        if (this.#tail === tail) this.#tail = undefined;
      });
    this.#tail = tail;
  }

  async #encode(
    fields: EnvelopeFields,
    payload: EncodedPayload | undefined,
    isPlain: boolean,
  ): Promise<Frame> {
    const { format, compression, signing, exchange } = this.#layers;
    let signed = fields;
    if (signing && !UNSIGNED.has(fields.t)) {
      signed = { ...fields, sig: await signing.sign(fields, toBytes(payload ?? ""), Date.now()) };
    }
    let frame = format.envelope(signed, payload);
    if (compression && fields.t !== "client_hello" && frame.length >= COMPRESS_BYTES_MIN) {
      const bytes = toBytes(frame);
      const packed = await compression.deflate(bytes);
      if (packed.length + 2 < bytes.length) frame = withPrefix(0x43, packed);
    }
    return exchange && !isPlain ? exchange.seal(toBytes(frame)) : frame;
  }

  /** Reads a frame. Binary views are copied where the answer comes later. */
  read(frame: Frame): Awaitable<Message | Envelope> {
    const { exchange } = this.#layers;
    if (typeof frame === "string") {
      if (this.isSealed && exchange?.version === 2)
        throw new Refused("a plain message after the key exchange");
      return readText(frame);
    }
    if (frame[0] === 0x45 && frame[1] === 0x3a) {
      if (!exchange || !this.isSealed)
        throw unreadable(DEVELOPMENT && "it is encrypted, and no key is agreed");
      return exchange.open(new Uint8Array(frame.subarray(2))).then(
        (bytes) => this.#readInner(bytes),
        (cause) => {
          if (exchange.version === 2) throw new Refused("a message that cannot be opened");
          throw unreadable(DEVELOPMENT && "it cannot be opened", cause);
        },
      );
    }
    if (this.isSealed && exchange?.version === 2) throw new Refused("a plain message after the key exchange");
    return this.#readInner(frame);
  }

  #readInner(bytes: Uint8Array): Awaitable<Message | Envelope> {
    const { compression, messageBytesMax } = this.#layers;
    const [first, second] = bytes;
    const isPrefixed = second === 0x3a && first === 0x43;
    if (!compression || (!isPrefixed && first !== 0x78)) return readPlain(bytes, this.#layers.format);
    const packed = new Uint8Array(bytes.subarray(isPrefixed ? 2 : 0));
    const inflated = Promise.resolve(compression.inflate(packed, messageBytesMax));
    return inflated.then((inner) => readPlain(inner, this.#layers.format));
  }
}

function toBytes(frame: Frame): Uint8Array {
  return typeof frame === "string" ? encoder.encode(frame) : frame;
}

function withPrefix(letter: number, bytes: Uint8Array): Uint8Array {
  const framed = new Uint8Array(bytes.length + 2);
  framed.set([letter, 0x3a]);
  framed.set(bytes, 2);
  return framed;
}
