"use strict";

// The server: the engine's threads take the sockets, and what clients do is received here in batches.

const { performance } = require("node:perf_hooks");
const { callable, closing, flag, text, whole } = require("./arguments.js");
const { Attachments } = require("./attachments.js");
const { Batch } = require("./batch.js");
const calls = require("./calls.js");
const { bytesOf, Connection } = require("./connection.js");
const { Dispatcher } = require("./dispatcher.js");
const { StoppedError, TidewireError, WrongTypeError } = require("./errors.js");
const { Handlers } = require("./handlers.js");
const { encode } = require("./json.js");
const { Log } = require("./log.js");
const { Memory } = require("./memory.js");
const { isMessage } = require("./message-mark.js");
const { named } = require("./names.js");
const native = require("./native.js");
const { optionNames, read } = require("./options.js");
const { Outbox } = require("./outbox.js");
const { Promises, untilFree } = require("./promises.js");
const { handlerOf } = require("./schemas.js");
const { Signals } = require("./signals.js");
const { deferred, pause, TIMER_MAX_MS, turn, within } = require("./waiting.js");

/** After so long the rest of the program has a turn. */
const SLICE_MS = 2;
/** How long one look for what is left to receive takes at a stop. */
const SETTLE_MS = 5;

const FINISHED = Symbol("finished");

const RUN = new Set(["drainTimeoutMs"]);
const WHEN_FREE = new Set(["waitMs"]);

/** A WebSocket server. Its options are those of `tidewire serve`, in camelCase. */
class Server {
  #core;
  #limits;
  #engineLog;
  #log;
  #handlers;
  #dispatcher;
  #outbox;
  #context;
  #memory = new Memory();
  #keepAlive;
  #isReferenced = true;
  #started = deferred();
  #finished = deferred();
  #isFinished = false;
  #ending;
  /** The consumer of `batches`. */
  #receiver;
  /** Whether somebody has: then what arrives waits for the next one. */
  #isManual = false;
  /** The rest of the last batch of a loop over messages. */
  #rest = { batch: [], next: 0 };
  #isPumpDue = false;
  #yieldAt = 0;
  #promises;
  #attachments;
  /** Whether it was given an address to listen at. */
  #hasAddress;
  /** Whether calls may wait for a broker, and nobody has been warned yet. */
  #mayBlock;

