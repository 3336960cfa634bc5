/** A transport in memory, for tests of applications: the test plays the server. */

import type {
  CloseInfo,
  Frame,
  OpenOptions,
  OutgoingFrame,
  Socket,
  SocketHandler,
  Transport,
} from "../transport.js";

/** One connection of a client, seen from the server's side. */
export class FakeConnection {
  readonly options: OpenOptions;
  /** Every message that the client has sent, decoded if it is JSON. */
  readonly sent: unknown[] = [];
  /** How the client closed, if it did. */
  closed: { code: number; reason: string } | undefined;
  /** Called for each message of the client. */
  onMessage: ((message: never) => void) | undefined;
  #handler: SocketHandler | undefined;

  /** @internal */
  constructor(options: OpenOptions, handler: SocketHandler) {
    this.options = options;
    this.#handler = handler;
  }

  /** Accepts the upgrade and sends `server_ready`, and answers `client_hello` with `server_hello`. */
  accept(hello: object = {}): void {
    const answer = this.onMessage;
    this.onMessage = (message: { t?: string }) => {
      if (message.t === "client_hello") {
        this.onMessage = answer;
        this.send({ c: "WSE", t: "server_hello", p: { features: {}, ...hello } });
      } else (answer as ((message: unknown) => void) | undefined)?.(message);
    };
    this.#handler?.onOpen();
    this.send({ c: "WSE", t: "server_ready", p: { details: { connection_id: "fake", version: "fake/1" } } });
  }

  /** Sends a message: an object as JSON, a text or bytes as they are. */
  send(message: object | Frame): void {
    const isFrame = typeof message === "string" || message instanceof Uint8Array;
    this.#handler?.onMessages([isFrame ? message : JSON.stringify(message)]);
  }

  /** Closes with a code, as a server does; 1006 for a lost connection. */
  close(code = 1000, reason = "", more: Partial<CloseInfo> = {}): void {
    const handler = this.#handler;
    this.#handler = undefined;
    handler?.onClose({ code, reason, ...more });
  }

  /** @internal */
  receive(frame: OutgoingFrame): void {
    const data = typeof frame === "string" || frame instanceof Uint8Array ? frame : frame.data;
    const message: unknown = typeof data === "string" ? JSON.parse(data) : data;
    this.sent.push(message);
    queueMicrotask(() => (this.onMessage as ((message: unknown) => void) | undefined)?.(message));
  }
}

/** A transport whose connections a test serves. */
export class FakeTransport implements Transport {
  readonly canSendHeaders = true;
  readonly canSendAnyCode = true;
  readonly prefersBatches = false;
  /** All connections, in order. */
  readonly connections: FakeConnection[] = [];
  /** Called for each new connection; by default it is accepted. */
  onConnect: (connection: FakeConnection) => void = (connection) => connection.accept();

  open(options: OpenOptions, handler: SocketHandler): Socket {
    const connection = new FakeConnection(options, handler);
    this.connections.push(connection);
    queueMicrotask(() => this.onConnect(connection));
    return {
      bufferedBytes: 0,
      send: (frame) => connection.receive(frame),
      close: (code, reason) => {
        connection.closed = { code, reason };
        queueMicrotask(() => connection.close(code, reason));
      },
      terminate: () => connection.close(1006),
    };
  }
}
