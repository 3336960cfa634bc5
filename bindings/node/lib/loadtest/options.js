"use strict";

// The options of the npm module `loadtest`, read from calls, flags and rc files into one form.

const fs = require("node:fs");
const path = require("node:path");
const querystring = require("node:querystring");
const { pathToFileURL } = require("node:url");
const { shown } = require("../arguments.js");
const { InvalidArgumentError } = require("../errors.js");
const { unknown } = require("../names.js");

const METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

/** Names of the options, and their other names. */
const NAMES = {
  url: [],
  maxRequests: [],
  maxSeconds: [],
  concurrency: [],
  timeout: [],
  method: [],
  contentType: [],
  body: ["data"],
  postBody: [],
  patchBody: [],
  postFile: [],
  putFile: [],
  patchFile: [],
  file: [],
  headers: ["header"],
  cookies: ["cookie"],
  requestsPerSecond: ["rps"],
  agentKeepAlive: ["keepalive", "keepAlive"],
  agent: [],
  indexParam: ["index"],
  indexParamLiteral: [],
  indexParamCallback: [],
  requestGenerator: [],
  statusCallback: [],
  contentInspector: [],
  insecure: [],
  secureProtocol: [],
  cert: [],
  key: [],
  ca: [],
  proxy: [],
  quiet: [],
  recover: [],
  debug: [],
  tcp: [],
  cores: [],
  signal: [],
};
const ALIASES = new Map(
  Object.entries(NAMES).flatMap(([name, others]) => others.map((other) => [other, name])),
);
const KNOWN = new Set([...Object.keys(NAMES), ...ALIASES.keys()]);

/** Options that make the body. */
const BODIES = ["body", "postBody", "patchBody", "postFile", "putFile", "patchFile", "file"];

/** The options under one name each. */
function renamed(given) {
  if (typeof given !== "object" || given === null)
    throw new InvalidArgumentError("the options are an object");
  const options = {};
  for (const [key, value] of Object.entries(given)) {
    if (!KNOWN.has(key)) throw new InvalidArgumentError(unknown(key, KNOWN));
    if (value !== undefined && value !== null) options[ALIASES.get(key) ?? key] = value;
  }
  return options;
}

/**
 * The options under one name each, checked; those of the `usual` ones that are not given are added. Functions and files are
 * loaded by `prepare`.
 */
function read(given, usual = {}) {
  const [own, others] = [renamed(given), renamed(usual)];
  const options = { ...others, ...own };
  // A body that is given takes the place of the usual one, however either is written.
  if (BODIES.some((name) => own[name] !== undefined)) {
    for (const name of BODIES) options[name] = own[name];
  }
  options.url = urlOf(options.url);
  const isWebSocket = options.url.protocol.startsWith("ws");
  options.maxRequests = number("maxRequests", options.maxRequests, 1);
  options.maxSeconds = number("maxSeconds", options.maxSeconds, 0);
  if (options.maxRequests === undefined && options.maxSeconds === undefined) options.maxSeconds = 10;
  options.concurrency = number("concurrency", options.concurrency, 1) ?? 10;
  options.timeout = number("timeout", options.timeout, 0) || undefined;
  options.requestsPerSecond = number("requestsPerSecond", options.requestsPerSecond, 0) || undefined;
  options.cores = number("cores", options.cores, 1) ?? 1;
  options.agentKeepAlive = Boolean(options.agentKeepAlive ?? options.agent ?? options.tcp ?? false);
  options.headers = { ...headersOf(others.headers), ...headersOf(own.headers) };
  options.cookies = cookiesOf(options.cookies);
  readBody(options);
  options.method = methodOf(options.method ?? "GET");
  for (const name of ["statusCallback", "contentInspector", "indexParamCallback"]) {
    if (options[name] !== undefined && typeof options[name] !== "function") {
      throw new InvalidArgumentError(`${name} is a function, not ${shown(options[name])}`);
    }
  }
  if (options.secureProtocol !== undefined) {
    throw new InvalidArgumentError("secureProtocol names versions of TLS that are not secure; leave it out");
  }
  if (isWebSocket && options.requestGenerator !== undefined) {
    throw new InvalidArgumentError(
      "requestGenerator makes HTTP requests: it cannot be used with a WebSocket URL",
    );
  }
  return options;
}

