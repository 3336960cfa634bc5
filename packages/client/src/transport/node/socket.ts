/** One WebSocket connection on `node:net` or `node:tls`. */

import { randomBytes } from "node:crypto";
import * as net from "node:net";
import { setImmediate } from "node:timers";
import * as tls from "node:tls";
import type { CloseInfo, Frame, OpenOptions, OutgoingFrame, Socket, SocketHandler } from "../../transport.js";
import { DEFLATE, type DeflateParameters, deflate, inflate } from "./deflate.js";
import { CONTROL_BYTES_MAX, FrameError, FrameReader, isCloseCode, OPCODE } from "./frames.js";
import { type Acceptance, parseResponse, writeRequest } from "./handshake.js";
import { releaseSlab, type Slab } from "./slabs.js";
import { flushThisTurn } from "./turn.js";
import { FrameWriter } from "./writer.js";

/** What a transport was made with, all defaults filled in. */
export interface Settings {
  tls: tls.ConnectionOptions;
  localAddress: string | undefined;
  /** With permessage-deflate, the shortest message that is compressed. */
  deflateBytesMin: number | undefined;
  openTimeoutMs: number;
  closeTimeoutMs: number;
}

/** What a connection of this transport has beside {@link Socket}. */
export interface NodeSocket extends Socket {
  /** Sends a ping of RFC 6455 with at most 125 bytes; it leaves in order with the messages. */
  ping(payload: Uint8Array): void;
  /** The subprotocol that the server chose, once the connection is open. */
  readonly protocol: string | undefined;
  /** `Server` of the answer, once the connection is open. */
  readonly server: string | undefined;
  /** The extension in use, once the connection is open: `permessage-deflate`, or empty. */
  readonly extensions: string;
  pause(): void;
  resume(): void;
}

/** What a handler may have beside {@link SocketHandler}. */
export interface NodeSocketHandler extends SocketHandler {
  /**
   * A pong of RFC 6455, in order with the messages: those before it have been handed over. The payload is valid only
   * during the call.
   */
  onPong?(payload: Uint8Array): void;
}

/** The size of the memory that every connection reads into: one read is handled before the next one begins. */
const READ_BYTES = 256 * 1024;
let sharedReadMemory: Buffer | undefined;

/** The bytes that may wait to be written; above them, only the last ping is answered (RFC 6455, section 5.5.3). */
const PONG_BACKLOG_BYTES = 65_536;

/** Messages of one read are handed over when they have this many bytes, inflated. */
const INFLATED_BYTES = 4 * 1024 * 1024;

type Phase = "connecting" | "open" | "closing" | "closed";

/** Opens a connection; `onClose` reports its errors. */
export function openSocket(options: OpenOptions, settings: Settings, handler: NodeSocketHandler): NodeSocket {
  return new Connection(options, settings, handler);
}

class Connection implements NodeSocket {
  readonly #handler: NodeSocketHandler;
  readonly #settings: Settings;
  readonly #options: OpenOptions;
  readonly #writer = new FrameWriter((bytes, slab) => this.#write(bytes, slab));
  readonly #reader: FrameReader;
  readonly #readMemory: Buffer;
  readonly #key = randomBytes(16).toString("base64");
  #stream: net.Socket | undefined;
  #phase: Phase = "connecting";
  /** The received part of the answer to the upgrade, in ISO 8859-1. */
  #head = "";
  #timer: NodeJS.Timeout | undefined;
  #end: CloseInfo | undefined;
  #hasSentClose = false;
  #isFinished = false;
  #isFlushScheduled = false;
  /** Bytes given to the stream and not yet written. */
  #unwrittenBytes = 0;
  /** Messages of the current read. */
  #frames: Frame[] = [];
  /** The payload of a ping that is answered when there is room. */
  #lastPing: Buffer | undefined;
  protocol: string | undefined;
  server: string | undefined;
  extensions = "";

