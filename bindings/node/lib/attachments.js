"use strict";

// HTTP servers of Node whose WebSockets a server takes over: their sockets go to the engine, those under TLS are relayed to it.

const { Buffer } = require("node:buffer");
const { once } = require("node:events");
const { STATUS_CODES } = require("node:http");
const { Socket } = require("node:net");
const { decide, rulesOf } = require("./admission.js");
const { shown } = require("./arguments.js");
const calls = require("./calls.js");
const { Doorkeeper } = require("./doorkeeper.js");
const { BusyError, InvalidArgumentError, StoppedError, WrongTypeError } = require("./errors.js");
const { LineLimit } = require("./line-limit.js");
const native = require("./native.js");
const { Places } = require("./places.js");
const { endSoon, Relays } = require("./relays.js");

const NUMBER_MAX = 0xffff_ffff;
/** Connections whose `authorize` may run at once. */
const UNDECIDED_MAX = 1024;
/** How long other listeners have to take a WebSocket that is not for us. */
const UNCLAIMED_MS = 5_000;

/** What is attached to each HTTP server: the paths and the listener of each server. */
const ATTACHED = new WeakMap();

/** The HTTP servers of a server. */
class Attachments {
  #core;
  #log;
  #relays = new Relays();
  /** Each HTTP server and what is attached to it. */
  #entries = new Map();
  /** What `authorize` has attached to connections that the engine has not announced yet. */
  #attached = new Map();
  #number = 0;
  #undecided = new Places(UNDECIDED_MAX);
  #lines = new LineLimit((count) => `${count} more clients cannot connect`);
  /** Decides where an HTTP server has no rules of its own. */
  doorkeeper;

  constructor(core, log) {
    this.#core = core;
    this.#log = log;
    this.doorkeeper = new Doorkeeper(core, this);
  }

  /** Reports an error that keeps a client away. */
  complain = (error) => this.#lines.line(this.#log, "a client cannot connect", error);

  get isEmpty() {
    return this.#entries.size === 0;
  }

  add(httpServer, options) {
    if (typeof httpServer?.on !== "function" || typeof httpServer.address !== "function") {
      throw new WrongTypeError(
        `attach takes an HTTP server, such as what http.createServer(app) or app.listen() returns, not ${shown(httpServer)}`,
      );
    }
    if (this.#entries.has(httpServer)) {
      throw new InvalidArgumentError("this HTTP server is attached already");
    }
    const own = rulesOf("attach", options);
    const { paths } = this.#core;
    const entry = {
      takes: (path) => paths.length === 0 || paths.includes(path),
      listener: (request, socket, head) => {
        const rules = own.authorize === undefined ? (this.doorkeeper.rules ?? own) : own;
        this.#upgrade(httpServer, entry, rules, { request, socket, head });
      },
    };
    this.#entries.set(httpServer, entry);
    if (!ATTACHED.has(httpServer)) ATTACHED.set(httpServer, new Set());
    ATTACHED.get(httpServer).add(entry);
    httpServer.on("upgrade", entry.listener);
  }

  /** Leaves the HTTP servers, once the engine has stopped. */
  clear() {
    for (const [httpServer, entry] of this.#entries) {
      httpServer.off("upgrade", entry.listener);
      ATTACHED.get(httpServer).delete(entry);
    }
    this.#entries.clear();
    this.#relays.end();
    this.#lines.conclude(this.#log);
  }

  /** Keeps what is attached to a connection until the engine announces it; its number. */
  keep(attachment) {
    for (const number of this.#core.endedAdoptions()) this.#attached.delete(number);
    this.#number = (this.#number % NUMBER_MAX) + 1;
    if (attachment !== undefined) this.#attached.set(this.#number, attachment);
    return this.#number;
  }

  /** What was attached to a connection that the engine announces. */
  take(number) {
    const attached = this.#attached.get(number);
    this.#attached.delete(number);
    return attached;
  }

  async #upgrade(httpServer, entry, rules, upgrade) {
    const { request, socket } = upgrade;
    // A client that leaves meanwhile: Node listens no more.
    socket.on("error", () => {});
    if (!isFor(httpServer, entry, request, socket)) return;
    try {
      await written(socket);
      const { decision, attachment } = await this.#decide(rules, request, socket);
      if (socket.destroyed) return;
      // That of a Unix socket is a path.
      const { address: listensAt } = httpServer.address() ?? {};
      const { remoteAddress: host, remotePort: port } = socket;
      this.#handOver(upgrade, { host, port, listensAt, decision }, attachment);
    } catch (error) {
      // A server that has not started, has stopped or has not caught up is no fault.
      if (!(error instanceof BusyError || error instanceof StoppedError)) this.complain(error);
      refuse(socket, 503, "Retry-After: 1\r\n");
    }
  }

