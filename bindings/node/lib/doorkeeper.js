"use strict";

// Who may connect at the server's own port, as the application decides it by the request.

const { IncomingMessage } = require("node:http");
const { decide, rulesOf } = require("./admission.js");
const calls = require("./calls.js");
const { InvalidArgumentError } = require("./errors.js");
const { named } = require("./names.js");

const OPTIONS = new Set(["use", "authorizeTimeoutMs"]);

/** Clients whose `authorize` may run at once; others wait, and are told to come back if they are too many. */
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
    calls.run(() => this.#core.decideConnections(() => this.#next()));
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
    try {
      const { decision, attachment } = await decide(this.#rules, requestOf(client), complain);
      const number = this.#attachments.keep(attachment);
      calls.run(() => client.decide(decision, number));
    } catch (error) {
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
