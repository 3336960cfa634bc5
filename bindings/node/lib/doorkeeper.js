"use strict";

// Who may connect at the server's own port, as the application decides it by the request.

const { IncomingMessage } = require("node:http");
const { decide, rulesOf, UNDECIDED } = require("./admission.js");
const calls = require("./calls.js");
const { InvalidArgumentError } = require("./errors.js");
const { named } = require("./names.js");

const OPTIONS = new Set(["use", "authorizeTimeoutMs"]);

/** Clients whose `authorize` may run at once; the engine has limits for those that wait. */
const UNDECIDED_MAX = 1024;

/** Asks `authorize` about the clients of the own port. */
class Doorkeeper {
  #core;
  #attachments;
  #rules;
  #undecided = 0;

  constructor(core, attachments) {
    this.#core = core;
    this.#attachments = attachments;
  }

  /** What `authorize` was called with, if it was. */
  get rules() {
    return this.#rules;
  }

  set(authorize, options) {
    if (this.#rules !== undefined) throw new InvalidArgumentError("this server has an authorize already");
    this.#rules = rulesOf("authorize", { ...named("authorize", options, OPTIONS), authorize });
    const wake = Doorkeeper.#wakerOf(new WeakRef(this));
    calls.run(() => this.#core.decideConnections(wake));
  }

  /** The engine holds the function for as long as there is a server: nothing around it may keep that. */
  static #wakerOf(reference) {
    return () => reference.deref()?.#next();
  }

  /** Asks about the clients that wait. */
  #next() {
    while (this.#undecided < UNDECIDED_MAX) {
      const client = this.#core.takeWaitingClient();
      if (client === null) return;
      this.#undecided += 1;
      this.#ask(client);
    }
  }

  async #ask(client) {
    const complain = (error) => this.#attachments.complain(error);
    // What fails at once must not begin the next one inside.
    await undefined;
    try {
      const { decision, attachment } = await decide(this.#rules, requestOf(client), complain);
      const number = this.#attachments.keep(attachment);
      calls.run(() => client.decide(decision, number));
    } catch (error) {
      client.decide(UNDECIDED, 0);
      complain(error);
    } finally {
      this.#undecided -= 1;
      this.#next();
    }
  }
}

/** The request of a client, as an HTTP server of Node shows it. */
function requestOf({ target, headers, host, port, isTls }) {
  const remoteFamily = host?.includes(":") ? "IPv6" : "IPv4";
  const request = new IncomingMessage({
    remoteAddress: host ?? undefined,
    remotePort: port ?? undefined,
    remoteFamily: host === null ? undefined : remoteFamily,
    encrypted: isTls,
  });
  request.method = "GET";
  request.url = target;
  request.httpVersion = "1.1";
  request.httpVersionMajor = 1;
  request.httpVersionMinor = 1;
  request._addHeaderLines(headers, headers.length);
  // It has no body.
  request.complete = true;
  request.push(null);
  return request;
}

module.exports = { Doorkeeper };
