"use strict";

// HTTP servers of Node whose WebSockets a server takes over: their sockets go to the engine, those under TLS are relayed to it.

const { Buffer } = require("node:buffer");
const { ServerResponse } = require("node:http");
const { Socket } = require("node:net");
const { callable, shown, text, whole } = require("./arguments.js");
const calls = require("./calls.js");
const { CallError, InvalidArgumentError, WrongTypeError } = require("./errors.js");
const { encode } = require("./json.js");
const { named } = require("./names.js");

const OPTIONS = new Set(["authorize", "use", "authorizeTimeoutMs"]);
const ANSWER = new Set(["user", "access", "subscriptions", "expiresAt", "attachment"]);

/** In JSON: the application could not decide. */
const UNDECIDED = "null";
const NUMBER_MAX = 0xffff_ffff;
/** Connections whose `authorize` may run at once; the next one is told to come back later. */
const UNDECIDED_MAX = 1024;
/** How long a client under TLS has to read the rest, once the engine has ended its connection. */
const REST_MS = 5_000;

/** The HTTP servers of a server. */
class Attachments {
  #core;
  #log;
  /** Each HTTP server and its listener. */
  #listeners = new Map();
  /** What `authorize` has attached to connections that the engine has not announced yet. */
  #attached = new Map();
  #number = 0;
  #undecided = 0;

  constructor(core, log) {
    this.#core = core;
    this.#log = log;
  }

  get isEmpty() {
    return this.#listeners.size === 0;
  }

  add(httpServer, options) {
    if (typeof httpServer?.on !== "function" || typeof httpServer.address !== "function") {
      throw new WrongTypeError(
        `attach takes an HTTP server, such as what http.createServer(app) or app.listen() returns, not ${shown(httpServer)}`,
      );
    }
    if (this.#listeners.has(httpServer)) {
      throw new InvalidArgumentError("this HTTP server is attached already");
    }
    const rules = rulesOf(options);
    const listener = (request, socket, head) => {
      this.#upgrade(httpServer, rules, { request, socket, head });
    };
    this.#listeners.set(httpServer, listener);
    httpServer.on("upgrade", listener);
  }

  /** Leaves the HTTP servers. */
  clear() {
    for (const [httpServer, listener] of this.#listeners) httpServer.off("upgrade", listener);
    this.#listeners.clear();
  }

  /** What was attached to a connection that the engine announces. */
  take(number) {
    const attached = this.#attached.get(number);
    this.#attached.delete(number);
    return attached;
  }

  async #upgrade(httpServer, rules, upgrade) {
    const { request, socket } = upgrade;
    const { paths } = this.#core;
    const isOurs = paths.length === 0 || paths.includes(request.url.split("?", 1)[0]);
    // Another listener may serve another path; without one, the engine says that there is nothing.
    if (!isOurs && httpServer.listenerCount("upgrade") > 1) return;
    // A client that leaves meanwhile.
    const ignore = () => {};
    socket.on("error", ignore);
    const { decision, attachment } = await this.#decide(rules, request);
    if (socket.destroyed) return;
    const { address } = httpServer.address() ?? {};
    const isLocal = typeof address === "string" && /^(::ffff:)?127\.|^::1$/.test(address);
    try {
      this.#handOver(upgrade, isLocal, decision, attachment);
    } catch (error) {
      if (error instanceof InvalidArgumentError) {
        this.#log("error", "a client cannot connect", error);
      }
      refuse(socket);
    }
  }

  /** What `authorize` decides, in JSON, and what it attaches to the connection. */
  async #decide({ authorize, use, timeoutMs }, request) {
    if (authorize === undefined) return {};
    if (this.#undecided >= UNDECIDED_MAX) return { decision: UNDECIDED };
    this.#undecided += 1;
    let timer;
    const late = new Promise((_, reject) => {
      const words = `authorize has not answered in ${timeoutMs} ms`;
      timer = setTimeout(() => reject(new Error(words)), timeoutMs);
    });
    const decide = async () => {
      for (const middleware of use) await pass(middleware, request);
      return decisionOf(await authorize(request));
    };
    try {
      return await Promise.race([decide(), late]);
    } catch (error) {
      if (error instanceof CallError) {
        return { decision: encode({ refused: { code: error.code, reason: error.message } }) };
      }
      this.#log("error", "a client cannot connect: authorize has failed", error);
      return { decision: UNDECIDED };
    } finally {
      clearTimeout(timer);
      this.#undecided -= 1;
    }
  }

