"use strict";

// A server to load: it answers every request, later or with errors if it is configured so, and echoes WebSocket messages.

const { createHash } = require("node:crypto");
const fs = require("node:fs");
const http = require("node:http");
const { InvalidArgumentError } = require("../errors.js");
const { named } = require("../names.js");

const PORT = 7357;
const WEBSOCKET_ID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
const MESSAGE_BYTES_MAX = 16 * 1024 * 1024;

const ANSWERS = ["delay", "error", "percent", "body", "file"];
const OPTIONS = new Set(["port", ...ANSWERS, "logger", "shouldErrorCustom", "quiet"]);

/**
 * Starts the server. Options: `port` (0 for a free one), `delay` in ms, `error` (a status), `percent` (of the responses that
 * are errors), `body`, `file`, `logger(request, response)`, `shouldErrorCustom(request)`, `quiet`.
 *
 * A promise of the server; with a callback the server at once. `close([callback])` returns a promise.
 */
function startServer(given, callback) {
  const options = named("startServer", given, OPTIONS);
  const { port = PORT, percent } = options;
  if (!Number.isInteger(Number(port)) || port < 0 || port > 65535) {
    throw new InvalidArgumentError(`port is a whole number from 0 to 65535, not ${port}`);
  }
  if (percent !== undefined && !(percent >= 0 && percent <= 100)) {
    throw new InvalidArgumentError(`percent is a number from 0 to 100, not ${percent}`);
  }
  const server = new TestServer(options);
  const started = server.start(Number(port));
  if (callback === undefined) return started;
  started.then(() => callback(null, server), callback);
  return server;
}

/** A server that runs. */
class TestServer {
  #options;
  #body;
  #server;
  #sockets = new Set();
  totalRequests = 0;

  constructor(options) {
    this.#options = options;
    this.#body = options.file === undefined ? (options.body ?? "OK") : fs.readFileSync(options.file);
    this.#server = http.createServer((request, response) => this.#receive(request, response));
    this.#server.on("upgrade", (request, socket) => this.#echo(request, socket));
  }

  start(port) {
    return new Promise((resolve, reject) => {
      this.#server.once("error", (error) => {
        const taken = `Port ${port} in use, please free it and retry again`;
        reject(error.code === "EADDRINUSE" ? new Error(taken, { cause: error }) : error);
      });
      this.#server.listen(port, () => {
        if (!this.#options.quiet) console.info(`Listening on http://localhost:${this.port}/`);
        resolve(this);
      });
    });
  }

  /** The port that it listens on. */
  get port() {
    return this.#server.address()?.port;
  }

  /** Ends it and its connections. */
  close(callback) {
    const closed = new Promise((resolve) => this.#server.close(() => resolve()));
    this.#server.closeAllConnections();
    for (const socket of this.#sockets) socket.destroy();
    if (callback !== undefined) closed.then(() => callback());
    return closed;
  }

  #receive(request, response) {
    this.totalRequests += 1;
    const parts = [];
    request.on("data", (part) => parts.push(part));
    request.on("error", () => response.destroy());
    request.on("end", () => {
      request.body = Buffer.concat(parts).toString();
      if (this.#options.delay) setTimeout(() => this.#answer(request, response), Number(this.#options.delay));
      else this.#answer(request, response);
    });
  }

  #answer(request, response) {
    const { error, logger, percent, shouldErrorCustom } = this.#options;
    const isChosen = percent === undefined ? error !== undefined : Math.random() * 100 < percent;
    if (isChosen || shouldErrorCustom?.(request)) {
      response.statusCode = Number(error ?? 500);
      response.end("ERROR");
    } else {
      response.end(this.#body);
    }
    logger?.(request, response);
  }

  /** Accepts a WebSocket (RFC 6455, section 4.2) and sends back what it receives. */
  #echo(request, socket) {
    const key = request.headers["sec-websocket-key"];
    if (typeof key !== "string" || request.headers["sec-websocket-version"] !== "13") {
      socket.end("HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
      return;
    }
    const accept = createHash("sha1")
      .update(key + WEBSOCKET_ID)
      .digest("base64");
    const head = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"];
    socket.write([...head, `Sec-WebSocket-Accept: ${accept}`, "", ""].join("\r\n"));
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    let waiting = Buffer.alloc(0);
    socket.on("data", (part) => {
      waiting = waiting.length === 0 ? part : Buffer.concat([waiting, part]);
      for (;;) {
        const frame = frameOf(waiting);
        if (frame === undefined) return;
        if (frame === null) {
          socket.destroy();
          return;
        }
        waiting = waiting.subarray(frame.bytes);
        answer(socket, frame);
      }
    });
  }
}

/** The first frame of some bytes (RFC 6455, section 5.2); `undefined` if it is not whole, `null` if it is wrong. */
function frameOf(bytes) {
  if (bytes.length < 2) return undefined;
  let length = bytes[1] & 0x7f;
  let at = 2;
  if ((bytes[1] & 0x80) === 0) return null;
  if (length === 126) {
    if (bytes.length < 4) return undefined;
    length = bytes.readUInt16BE(2);
    at = 4;
  } else if (length === 127) {
    if (bytes.length < 10) return undefined;
    length = Number(bytes.readBigUInt64BE(2));
    at = 10;
  }
  if (length > MESSAGE_BYTES_MAX) return null;
  if (bytes.length < at + 4 + length) return undefined;
  const mask = bytes.subarray(at, at + 4);
  const payload = Buffer.from(bytes.subarray(at + 4, at + 4 + length));
  for (let index = 0; index < length; index++) payload[index] ^= mask[index & 3];
  return { head: bytes[0], payload, bytes: at + 4 + length };
}

function answer(socket, { head, payload }) {
  const opcode = head & 0x0f;
  if (opcode === 0xa) return;
  // A ping is answered with a pong; a close with a close, and the end; all else is sent back as it is.
  write(socket, opcode === 0x9 ? 0x8a : head & 0x8f, payload);
  if (opcode === 0x8) socket.end();
}

function write(socket, head, payload) {
  const { length } = payload;
  let start;
  if (length < 126) start = Buffer.from([head, length]);
  else if (length < 65_536) start = Buffer.from([head, 126, length >> 8, length & 0xff]);
  else {
    start = Buffer.alloc(10);
    start[0] = head;
    start[1] = 127;
    start.writeBigUInt64BE(BigInt(length), 2);
  }
  socket.write(Buffer.concat([start, payload]));
}

module.exports = { PORT, startServer };