/** Loads what is in files: bodies, and modules that make requests. */
async function prepare(options, folder = process.cwd()) {
  for (const [name, method] of [
    ["postFile", "POST"],
    ["putFile", "PUT"],
    ["patchFile", "PATCH"],
    ["file", options.method],
  ]) {
    if (options[name] === undefined) continue;
    const file = path.resolve(folder, options[name]);
    options.method = method;
    const isModule = /\.[cm]?js$/.test(file);
    options.body = isModule ? await moduleOf(file) : fs.readFileSync(file, "utf8");
  }
  if (typeof options.requestGenerator === "string") {
    options.requestGenerator = await moduleOf(path.resolve(folder, options.requestGenerator));
  }
  if (options.requestGenerator !== undefined && typeof options.requestGenerator !== "function") {
    throw new InvalidArgumentError(
      "requestGenerator is a function, or the path of a module that exports one",
    );
  }
  return options;
}

async function moduleOf(file) {
  const loaded = await import(pathToFileURL(file).href);
  const made = loaded.default?.default ?? loaded.default;
  if (typeof made !== "function")
    throw new InvalidArgumentError(`${file} exports no function as its default`);
  return made;
}

function urlOf(given) {
  if (given === undefined) throw new InvalidArgumentError("the url is missing");
  let url;
  try {
    url = new URL(given);
  } catch {
    throw new InvalidArgumentError(`${shown(String(given))} is no URL`);
  }
  if (!["http:", "https:", "ws:", "wss:"].includes(url.protocol)) {
    throw new InvalidArgumentError(`the url begins with http, https, ws or wss, not ${url.protocol}`);
  }
  return url;
}

/** A number, or a string with one. */
function number(name, value, min) {
  if (value === undefined) return undefined;
  const found = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  if (typeof found !== "number" || !Number.isFinite(found) || found < min) {
    throw new InvalidArgumentError(`${name} is a number from ${min}, not ${shown(value)}`);
  }
  return found;
}

function methodOf(value) {
  const method = String(value).toUpperCase();
  if (!METHODS.includes(method))
    throw new InvalidArgumentError(`method is one of ${METHODS.join(", ")}, not ${shown(value)}`);
  return method;
}

/** Headers by lower-case names, from an object, `name:value`, or an array of those. */
function headersOf(given) {
  const headers = {};
  const add = (line) => {
    const colon = String(line).indexOf(":");
    if (colon <= 0) throw new InvalidArgumentError(`a header is written name:value, not ${shown(line)}`);
    headers[line.slice(0, colon).trim().toLowerCase()] = line.slice(colon + 1).trim();
  };
  if (given === undefined) return headers;
  if (typeof given === "string") add(given);
  else if (Array.isArray(given)) given.forEach(add);
  else for (const [name, value] of Object.entries(given)) headers[name.toLowerCase()] = String(value);
  return headers;
}

/** Cookies by name, from an object, `name=value`, or an array of those. */
function cookiesOf(given) {
  const cookies = {};
  if (given === undefined) return cookies;
  if (typeof given === "object" && !Array.isArray(given)) return { ...given };
  for (const line of Array.isArray(given) ? given : String(given).split(/; */)) {
    const equals = line.indexOf("=");
    if (equals <= 0) throw new InvalidArgumentError(`a cookie is written name=value, not ${shown(line)}`);
    cookies[line.slice(0, equals)] = line.slice(equals + 1);
  }
  return cookies;
}

/** The body as text, or the function that makes it; and its type. */
function readBody(options) {
  for (const [name, method] of [
    ["postBody", "POST"],
    ["patchBody", "PATCH"],
  ]) {
    if (options[name] === undefined) continue;
    options.body = options[name];
    options.method = method;
  }
  const given = options.contentType ?? options.headers["content-type"];
  if (options.body !== undefined && typeof options.body === "object") {
    const isForm = given === "application/x-www-form-urlencoded";
    options.contentType = given ?? "application/json";
    options.body = isForm ? querystring.stringify(options.body) : JSON.stringify(options.body);
  }
  if (options.body !== undefined || options.postFile || options.putFile || options.patchFile) {
    options.headers["content-type"] = options.contentType ?? given ?? "text/plain";
  } else if (options.contentType !== undefined) {
    options.headers["content-type"] = options.contentType;
  }
}

/** The options that hand control to JavaScript for each request. */
const callsScript = (options) =>
  typeof options.body === "function" ||
  [
    "statusCallback",
    "contentInspector",
    "requestGenerator",
    "indexParam",
    "indexParamLiteral",
    "indexParamCallback",
  ].some((name) => options[name] !== undefined);

module.exports = { callsScript, prepare, read };
