/** The shared connection: opens it, sends the hello, and moves messages through the layers. */

import { helloProducer } from "../core/attempt.js";
import { isObject, payloadOf, typeOf, uint } from "../core/envelope.js";
import { clientHello } from "../core/hello.js";
import { json } from "../core/json.js";
import type { EncodedPayload, Envelope, EnvelopeFields, Format, KeyExchange } from "../core/layers.js";
import { copy, direct, type Pipeline } from "../core/pipeline.js";
import { FIELDS_BYTES_MAX, isTooLarge, type LayerSizes, layerSizesOf } from "../core/size.js";
import { Message } from "../message.js";
import type { ResolvedOptions } from "../options.js";
import type { CloseInfo, Frame, OpenOptions, Socket, Transport } from "../transport.js";

export interface UpstreamHost {
  /** The server has sent its hello: these are the payloads of `server_ready` and `server_hello`. */
  opened(ready: Envelope, hello: Envelope): void;
  /** A message; with `frame`, if that holds it as it is. */
  received(message: Message | Envelope, frame: Frame | undefined): void;
  /** There is room again. */
  drained(): void;
  closed(info: CloseInfo): void;
}

export class Upstream {
  readonly format: Format;
  readonly #host: UpstreamHost;
  readonly #options: ResolvedOptions;
  readonly #producer: string;
  readonly #transport: Transport;
  #socket: Socket | undefined;
  #pipeline: Pipeline | undefined;
  #exchange: KeyExchange | undefined;
  #isOpen = false;
  #isOver = false;
  #sequence = 0;
  /** The largest message that the server accepts; 0 if the server has not announced it. */
  #bytesMax = 0;
  readonly #layerSizes: LayerSizes;
  #ready: Envelope | undefined;

  constructor(
    transport: Transport,
    options: ResolvedOptions,
    open: OpenOptions,
    producer: string,
    host: UpstreamHost,
  ) {
    this.format = options.format ?? json;
    this.#transport = transport;
    this.#options = options;
    this.#layerSizes = layerSizesOf(options);
    this.#producer = producer;
    this.#host = host;
    this.#open(open).catch((error: unknown) => this.#over({ code: 1006, reason: String(error) }));
  }

  get bufferedBytes(): number {
    return this.#socket?.bufferedBytes ?? 0;
  }

  async #open(open: OpenOptions): Promise<void> {
    const { compression, encryption, signing, messageBytesMax } = this.#options;
    const exchange = await encryption?.begin();
    if (this.#isOver) return;
    this.#exchange = exchange;
    // It has a query already.
    const url = open.url + (compression ? "&compression=true" : "");
    const makePipeline = (compression ?? signing ?? encryption)?.pipeline ?? direct;
    this.#pipeline = makePipeline(
      { format: this.format, compression, signing, exchange, messageBytesMax },
      {
        isOver: () => this.#isOver,
        send: (frame) => this.#isOver || this.#socket?.send(frame),
        receive: (message, frame) => this.#receive(message, frame),
        fail: (error) => this.#options.log?.("warn", "a message could not be handled", error),
        refuse: (error) => this.#refuse(error),
        notify: (t, payload, after) => void this.send({ c: "WSE", t }, payload, true, after),
        hold: () => this.#socket?.pause?.(),
        proceed: (hasRoom) => hasRoom && this.#socket?.resume?.(),
      },
    );
    this.#socket = this.#transport.open(
      { ...open, url },
      {
        onOpen: () => undefined,
        onMessages: (frames) => this.#pipeline!.read(frames),
        onDrain: () => this.#host.drained(),
        onClose: (info) => this.#over(info),
      },
    );
  }

  /** Encodes a payload that was read before. */
  encode(payload: unknown): EncodedPayload | undefined {
    if (payload === undefined) return undefined;
    return this.format.query ? this.format.payload(payload, "") : JSON.stringify(payload);
  }

  /** Sends a message. Those of the protocol are numbered. False if it is larger than the server accepts. */
  send(fields: EnvelopeFields, payload: unknown, isSystem: boolean, after?: () => unknown): boolean {
    const pipeline = this.#pipeline;
    if (this.#isOver || !pipeline) return true;
    const all = isSystem ? { ...fields, v: 1, seq: ++this.#sequence } : fields;
    const encoded = this.encode(payload);
    const isSmall = (encoded?.length ?? 0) * 3 + FIELDS_BYTES_MAX <= this.#bytesMax;
    if (!isSmall && isTooLarge(this.#bytesMax, this.format, all, encoded, this.#layerSizes)) return false;
    pipeline.write(all, encoded, after);
    return true;
  }

  close(code: number, reason: string): void {
    if (this.#socket) this.#socket.close(code, reason);
    else this.#over({ code, reason });
  }

  terminate(): void {
    this.#socket?.terminate();
    this.#over({ code: 1006, reason: "" });
  }

  #over(info: CloseInfo): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#host.closed(info);
  }

  #receive(message: Message | Envelope, frame: Frame | undefined): Promise<unknown> | undefined {
    const payload = message instanceof Message ? undefined : payloadOf(message);
    const p = isObject(payload) ? payload : {};
    switch (message instanceof Message ? "" : typeOf(message)) {
      case "server_ready":
        if (this.#ready) return undefined;
        this.#ready = p;
        this.#hello();
        return undefined;
      case "server_hello":
        return this.#opened(p);
      case "key_update":
        return undefined;
      default:
        // Other tabs read it later.
        this.#host.received(message, frame && copy(frame));
        return undefined;
    }
  }

  #hello(): void {
    const producer = helloProducer(this.#producer);
    const hello = clientHello(this.#options, this.#transport.prefersBatches, this.#exchange, producer);
    this.send({ c: "WSE", t: "client_hello" }, hello, true);
  }

  #opened(hello: Envelope): Promise<unknown> | undefined {
    const ready = this.#ready;
    if (!ready || this.#isOpen) return undefined;
    this.#isOpen = true;
    if (isObject(hello.limits)) this.#bytesMax = uint(hello.limits.max_message_size);
    const exchange = this.#exchange;
    if (!exchange) return void this.#host.opened(ready, hello);
    const details = isObject(ready.details) ? ready.details : {};
    return exchange.accept(hello, String(details.connection_id)).then(() => {
      exchange.isSealed = true;
      this.#host.opened(ready, hello);
    });
  }

  /** Ends the connection with 1008, or with what stands for it. */
  #refuse(error: unknown): void {
    if (this.#isOver) return;
    const words = String((error as Error).message).slice(0, 60);
    const [code, reason] = this.#transport.canSendAnyCode ? [1008, words] : [4406, `1008: ${words}`];
    this.#socket?.close(code, reason);
    this.#over({ code, reason, isRefusal: true });
  }
}