  #handOver({ request, socket, head }, isLocal, decision, attachment) {
    for (const number of this.#core.endedAdoptions()) this.#attached.delete(number);
    this.#number = (this.#number % NUMBER_MAX) + 1;
    const number = this.#number;
    const newcomer = {
      received: Buffer.concat([headOf(request), head, ...unread(socket)]),
      host: socket.remoteAddress,
      port: socket.remotePort,
      isLocal,
      decision,
      number,
    };
    if (attachment !== undefined) this.#attached.set(number, attachment);
    try {
      const descriptor = socket.encrypted || !(socket instanceof Socket) ? undefined : socket._handle?.fd;
      if (descriptor >= 0) {
        calls.run(() => this.#core.adopt(descriptor, newcomer));
        // The engine has a descriptor of its own.
        socket.destroy();
      } else {
        relay(
          socket,
          calls.run(() => this.#core.adoptRelayed(newcomer)),
        );
      }
    } catch (error) {
      this.#attached.delete(number);
      throw error;
    }
  }
}

function rulesOf(options) {
  const { authorize, use = [], authorizeTimeoutMs = 10_000 } = named("attach", options, OPTIONS);
  if (authorize !== undefined) callable("authorize", authorize);
  if (!Array.isArray(use)) throw new WrongTypeError(`use is an array of middleware, not ${shown(use)}`);
  for (const middleware of use) callable("each of use", middleware);
  if (use.length > 0 && authorize === undefined) {
    throw new InvalidArgumentError("use prepares the request for authorize, which is missing");
  }
  return { authorize, use, timeoutMs: whole("authorizeTimeoutMs", authorizeTimeoutMs, 1) };
}

/** Has a middleware look at a request. One that answers the request refuses the client. */
function pass(middleware, request) {
  const response = new ServerResponse(request);
  return new Promise((resolve, reject) => {
    response.end = () => {
      reject(
        new CallError(`the request was answered with status ${response.statusCode}`, { code: "REFUSED" }),
      );
      return response;
    };
    const next = (error) => (error === undefined || error === null ? resolve() : reject(error));
    Promise.resolve(middleware(request, response, next)).catch(reject);
  });
}

/** The decision that `authorize` has returned. */
function decisionOf(answer) {
  if (answer === true) return {};
  if (answer === undefined || answer === null || answer === false) {
    return { decision: encode({ refused: {} }) };
  }
  const { user, access, subscriptions, expiresAt, attachment } = named(
    "the answer of authorize",
    answer,
    ANSWER,
  );
  const decision = {};
  if (user !== undefined && user !== null) decision.user = text("user", user);
  if (access !== undefined) decision.access = access;
  if (subscriptions !== undefined) decision.subscriptions = subscriptions;
  if (expiresAt !== undefined) {
    const seconds = expiresAt instanceof Date ? Math.floor(expiresAt.getTime() / 1000) : expiresAt;
    decision.expires_at = whole("expiresAt", seconds, 0, Number.MAX_SAFE_INTEGER);
  }
  return { decision: encode(decision), attachment };
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

/** Passes everything on between a client and the engine, whose end has this descriptor. */
function relay(client, descriptor) {
  const engine = new Socket({ fd: descriptor, readable: true, writable: true });
  client.setNoDelay(true);
  client.setTimeout(0);
  // Each end comes as `close`, too.
  engine.on("error", () => {});
  client.pipe(engine);
  engine.pipe(client);
  client.on("close", () => engine.destroy());
  engine.on("close", () => setTimeout(() => client.destroy(), REST_MS).unref());
}

/** Tells a client that nobody serves it now. */
function refuse(socket) {
  socket.end(
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
  );
}

module.exports = { Attachments };
