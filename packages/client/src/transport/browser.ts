/** The transport on the browser's `WebSocket`. */

import type { CloseInfo, OutgoingFrame, Socket, SocketHandler, Transport } from "../transport.js";

/** The browser drops nothing and reports no room: the waiting bytes are checked so often while there are many. */
const DRAIN_POLL_MS = 20;
const DRAIN_BYTES = 256 * 1024;

/** A transport on a class with the interface of `WebSocket`; by default the one of the browser. */
export function browserTransport(WebSocketClass: typeof WebSocket = globalThis.WebSocket): Transport {
  return {
    canSendHeaders: false,
    canSendAnyCode: false,
    prefersBatches: true,
    open: (options, handler) =>
      openSocket(new WebSocketClass(options.url, options.protocols), options.messageBytesMax, handler),
  };
}

function openSocket(socket: WebSocket, messageBytesMax: number, handler: SocketHandler): Socket {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = (info: CloseInfo) => {
    clearTimeout(timer);
    // Whatever the browser still reports of this socket concerns nobody.
    if (socket.onclose) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      handler.onClose(info);
    }
  };
  const isFull = () => socket.bufferedAmount > DRAIN_BYTES;
  const poll = () => {
    timer = setTimeout(() => {
      timer = undefined;
      if (isFull()) poll();
      else if (socket.onclose) handler.onDrain();
    }, DRAIN_POLL_MS);
  };
  socket.binaryType = "arraybuffer";
  socket.onopen = () => handler.onOpen();
  socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
    const frame = typeof data === "string" ? data : new Uint8Array(data);
    if (frame.length > messageBytesMax) {
      const reason = "a message is larger than messageBytesMax";
      socket.close(4406, `1009: ${reason}`);
      over({ code: 1009, reason, isRefusal: true });
    } else handler.onMessages([frame]);
  };
  socket.onclose = ({ code, reason }) => over({ code, reason });
  return {
    send(frame: OutgoingFrame): void {
      socket.send((typeof frame === "string" || frame instanceof Uint8Array ? frame : frame.data) as string);
      if (timer === undefined && isFull()) poll();
    },
    get bufferedBytes(): number {
      // workerd has no such value, and React Native has none until it has sent.
      return socket.bufferedAmount ?? 0;
    },
    close: (code, reason) => socket.close(code, reason),
    terminate(): void {
      socket.close();
      over({ code: 1006, reason: "" });
    },
  };
}