  constructor(options = {}) {
    const { text: settings, limits } = read(options);
    this.#core = calls.run(() => new native.NativeServer(settings));
    this.#limits = limits;
    this.#engineLog = new Log(limits.log, limits.logLevel);
    this.#log = (...line) => this.#engineLog.line(...line);
    this.#handlers = new Handlers(this.#log);
    this.#dispatcher = new Dispatcher(this.#handlers, limits);
    this.#dispatcher.onRoom = () => this.#pumpSoon();
    this.#outbox = new Outbox(this.#core, this.#log);
    this.#outbox.onRoom = () => this.#wake();
    this.#promises = new Promises(this.#core, this.#outbox);
    this.#mayBlock = (options.broker ?? undefined) !== undefined;
    this.#attachments = new Attachments(this.#core, this.#log);
    this.#hasAddress = (options.host ?? options.port ?? options.listen ?? undefined) !== undefined;
    this.#context = {
      core: this.#core,
      outbox: this.#outbox,
      attachments: this.#attachments,
      connectionsByPlace: [],
      messageTypes: [],
    };
  }

  /** The names of all options. */
  static optionNames() {
    return optionNames();
  }

  // The life of a server.

  /**
   * Serves the WebSockets of an HTTP server, at its port. Without `host`, `port` and `listen` the server then has no port of its
   * own. Call it before `start()`.
   */
  attach(httpServer, options) {
    if (this.state !== "new") throw new StoppedError("attach() comes before start()");
    this.#attachments.add(httpServer, options);
    return this;
  }

  /** Decides who may connect, at the own port and at HTTP servers without an `authorize` of their own. It comes before `start()`. */
  authorize(decide, options) {
    if (this.state !== "new") throw new StoppedError("authorize() comes before start()");
    this.#attachments.doorkeeper.set(callable("authorize", decide), options);
    return this;
  }

  /** Whether it has a port of its own. */
  get #listens() {
    return this.#hasAddress || this.#attachments.isEmpty;
  }

  /** Starts to listen, and to call the handlers. */
  async start() {
    this.#engineLog.listen();
    try {
      calls.run(() => this.#core.start(this.#listens, () => this.#wake()));
    } catch (error) {
      this.#engineLog.leave();
      throw error;
    }
    this.#route();
    this.#keepAlive = setInterval(() => {}, TIMER_MAX_MS);
    if (!this.#isReferenced) this.#keepAlive.unref();
    this.#started.resolve();
    // Whoever calls `batches` now still receives everything.
    this.#pumpSoon();
    return this;
  }

  /**
   * Ends every connection at once, also during a drain, and waits until the handlers have ended, at most for
   * `stopTimeoutMs`.
   */
  async stop() {
    if (this.#ending !== undefined) this.#core.endDrain();
    await this.#end(() => this.#core.stop());
  }

  /**
   * Rejects new clients, sends the others away over time, and stops; how many were left after `timeoutMs`. Handlers are
   * called meanwhile.
   */
  async drain(timeoutMs = 10_000) {
    whole("timeoutMs", timeoutMs, 0);
    return await this.#end(() => this.#core.drain(timeoutMs));
  }

  /**
   * Starts, serves until SIGINT or SIGTERM, lets the clients leave, and stops: a whole program. A second signal ends the
   * connections at once, with the exit code 130.
   */
  async run(options) {
    const { drainTimeoutMs = 5_000 } = named("run", options, RUN);
    whole("drainTimeoutMs", drainTimeoutMs, 0);
    if (this.state === "new") await this.start();
    const signals = new Signals(() => this.#core.endDrain());
    try {
      await Promise.race([signals.told, this.#finished.promise]);
      await this.drain(drainTimeoutMs);
    } finally {
      signals.ignore();
    }
  }

  async #end(action) {
    if (this.state === "new") return 0;
    this.#dispatcher.noteEnd();
    this.#ending ??= this.#endNow(action);
    return await this.#ending;
  }

  async #endNow(action) {
    this.#outbox.flush();
    const left = await action();
    this.#attachments.clear();
    // The engine's threads may have called before they ended, or not.
    this.#wake();
    if (!this.#isManual) {
      await this.#settle();
    }
    clearInterval(this.#keepAlive);
    this.#handlers.logUnlogged();
    this.#engineLog.leave();
    return left;
  }

  /** Waits until everything was received and for the handlers that run, but not for those that wait for this. */
  async #settle() {
    const until = performance.now() + this.#limits.stopTimeoutMs;
    const dispatcher = this.#dispatcher;
    const isOver = () => dispatcher.isIdle && (this.#isFinished || dispatcher.isPaused);
    while (!isOver() && performance.now() < until) {
      // What was not received yet is received within a moment.
      if (this.#isFinished || dispatcher.isPaused) await pause(2);
      else await within(this.#finished.promise, SETTLE_MS);
    }
    if (!dispatcher.isIdle) {
      const late = dispatcher.running - dispatcher.ending;
      this.#log("warn", `the server has stopped: ${late} handlers have not ended`);
    }
  }

  async [Symbol.asyncDispose ?? Symbol.for("Symbol.asyncDispose")]() {
    await this.stop();
  }

  /** Lets the process end though the server runs. */
  unref() {
    this.#isReferenced = false;
    this.#keepAlive?.unref();
    return this;
  }

  /** Keeps the process alive as long as the server runs; so it is by default. */
  ref() {
    this.#isReferenced = true;
    this.#keepAlive?.ref();
    return this;
  }

  /** Lets new clients in, or turns them away with 503 for a while. */
  admit(isAdmitting) {
    this.#core.admit(flag("isAdmitting", isAdmitting));
  }

  /** `new`, `running` or `stopped`. */
  get state() {
    return this.#core.state;
  }

  /** Where it listens. */
  get address() {
    return calls.run(() => this.#core.address);
  }

  /** Where the operations listener answers, or `undefined`. */
  get opsAddress() {
    return calls.run(() => this.#core.opsAddress) ?? undefined;
  }

  /** Where clients of this machine connect. */
  get url() {
    return calls.run(() => this.#core.url);
  }

  // Receiving.

  /**
   * Registers the handler of a type of messages; or of `connect`, `disconnect` or `snapshotRequest`; or of `*`, all other
   * types. What it returns does not matter; if it is a promise, later messages of the connection wait for it. With a schema
   * between both, the handler gets the checked payload as its second argument.
   */
  on(type, ...schemaAndHandler) {
    return this.#add(type, schemaAndHandler, false);
  }

  /** Registers the handler of a type of requests, or of `*`. What it returns is the reply. */
  handle(type, ...schemaAndHandler) {
    return this.#add(type, schemaAndHandler, true);
  }

  /** Registers the handler that decides about what clients publish to a topic or pattern: when it ends, the publication goes on. */
  onPublish(topic, ...schemaAndHandler) {
    const decide = (topics) => calls.run(() => this.#core.decideAbout(topics));
    this.#handlers.addPublication(topic, this.#handlerOf(schemaAndHandler), decide);
    return this;
  }

  /** Puts a function around every handler of messages, requests and publications: `(message, next) => …`, the first outermost. */
  use(middleware) {
    this.#handlers.surround(middleware);
    return this;
  }

  #add(type, given, replies) {
    this.#handlers.add(type, this.#handlerOf(given), replies);
    if (this.state === "running") this.#route();
    return this;
  }

  #handlerOf(given) {
    if (this.#isManual) throw new TidewireError(BOTH, { code: "RECEIVING" });
    return handlerOf(given);
  }

  #route() {
    this.#context.messageTypes = this.#handlers.messageTypes;
    calls.run(() => this.#core.route(this.#context.messageTypes, this.#handlers.requestTypes));
  }

  /** The events, in batches, until the server has stopped and everything was received. */
  batches() {
    if (!this.#handlers.isEmpty) throw new TidewireError(BOTH, { code: "RECEIVING" });
    if (this.#receiver !== undefined) {
      throw new TidewireError("the batches of this server are received already", { code: "RECEIVING" });
    }
    this.#receiver = { waiting: undefined };
    this.#isManual = true;
    return {
      next: () => this.#nextBatch(),
      return: async (value) => {
        this.#receiver?.waiting?.resolve();
        this.#receiver = undefined;
        return { done: true, value };
      },
      [Symbol.asyncIterator]() {
        return this;
      },
    };
  }

  /** Each message, until the server has stopped. */
  async *[Symbol.asyncIterator]() {
    const batches = this.batches();
    try {
      for (;;) {
        // A loop that ends early finds the rest of the batch the next time.
        while (this.#rest.next < this.#rest.batch.length) {
          const message = this.#rest.batch.at(this.#rest.next);
          this.#rest.next += 1;
          yield message;
        }
        const { done, value: batch } = await batches.next();
        if (done) return;
        this.#rest = { batch, next: 0 };
      }
    } finally {
      await batches.return();
    }
  }

  async #nextBatch() {
    await this.#started.promise;
    if (performance.now() > this.#yieldAt) {
      await turn();
      this.#yieldAt = performance.now() + SLICE_MS;
    }
    while (this.#receiver !== undefined && !this.#isFinished) {
      this.#outbox.flush();
      const batch = this.#outbox.isStuck ? undefined : this.#receive();
      if (batch === FINISHED) break;
      if (batch !== undefined) return { done: false, value: batch };
      const waiting = deferred();
      this.#receiver.waiting = waiting;
      await waiting.promise;
    }
    this.#receiver = undefined;
    return { done: true, value: undefined };
  }

  /** There is something to receive, or room to send. */
  #wake() {
    if (this.#receiver === undefined) {
      this.#pump();
      return;
    }
    const { waiting } = this.#receiver;
    this.#receiver.waiting = undefined;
    waiting?.resolve();
  }

  #pumpSoon() {
    if (this.#isPumpDue) return;
    this.#isPumpDue = true;
    setImmediate(() => {
      this.#isPumpDue = false;
      if (this.#receiver === undefined) this.#pump();
    });
  }

  /** Receives and calls handlers, for a time. */
  #pump() {
    if (this.#isPumpDue || this.#isFinished || this.#isManual) return;
    const until = performance.now() + SLICE_MS;
    const outbox = this.#outbox;
    outbox.isHeld = true;
    try {
      for (;;) {
        const isTaken = this.#dispatcher.advance(until);
        outbox.flush();
        // When there is room again, this is called again.
        if (outbox.isStuck || this.#dispatcher.isPaused) return;
        if (!isTaken || performance.now() > until) {
          this.#pumpSoon();
          return;
        }
        const batch = this.#receive();
        if (batch === undefined || batch === FINISHED) return;
        this.#dispatcher.take(batch);
      }
    } catch (error) {
      // The engine has ended by itself.
      this.#log("error", "the server has failed", error);
      this.#finish();
    } finally {
      outbox.isHeld = false;
    }
  }

  /** The next batch; `undefined` if there is none now. */
  #receive() {
    for (;;) {
      const memory = this.#memory.current;
      const { buffer, at } = memory;
      const end = calls.run(() => this.#core.receive(buffer, at));
      if (end > 0) {
        memory.at = end;
        return new Batch(this.#context, memory, at);
      }
      if (end === 0) return undefined;
      if (end === -1) {
        this.#finish();
        return FINISHED;
      }
      this.#memory.renew(-end);
    }
  }

  #finish() {
    this.#isFinished = true;
    this.#engineLog.leave();
    this.#memory.clear();
    clearInterval(this.#keepAlive);
    this.#finished.resolve();
  }

  // Sending.

  /** Publishes to a topic: every subscriber gets it. */
  publish(topic, payload, options) {
    text("topic", topic);
    const [type, chosen] = calls.publication(options);
    const publish = () => this.#core.publish(topic, type, encode(payload), chosen);
    return calls.shownResult(this.#waiting("publish", publish));
  }

  /** Publishes several payloads to one topic, in their order; how many were new. */
  publishMany(topic, payloads, options) {
    return this.#promises.publishMany(topic, payloads, options);
  }

  /** The calls that may wait for a broker, as promises: nothing holds up the event loop. */
  get promises() {
    return this.#promises;
  }

  /** Sends to every connection of a user, but for those that `exclude` names. */
  sendToUser(user, payload, options) {
    text("user", user);
    const [type, priority, exclude] = calls.messageOf("sendToUser", options);
    this.#do(() => this.#core.sendToUser(user, type, encode(payload), priority, exclude));
  }

  /** Sends to every connection, but for those that `exclude` names. */
  broadcast(payload, options) {
    const [type, priority, exclude] = calls.messageOf("broadcast", options);
    this.#do(() => this.#core.broadcast(type, encode(payload), priority, exclude));
  }

  /** Sends to every connection as it is: a string as text, bytes as binary. */
  broadcastRaw(data) {
    if (typeof data === "string") return this.#do(() => this.#core.broadcastText(data));
    const { buffer, byteOffset, byteLength } = bytesOf(data);
    this.#do(() => this.#core.broadcastBinary(Buffer.from(buffer, byteOffset, byteLength)));
  }

  /** Sends pairs of a connection, or a message for the connection it came from, and data, as they are. */
  sendRawMany(pairs) {
    for (const [to, data] of pairs) {
      const connection = isMessage(to) ? to.connection : to;
      if (!(connection instanceof Connection)) {
        throw new WrongTypeError("sendRawMany takes pairs of a connection or a message, and data");
      }
      connection.sendRaw(data);
    }
  }

  /** Subscribes every connection that a user has now to a topic or pattern. */
  subscribeUser(user, topic) {
    this.#subscribe("subscribeUser", user, topic, true);
  }

  /** Ends a subscription of every connection of a user. */
  unsubscribeUser(user, topic) {
    this.#subscribe("unsubscribeUser", user, topic, false);
  }

  #subscribe(called, user, topic, isWanted) {
    text("user", user);
    text("topic", topic);
    this.#waiting(called, () => this.#core.subscribeUser(user, topic, isWanted));
  }

  /** Ends every connection of a user. */
  disconnectUser(user, code = 1000, reason = "") {
    text("user", user);
    closing(code, reason);
    this.#waiting("disconnectUser", () => this.#core.disconnectUser(user, code, reason));
  }

  /** Ends the connection with this id. */
  disconnect(id, code = 1000, reason = "") {
    text("id", id);
    closing(code, reason);
    this.#do(() => this.#core.disconnect(id, code, reason));
  }

  /** Calls `action`, such as `() => server.publish(...)`, again as long as it throws `BusyError`, for `waitMs`. */
  async whenFree(action, options) {
    callable("the action", action);
    const { waitMs = 1_000 } = named("whenFree", options, WHEN_FREE);
    return await untilFree(action, whole("waitMs", waitMs));
  }

  #do(action) {
    this.#outbox.flush();
    calls.run(action);
  }

  /** A call that may wait for a broker. */
  #waiting(called, action) {
    if (this.#mayBlock) {
      this.#mayBlock = false;
      const instead = `await server.promises.${called}() instead`;
      this.#log("warn", `server.${called}() waits for the broker and holds up the event loop: ${instead}`);
    }
    this.#outbox.flush();
    return calls.run(action);
  }

  // Questions.

  /** How many connections there are. */
  get connections() {
    return calls.run(() => this.#core.connections);
  }

  /** The counters of the server, by name. */
  statistics() {
    return JSON.parse(calls.run(() => this.#core.statistics()));
  }

  /** The counts of the handlers since the server was made. */
  handlerStatistics() {
    const { running, waiting } = this.#dispatcher;
    return { ...this.#handlers.counts(), running, waiting };
  }

  /** Some connections, in the order of their ids: all of a user, or all of a topic, or all. */
  listConnections(query) {
    const wanted = calls.listQuery(query);
    return JSON.parse(calls.run(() => this.#core.listConnections(...wanted)));
  }

  /** Some topics and patterns that have subscribers, in the order of their names. */
  listTopics(query) {
    const wanted = calls.topicQuery(query);
    return JSON.parse(calls.run(() => this.#core.listTopics(...wanted)));
  }

  /** The history of a topic: its position, and some of its publications. */
  history(topic, query) {
    const wanted = calls.historyQuery(topic, query);
    return calls.shownHistory(this.#waiting("history", () => this.#core.history(...wanted)));
  }

  /** Forgets what a topic keeps; false if there was nothing. */
  forgetHistory(topic) {
    text("topic", topic);
    return this.#waiting("forgetHistory", () => this.#core.forgetHistory(topic));
  }

  /** The users on a topic: how many, and some of them. */
  presence(topic, query) {
    const wanted = calls.presenceQuery(topic, query);
    return JSON.parse(this.#waiting("presence", () => this.#core.presence(...wanted)));
  }

  [Symbol.for("nodejs.util.inspect.custom")]() {
    if (this.state !== "running") return `<Server ${this.state}>`;
    const where = this.#listens ? this.url : "attached";
    return `<Server ${where} connections=${this.connections}>`;
  }
}

const BOTH = "a server has either handlers, or a loop over batches(): both would take each other's messages";

module.exports = { Server };