  constructor(options: OpenOptions, settings: Settings, handler: NodeSocketHandler) {
    this.#options = options;
    this.#settings = settings;
    this.#handler = handler;
    this.#reader = new FrameReader(options.messageBytesMax, {
      message: (frame) => this.#frames.push(frame),
      ping: (payload) => this.#answerPing(payload),
      pong: (payload) => this.#takePong(payload),
      close: (code, reason) => this.#takeClose(code, reason),
    });
    sharedReadMemory ??= Buffer.allocUnsafeSlow(READ_BYTES);
    this.#readMemory = sharedReadMemory;
    try {
      this.#connect();
    } catch (error) {
      this.#fail(wordsOf(error));
      setImmediate(() => this.#finish());
    }
  }

  get #offersDeflate(): boolean {
    return this.#settings.deflateBytesMin !== undefined;
  }

  get bufferedBytes(): number {
    return this.#unwrittenBytes + this.#writer.waitingBytes;
  }

  send(frame: OutgoingFrame): void {
    if (this.#phase !== "open") return;
    this.#writer.message(frame);
    if (!this.#isFlushScheduled) this.#scheduleFlush();
  }

  ping(payload: Uint8Array): void {
    if (this.#phase === "open") this.#sendControl(OPCODE.ping, payload);
  }

  close(code: number, reason: string): void {
    if (!isCloseCode(code)) {
      throw new RangeError(`${code} is no close code; take 1000 to 1003, 1007 to 1014 or 3000 to 4999`);
    }
    if (this.#phase === "open") {
      this.#sendClose(closePayload(code, reason));
    } else if (this.#phase === "connecting") {
      this.#giveUp("closed before the connection was open");
    }
  }

  terminate(): void {
    if (this.#phase !== "closed") this.#giveUp("terminated");
  }

  pause(): void {
    if (this.#phase === "open") this.#stream?.pause();
  }

  resume(): void {
    if (this.#phase === "open") this.#stream?.resume();
  }

  /** Writes the frames that were collected in this turn; called by the end of the turn. */
  flush(): void {
    this.#isFlushScheduled = false;
    this.#writer.flush();
  }

  #connect(): void {
    const url = new URL(this.#options.url);
    const isSecure = url.protocol === "wss:";
    if (!isSecure && url.protocol !== "ws:") throw new TypeError(`${url.protocol}// is not ws:// or wss://`);
    if (url.username !== "" || url.password !== "") {
      throw new TypeError("a URL cannot hold a user name and a password; use the header Authorization");
    }
    const request = writeRequest({
      host: url.host,
      target: url.pathname + url.search,
      key: this.#key,
      protocols: this.#options.protocols,
      offersDeflate: this.#offersDeflate,
      headers: this.#options.headers,
    });
    const host = url.hostname.replace(/^\[(.*)\]$/, "$1");
    const options: net.NetConnectOpts = {
      host,
      port: url.port === "" ? (isSecure ? 443 : 80) : Number(url.port),
      noDelay: true,
      onread: { buffer: this.#readMemory, callback: (bytes) => this.#receive(bytes) },
      ...(this.#settings.localAddress === undefined ? {} : { localAddress: this.#settings.localAddress }),
    };
    const name = net.isIP(host) === 0 ? { servername: host } : {};
    const stream = isSecure
      ? tls.connect({ ...name, ...this.#settings.tls, ...options, ALPNProtocols: ["http/1.1"] })
      : net.connect(options);
    this.#stream = stream;
    stream.once(isSecure ? "secureConnect" : "connect", () => stream.write(request, "latin1"));
    stream.on("error", (error) => this.#fail(wordsOf(error)));
    stream.once("close", () => this.#finish());
    const { openTimeoutMs } = this.#settings;
    this.#startTimer(openTimeoutMs, `no answer to the opening handshake within ${openTimeoutMs / 1000} s`);
  }

  /** Handles the bytes of one read. */
  #receive(byteCount: number): boolean {
    const chunk = this.#readMemory.subarray(0, byteCount);
    if (this.#phase === "connecting") this.#receiveHead(chunk);
    else if (this.#phase !== "closed") this.#receiveFrames(chunk);
    return true;
  }

  #receiveHead(chunk: Buffer): void {
    this.#head += chunk.toString("latin1");
    const answer = parseResponse(
      this.#head,
      { key: this.#key, protocols: this.#options.protocols, offersDeflate: this.#offersDeflate },
      Date.now(),
    );
    if (answer === undefined) return;
    if (answer.kind === "accepted") {
      this.#open(answer);
      return;
    }
    const { status, retryAfterMs } = answer;
    this.#end ??= {
      code: 1006,
      reason: answer.reason,
      ...(status === undefined ? {} : { status }),
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    };
    this.#giveUp(answer.reason);
  }

  #open(answer: Acceptance): void {
    const rest = this.#head.slice(answer.headBytes);
    this.#head = "";
    this.protocol = answer.protocol;
    this.server = answer.server;
    if (answer.deflate !== undefined) {
      this.#compress(answer.deflate);
    }
    clearTimeout(this.#timer);
    this.#phase = "open";
    this.#handler.onOpen();
    if (rest !== "" && !this.#isClosed()) this.#receiveFrames(Buffer.from(rest, "latin1"));
  }

  #compress(agreed: DeflateParameters): void {
    this.extensions = DEFLATE;
    this.#writer.deflateWith((message) => deflate(message, agreed), this.#settings.deflateBytesMin ?? 0);
    let waitingBytes = 0;
    this.#reader.inflateWith((payload, bytesMax) => {
      // A read may hold many times its size, compressed.
      if (waitingBytes > INFLATED_BYTES) {
        waitingBytes = 0;
        this.#deliver();
      }
      const message = inflate(payload, bytesMax);
      waitingBytes += message.length;
      return message;
    });
  }

  #receiveFrames(chunk: Buffer): void {
    try {
      this.#reader.read(chunk);
    } catch (error) {
      if (!(error instanceof FrameError)) {
        // A handler threw in the middle of a read, the rest of which is lost.
        this.#giveUp("a handler of the connection threw an error");
        throw error;
      }
      this.#deliver();
      this.#refuse(error);
      return;
    }
    this.#deliver();
  }

  /** Hands the messages over that were read so far. */
  #deliver(): void {
    const frames = this.#frames;
    if (frames.length === 0) return;
    this.#frames = [];
    if (!this.#isClosed()) this.#handler.onMessages(frames);
  }

  #answerPing(payload: Uint8Array): void {
    if (this.#phase !== "open") return;
    if (this.bufferedBytes > PONG_BACKLOG_BYTES) this.#lastPing = Buffer.from(payload);
    else this.#sendControl(OPCODE.pong, payload);
  }

  #takePong(payload: Uint8Array): void {
    if (this.#handler.onPong === undefined) return;
    this.#deliver();
    if (!this.#isClosed()) this.#handler.onPong(payload);
  }

  #takeClose(code: number | undefined, reason: string): void {
    this.#deliver();
    if (this.#isClosed()) return;
    this.#end ??= { code: code ?? 1005, reason };
    this.#sendClose(code === undefined ? Buffer.alloc(0) : closePayload(code, ""));
    this.#phase = "closing";
  }

  /** Ends the connection for a broken rule. */
  #refuse(error: FrameError): void {
    if (this.#isClosed()) return;
    this.#end ??= { code: error.closeCode, reason: error.message, isRefusal: true };
    this.#sendClose(closePayload(error.closeCode, error.message));
    this.#phase = "closing";
    this.#stream?.end();
  }

  #sendControl(opcode: number, payload: Uint8Array): void {
    this.#writer.control(opcode, payload);
    if (!this.#isFlushScheduled) this.#scheduleFlush();
  }

  #sendClose(payload: Uint8Array): void {
    if (this.#hasSentClose) return;
    this.#hasSentClose = true;
    // Who stopped reading would not see the answer.
    this.resume();
    this.#writer.control(OPCODE.close, payload);
    this.#writer.flush();
    this.#phase = "closing";
    const { closeTimeoutMs } = this.#settings;
    this.#startTimer(closeTimeoutMs, `the server did not answer the close within ${closeTimeoutMs / 1000} s`);
  }

  #scheduleFlush(): void {
    this.#isFlushScheduled = true;
    flushThisTurn(this);
  }

  #write(bytes: Buffer, slab: Slab): void {
    this.#unwrittenBytes += bytes.length;
    this.#stream?.write(bytes, (error) => {
      this.#unwrittenBytes -= bytes.length;
      // After an error the system may still read the memory.
      if (error) return;
      releaseSlab(slab);
      if (this.#unwrittenBytes === 0 && this.#phase === "open") this.#drained();
    });
  }

  #drained(): void {
    const ping = this.#lastPing;
    if (ping !== undefined) {
      this.#lastPing = undefined;
      this.#sendControl(OPCODE.pong, ping);
    }
    this.#handler.onDrain();
  }

  #startTimer(afterMs: number, reason: string): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#giveUp(reason), afterMs);
  }

  #isClosed(): boolean {
    return this.#phase === "closed";
  }

  #fail(reason: string): void {
    this.#end ??= { code: 1006, reason };
  }

  /** Ends the connection without a word; `onClose` follows. */
  #giveUp(reason: string): void {
    this.#fail(reason);
    this.#phase = "closed";
    this.#stream?.destroy();
  }

  #finish(): void {
    if (this.#isFinished) return;
    this.#isFinished = true;
    clearTimeout(this.#timer);
    const wasConnecting = this.#phase === "connecting";
    this.#phase = "closed";
    const lost = wasConnecting
      ? "the server closed the connection in the opening handshake"
      : "the connection was lost without a close";
    this.#handler.onClose(this.#end ?? { code: 1006, reason: lost });
  }
}

/** The payload of a close frame; a reason that is too long is cut. */
function closePayload(code: number, reason: string): Buffer {
  const payload = Buffer.alloc(CONTROL_BYTES_MAX);
  payload.writeUInt16BE(code, 0);
  // Writes whole characters only.
  const written = payload.write(reason, 2, "utf8");
  return payload.subarray(0, 2 + written);
}

function wordsOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