  /** What `authorize` decides, in JSON, and what it attaches to the connection. */
  async #decide(rules, request, socket) {
    if (rules.authorize === undefined) return {};
    const { evicted, giveBack, end } = this.#undecided.take(socket.remoteAddress);
    // Who has gone away takes no place.
    const gone = new Promise((resolve) => socket.once("close", () => resolve({})));
    const decided = decide(rules, request, this.complain).finally(end);
    try {
      return await Promise.race([decided, gone, evicted]);
    } finally {
      giveBack();
    }
  }

  #handOver({ request, socket, head }, newcomer, attachment) {
    const received = Buffer.concat([headOf(request), head, ...unread(socket)]);
    const number = this.keep(attachment);
    try {
      const isPlain = socket instanceof Socket && !socket.encrypted;
      const descriptor = isPlain ? socket._handle?.fd : undefined;
      if (descriptor >= 0 && received.length <= native.NativeServer.adoptedBytesMax()) {
        calls.run(() => this.#core.adopt(descriptor, received, newcomer, number));
        // The engine has a descriptor of its own.
        socket.destroy();
      } else {
        const other = calls.run(() => this.#core.adoptRelayed(newcomer, number));
        this.#relays.add(socket, other, received, this.#core.idleTimeoutMs);
      }
    } catch (error) {
      this.#attached.delete(number);
      throw error;
    }
  }
}

/** Whether a request is for this server. One that is for nobody gets 404. */
function isFor(httpServer, entry, request, socket) {
  const path = pathOf(request.url);
  if (entry.takes(path)) return true;
  const entries = [...ATTACHED.get(httpServer)];
  // One of ours has to answer.
  if (entries[0] !== entry || entries.some(({ takes }) => takes(path))) return false;
  const ours = new Set(entries.map(({ listener }) => listener));
  if (httpServer.listeners("upgrade").every((listener) => ours.has(listener))) return true;
  const before = socket.bytesWritten;
  const late = () => {
    if (!socket.destroyed && socket.bytesWritten === before) refuse(socket, 404);
  };
  const timer = setTimeout(late, UNCLAIMED_MS);
  timer.unref();
  socket.once("close", () => clearTimeout(timer));
  return false;
}

/** The path of a request, whose target may be a whole URL. */
function pathOf(target) {
  if (target.startsWith("/")) return target.split("?", 1)[0];
  try {
    return new URL(target).pathname;
  } catch {
    return target;
  }
}

/** Waits until the answers to earlier requests of this connection are written. */
async function written(socket) {
  const earlier = socket._httpMessage;
  if (earlier && !earlier.writableFinished) await once(earlier, "close");
  if (socket.writableLength > 0) await new Promise((resolve) => socket.write("", resolve));
}

/** The head of a request, as it came. */
function headOf({ method, url, httpVersion, rawHeaders }) {
  let head = `${method} ${url} HTTP/${httpVersion}\r\n`;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    head += `${rawHeaders[index]}: ${rawHeaders[index + 1]}\r\n`;
  }
  return Buffer.from(`${head}\r\n`, "latin1");
}

/** The bytes of a socket that nobody has read. */
function unread(socket) {
  const pieces = [];
  for (let piece = socket.read(); piece !== null; piece = socket.read()) pieces.push(piece);
  return pieces;
}

/** Answers with a status, and ends the connection. */
function refuse(socket, status, lines = "") {
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines}Connection: close\r\nContent-Length: 0\r\n\r\n`;
  socket.end(head);
  endSoon(socket);
}

module.exports = { Attachments };
