/** A WebSocket server for tests that does what a test tells it, right or wrong, byte by byte. */

import { readFileSync } from "node:fs";
import * as net from "node:net";
import * as tls from "node:tls";
import { acceptValue } from "../../src/transport/node/handshake.js";
import { type RawFrame, rawFrames } from "./vectors.js";

/** The certificate of {@link startServer} with TLS, which signs itself. */
export const CERTIFICATE = readFileSync(new URL("./fixtures/localhost.pem", import.meta.url), "utf8");
const KEY = readFileSync(new URL("./fixtures/localhost.key.pem", import.meta.url), "utf8");

/** A connection as the server sees it. */
export interface Peer {
  readonly stream: net.Socket;
  /** The head of the request. */
  readonly request: string;
  /** Bytes that came after it. */
  bytes(): Buffer;
  /** Whole and cut frames that came, without masks. */
  frames(): RawFrame[];
  /** How many reads they came in. */
  reads(): number;
}

export interface TestServer {
  url: string;
  port: number;
  /** Connections with a whole request. */
  readonly peers: Peer[];
  stop(): Promise<void>;
}

/** The answer that accepts a request. */
export function acceptance(request: string, headers = ""): string {
  const key = /^sec-websocket-key: *(\S+)/im.exec(request)?.[1] ?? "";
  return (
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
    `Sec-WebSocket-Accept: ${acceptValue(key)}\r\n${headers}\r\n`
  );
}

/** Starts a server; `onRequest` answers each request, by default with an acceptance. */
export async function startServer(
  onRequest: (peer: Peer) => void = (peer) => peer.stream.write(acceptance(peer.request)),
  withTls = false,
): Promise<TestServer> {
  const peers: Peer[] = [];
  const streams = new Set<net.Socket>();
  const onStream = (stream: net.Socket) => {
    stream.on("error", () => {});
    servePeer(stream, (peer) => {
      peers.push(peer);
      onRequest(peer);
    });
  };
  const options = { allowHalfOpen: true };
  const server = withTls
    ? tls.createServer({ ...options, key: KEY, cert: CERTIFICATE }, onStream)
    : net.createServer(options, onStream);
  // With TLS these are the connections below it, also those whose handshake fails.
  server.on("connection", (stream: net.Socket) => {
    streams.add(stream);
    stream.on("close", () => streams.delete(stream));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as net.AddressInfo;
  const stop = () => {
    for (const stream of streams) stream.destroy();
    return new Promise<void>((resolve) => server.close(() => resolve()));
  };
  return {
    url: `${withTls ? "wss" : "ws"}://127.0.0.1:${port}/ws`,
    port,
    peers,
    stop,
  };
}

function servePeer(stream: net.Socket, onRequest: (peer: Peer) => void): void {
  let head = "";
  let isOpen = false;
  let reads = 0;
  const parts: Buffer[] = [];
  stream.on("data", (chunk: Buffer) => {
    if (isOpen) {
      reads += 1;
      parts.push(chunk);
      return;
    }
    head += chunk.toString("latin1");
    const end = head.indexOf("\r\n\r\n");
    if (end < 0) return;
    isOpen = true;
    const rest = Buffer.from(head.slice(end + 4), "latin1");
    if (rest.length > 0) parts.push(rest);
    const bytes = () => Buffer.concat(parts);
    onRequest({
      stream,
      request: head.slice(0, end + 4),
      bytes,
      frames: () => rawFrames(bytes()),
      reads: () => reads,
    });
  });
}

/** A frame of a server. */
export function frameOf(opcode: number, payload: string | Buffer): Buffer {
  const bytes = Buffer.from(payload as string);
  if (bytes.length < 126) return Buffer.concat([Buffer.from([0x80 | opcode, bytes.length]), bytes]);
  const header = Buffer.alloc(bytes.length < 65_536 ? 4 : 10);
  header[0] = 0x80 | opcode;
  header[1] = bytes.length < 65_536 ? 126 : 127;
  if (bytes.length < 65_536) header.writeUInt16BE(bytes.length, 2);
  else header.writeBigUInt64BE(BigInt(bytes.length), 2);
  return Buffer.concat([header, bytes]);
}

/** A close frame of a server. */
export function closeOf(code: number, reason = ""): Buffer {
  return frameOf(8, Buffer.concat([Buffer.from([code >> 8, code & 255]), Buffer.from(reason)]));
}
