/** The transport on the browser's `WebSocket`. */

import type {
  CloseInfo,
  OpenOptions,
  OutgoingFrame,
  Socket,
  SocketHandler,
  Transport,
} from "../transport.js";

/** The browser drops nothing and reports no room: what waits is looked at so often while much waits. */
const DRAIN_POLL_MS = 20;
const DRAIN_BYTES = 256 * 1024;

/** A transport on a class with the interface of `WebSocket`; by default the one of the browser. */
export function browserTransport(WebSocketClass: typeof WebSocket = globalThis.WebSocket): Transport {
  return {
    canSendHeaders: false,
    canSendAnyCode: false,
    prefersBatches: true,
    open: (options, handler) => new BrowserSocket(WebSocketClass, options, handler),
  };
}

class BrowserSocket implements Socket {
  readonly #socket: WebSocket;
  #handler: SocketHandler | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(WebSocketClass: typeof WebSocket, options: OpenOptions, handler: SocketHandler) {
    this.#handler = handler;
    const socket = new WebSocketClass(options.url, options.protocols);
    socket.binaryType = "arraybuffer";
    socket.onopen = () => this.#handler?.onOpen();
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      const frame = typeof data === "string" ? data : new Uint8Array(data);
      if (frame.length > options.messageBytesMax) {
        this.close(4406, "1009: a message is larger than this client accepts");
        const reason = "the server sent a message that is larger than messageBytesMax";
        this.#over({ code: 1009, reason, isRefusal: true });
      } else this.#handler?.onMessages([frame]);
    };
    socket.onclose = ({ code, reason }) => this.#over({ code, reason });
    this.#socket = socket;
  }

  send(frame: OutgoingFrame): void {
    this.#socket.send(
      (typeof frame === "string" || frame instanceof Uint8Array ? frame : frame.data) as string,
    );
    if (this.#timer === undefined && this.bufferedBytes > DRAIN_BYTES) this.#poll();
  }

  get bufferedBytes(): number {
    return this.#socket.bufferedAmount;
  }

  close(code: number, reason: string): void {
    this.#socket.close(code, reason);
  }

  terminate(): void {
    this.#socket.close();
    this.#over({ code: 1006, reason: "" });
  }

  #poll(): void {
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.bufferedBytes > DRAIN_BYTES) return this.#poll();
      this.#handler?.onDrain();
    }, DRAIN_POLL_MS);
  }

  #over(info: CloseInfo): void {
    const handler = this.#handler;
    this.#handler = undefined;
    clearTimeout(this.#timer);
    // Whatever the browser still reports of this socket concerns nobody.
    const socket = this.#socket;
    socket.onopen = socket.onmessage = socket.onclose = null;
    handler?.onClose(info);
  }
}
