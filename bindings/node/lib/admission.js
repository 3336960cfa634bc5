"use strict";

// Who may connect, as the application decides it by the request.

const { ServerResponse } = require("node:http");
const { callable, shown, text, whole } = require("./arguments.js");
const { CallError, InvalidArgumentError, WrongTypeError } = require("./errors.js");
const { encode } = require("./json.js");
const { named } = require("./names.js");
const { TIMER_MAX_MS } = require("./waiting.js");

const OPTIONS = new Set(["authorize", "use", "authorizeTimeoutMs"]);
const ANSWER = new Set(["user", "access", "subscriptions", "expiresAt", "attachment"]);

/** In JSON: the application could not decide. */
const UNDECIDED = "null";
const REFUSED = "REFUSED";

/** The rules of `attach` or `authorize`, which both have these options. */
function rulesOf(call, options) {
  const { authorize, use = [], authorizeTimeoutMs = 10_000 } = named(call, options, OPTIONS);
  if (authorize !== undefined) callable("authorize", authorize);
  if (!Array.isArray(use)) throw new WrongTypeError(`use is an array of middleware, not ${shown(use)}`);
  for (const middleware of use) callable("each of use", middleware);
  if (use.length > 0 && authorize === undefined) {
    throw new InvalidArgumentError("use prepares the request for authorize, which is missing");
  }
  const timeoutMs = whole("authorizeTimeoutMs", authorizeTimeoutMs, 1, TIMER_MAX_MS);
  return { authorize, use, timeoutMs };
}

/** What `authorize` decides, in JSON (nothing if the token decides), and what it attaches to the connection. */
async function decide({ authorize, use, timeoutMs }, request, complain) {
  let timer;
  const late = new Promise((_, reject) => {
    const words = `authorize has not answered in ${timeoutMs} ms`;
    timer = setTimeout(() => reject(new Error(words)), timeoutMs);
  });
  const ask = async () => {
    for (const middleware of use) await pass(middleware, request);
    return decisionOf(await authorize(request));
  };
  try {
    return await Promise.race([ask(), late]);
  } catch (error) {
    if (error instanceof CallError) return { decision: refusalOf(error) };
    complain(error);
    return { decision: UNDECIDED };
  } finally {
    clearTimeout(timer);
  }
}

/** Has a middleware look at a request. One that answers the request refuses the client. */
function pass(middleware, request) {
  const response = new ServerResponse(request);
  return new Promise((resolve, reject) => {
    response.end = () => {
      reject(new CallError(`the request was answered with status ${response.statusCode}`, { code: REFUSED }));
      return response;
    };
    const next = (error) => (error === undefined || error === null ? resolve() : reject(error));
    Promise.resolve(middleware(request, response, next)).catch(reject);
  });
}

/** The decision that `authorize` has returned. */
function decisionOf(answer) {
  if (answer === true) return {};
  // As `session.user && { … }` says it.
  if (answer === undefined || answer === null || answer === false || answer === "" || answer === 0) {
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

/** The refusal that `authorize` has thrown. Its code may be of any kind, such as the number of a database. */
function refusalOf({ code, message }) {
  return encode({ refused: { code: typeof code === "string" ? code : REFUSED, reason: String(message) } });
}

module.exports = { decide, rulesOf, UNDECIDED };
