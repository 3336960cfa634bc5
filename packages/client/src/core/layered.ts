/**
 * The pipeline with layers: signature, compression and encryption, in that order, and back. Layers may answer by
 * promises; messages keep their order all the same.
 */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import { Message } from "../message.js";
import type { Frame } from "../transport.js";
import { utf8 } from "./bytes.js";
import { isObject, payloadOf, typeOf, unreadable } from "./envelope.js";
import type { Awaitable, EncodedPayload, Envelope, EnvelopeFields } from "./layers.js";
import {
  copy,
  type Layers,
  type Pipeline,
  type PipelineFactory,
  readPlain,
  readText,
  type Wire,
} from "./pipeline.js";

/** Messages that need no signature (PROTOCOL 11.3). */
const UNSIGNED = new Set(["ping", "PONG", "client_hello", "key_update"]);
/** Messages from this size on are compressed. */
const COMPRESS_BYTES_MIN = 1_024;

/** Frames that wait while a layer is at work; past it the socket is not read, where that is possible. */
const INBOUND_MAX = 1_024;

export const layered: PipelineFactory = (layers, wire) => new LayeredPipeline(layers, wire);

/** What the client refuses so that it ends the connection. */
class Refused extends TidewireError {
  constructor(what: string) {
    super("PROTOCOL_ERROR", `the server sent ${what}`, { fault: "server" });
  }
}

class LayeredPipeline implements Pipeline {
  readonly #layers: Layers;
  readonly #wire: Wire;
  /** The last message that is still being encoded. */
  #tail: Promise<void> | undefined;
  /** Frames behind the one that a layer works on; those before `#next` are read. */
  #inbound: Frame[] = [];
  #next = 0;
  /** A layer works on a frame. */
  #isReading = false;

  constructor(layers: Layers, wire: Wire) {
    this.#layers = layers;
    this.#wire = wire;
  }

  /** The key exchange is done: everything is sealed from here on. */
  get #isSealed(): boolean {
    return this.#layers.exchange?.isSealed ?? false;
  }

  /** Whether messages are still being encoded. */
  get isBusy(): boolean {
    return this.#tail !== undefined;
  }

  /** Encodes and sends a message, after those before it. `after` runs when it has been sealed. */
  write(fields: EnvelopeFields, payload: EncodedPayload | undefined, after?: () => unknown): void {
    const isPlain = !this.#isSealed;
    const { exchange } = this.#layers;
    const encode = () => this.#encode(fields, payload, isPlain);
    const tail = (this.#tail ?? Promise.resolve())
      .then(encode)
      .then(async (frame) => {
        this.#wire.send(frame);
        await after?.();
      })
      .catch((error: unknown) => this.#failed(error))
      .then(() => {
        if (this.#tail === tail) this.#tail = undefined;
      });
    this.#tail = tail;
    if (exchange?.wantsKeyUpdate && fields.t !== "key_update") this.#updateSealingKey();
  }

  #updateSealingKey(): void {
    const { exchange } = this.#layers;
    if (exchange?.version !== 2) return;
    this.#wire.notify("key_update", { request: false }, () => exchange.updateSealingKey());
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

  read(frames: readonly Frame[]): void {
    for (const frame of frames) {
      if (this.#isReading || this.#inbound.length) this.#inbound.push(copy(frame));
      else this.#readOne(frame);
    }
    if (this.#isFull) this.#wire.hold();
  }

  get #isFull(): boolean {
    return this.#inbound.length - this.#next > INBOUND_MAX;
  }

  #readOne(frame: Frame): void {
    if (this.#wire.isOver()) return;
    let waits: Promise<unknown> | undefined;
    try {
      waits = this.#handle(frame);
    } catch (error) {
      this.#failed(error);
    }
    if (!waits) return;
    this.#isReading = true;
    void waits.catch((error: unknown) => this.#failed(error)).then(() => this.#readOn());
  }

  /** Reads frames that wait, until a layer works on one of them. */
  #readOn(): void {
    const isFull = this.#isFull;
    // What the socket delivers during the call waits behind the others.
    this.#wire.proceed(!isFull);
    this.#isReading = false;
    while (!this.#isReading && this.#next < this.#inbound.length) this.#readOne(this.#inbound[this.#next++]!);
    // Those that are read are removed when they are half of all, because each removal moves the rest.
    if (this.#next < this.#inbound.length / 2) return;
    this.#inbound.splice(0, this.#next);
    this.#next = 0;
    if (isFull && !this.#isReading) this.#wire.proceed(true);
  }

  #handle(frame: Frame): Promise<unknown> | undefined {
    const read = this.#open(frame);
    return read instanceof Promise
      ? read.then((message) => this.#receive(message, undefined))
      : this.#receive(read, frame);
  }

  #receive(message: Message | Envelope, frame: Frame | undefined): Promise<unknown> | undefined {
    if (this.#wire.isOver()) return undefined;
    const waits = this.#wire.receive(message, frame);
    if (message instanceof Message || typeOf(message) !== "key_update") return waits;
    const { exchange } = this.#layers;
    // Version 1 has no such message (PROTOCOL 10.5).
    if (exchange?.version !== 2) return waits;
    const payload = payloadOf(message);
    return exchange.updateOpeningKey().then(() => {
      if (isObject(payload) && payload.request === true) this.#updateSealingKey();
    });
  }

  /** A failure before the key agreement ends the connection, as a refused message does. */
  #failed(error: unknown): void {
    const isHandshake = this.#layers.exchange && !this.#isSealed;
    if (error instanceof Refused || isHandshake) this.#wire.refuse(error);
    else this.#wire.fail(error);
  }

  #open(frame: Frame): Awaitable<Message | Envelope> {
    const { exchange } = this.#layers;
    const isSealed = this.#isSealed && exchange;
    if (typeof frame !== "string" && frame[0] === 0x45 && frame[1] === 0x3a) {
      if (!isSealed) throw unreadable(DEVELOPMENT && "it is encrypted, and no key is agreed");
      return isSealed.open(new Uint8Array(frame.subarray(2))).then(
        (bytes) => this.#readInner(bytes),
        (cause) => {
          if (isSealed.version === 2) throw new Refused("a message that cannot be opened");
          throw unreadable(DEVELOPMENT && "it cannot be opened", cause);
        },
      );
    }
    if (isSealed && isSealed.version === 2) throw new Refused("a plain message after the key exchange");
    return typeof frame === "string" ? readText(frame) : this.#readInner(frame);
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
  return typeof frame === "string" ? utf8(frame) : frame;
}

function withPrefix(letter: number, bytes: Uint8Array): Uint8Array {
  const framed = new Uint8Array(bytes.length + 2);
  framed.set([letter, 0x3a]);
  framed.set(bytes, 2);
  return framed;
}
