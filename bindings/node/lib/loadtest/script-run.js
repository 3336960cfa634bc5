"use strict";

// A load that hands control to functions of the caller for each request. Requests are those of Node's own client.

const http = require("node:http");
const https = require("node:https");
const fs = require("node:fs");
const { performance } = require("node:perf_hooks");
const { randomUUID } = require("node:crypto");
const { InvalidArgumentError } = require("../errors.js");
const { Progress, PROGRESS_MS } = require("./progress.js");
const { latencies, Result } = require("./result.js");

/** After so long without a request that is due, the pace looks at its clock again. */
const PACE_MS = 1;

/** One load. */
class ScriptRun {
  #options;
  #agent;
  #client;
  #started = 0;
  #ended = 0;
  #buckets = new Map();
  #errorCodes = {};
  #errors = 0;
  #print;
  #sumMs = 0;
  #leastMs = Number.POSITIVE_INFINITY;
  #largestMs = 0;
  #running = 0;
  #clientsMost = 0;
  #index = 0;
  #isOver = false;
  #failure;
  #settle;
  #open = new Set();

  constructor(options, print) {
    if (options.url.protocol.startsWith("ws")) {
      throw new InvalidArgumentError("functions for each request are there for HTTP URLs alone");
    }
    if (options.proxy !== undefined) {
      throw new InvalidArgumentError("a proxy cannot be used together with functions for each request");
    }
    this.#options = options;
    this.#print = print;
    this.#client = options.url.protocol === "https:" ? https : http;
    this.#agent = new this.#client.Agent({
      keepAlive: options.agentKeepAlive,
      maxSockets: Number.POSITIVE_INFINITY,
    });
  }

  async run() {
    const { maxSeconds, requestsPerSecond, concurrency, maxRequests, signal } = this.#options;
    const startTimeMs = performance.now();
    const over = new Promise((resolve) => {
      this.#settle = resolve;
    });
    const end = () => this.#end();
    const timer = maxSeconds === undefined ? undefined : setTimeout(end, maxSeconds * 1000);
    signal?.addEventListener("abort", end);
    const lines = setInterval(this.#progress(startTimeMs), PROGRESS_MS);
    let pace;
    if (requestsPerSecond !== undefined) pace = this.#keepPace(startTimeMs, requestsPerSecond);
    else
      for (let number = 0; number < Math.min(concurrency, maxRequests ?? concurrency); number++) this.#next();
    await over;
    clearTimeout(timer);
    clearInterval(lines);
    clearInterval(pace);
    signal?.removeEventListener("abort", end);
    this.#agent.destroy();
    if (this.#failure !== undefined) throw this.#failure;
    return Result.of(this.#options, {
      startTimeMs,
      stopTimeMs: performance.now(),
      totalRequests: this.#ended,
      errorCodes: this.#errorCodes,
      latencies: latencies([...this.#buckets], this.#sumMs, [this.#leastMs, this.#largestMs]),
      clients: this.#clientsMost,
    });
  }

  /** Prints the figures since the start. */
  #progress(startTimeMs) {
    const progress = new Progress(this.#options, this.#print);
    return () => {
      const [requests, errors, ms] = [this.#ended, this.#errors, performance.now() - startTimeMs];
      progress.show({ ms, requests, errors, latencies: requests, latencySumMs: this.#sumMs });
    };
  }

  /** Starts requests when they are due; their latency counts from then on, also if they start late. */
  #keepPace(startTimeMs, perSecond) {
    return setInterval(() => {
      const due = Math.floor(((performance.now() - startTimeMs) / 1000) * perSecond);
      while (this.#started < due && !this.#isOver) {
        if (!this.#next(startTimeMs + ((this.#started + 1) / perSecond) * 1000)) break;
      }
    }, PACE_MS);
  }

  /** Starts a request if there is one to start. */
  #next(dueMs = performance.now()) {
    const { maxRequests } = this.#options;
    if (this.#isOver || (maxRequests !== undefined && this.#started >= maxRequests)) {
      if (this.#running === 0 && this.#started > 0) this.#end();
      return false;
    }
    this.#started += 1;
    this.#running += 1;
    this.#clientsMost = Math.max(this.#clientsMost, this.#running);
    try {
      this.#send(dueMs);
    } catch (error) {
      // A function of the caller has thrown: that is no error of the service.
      this.#fail(error);
    }
    return true;
  }

  #end() {
    if (this.#isOver) return;
    this.#isOver = true;
    // Requests that are open at the end have no result.
    for (const request of this.#open) request.destroy();
    this.#settle();
  }

  #fail(error) {
    this.#failure ??= error;
    this.#end();
  }

  #send(dueMs) {
    const params = this.#params();
    const body = this.#body(params);
    const { requestGenerator } = this.#options;
    let response;
    let isEnded = false;
    const finish = (error, result) => {
      if (isEnded) return;
      isEnded = true;
      clearTimeout(timer);
      this.#open.delete(request);
      if (!this.#isOver) this.#finish(params, dueMs, error, result);
    };
    const onResponse = (incoming) => {
      response = incoming;
      incoming.setEncoding("utf8");
      let text = "";
      incoming.on("data", (part) => {
        text += part;
      });
      incoming.on("end", () => finish(undefined, { response, text, labels: request.labels }));
      incoming.on("error", (error) => finish(error));
      incoming.on("aborted", () => finish(new Error("the response ended early")));
    };
    let request;
    if (requestGenerator === undefined) {
      request = this.#client.request(params, onResponse);
    } else {
      const send = (own, callback) => this.#client.request(own, callback);
      request = requestGenerator(this.#options, params, send, onResponse);
      if (typeof request?.end !== "function")
        throw new TypeError("requestGenerator has to return the request");
    }
    this.#open.add(request);
    const { timeout } = this.#options;
    const timer =
      timeout === undefined
        ? undefined
        : setTimeout(() => {
            finish(Object.assign(new Error("timeout"), { code: "timeout" }));
            request.destroy();
          }, timeout);
    request.on("error", (error) => finish(error));
    if (requestGenerator === undefined || body !== undefined) request.end(body);
    else if (!request.writableEnded) request.end();
  }

  /** The options of `http.request` for the next request. */
  #params() {
    const { url, method, headers, cookies, insecure, cert, key, ca } = this.#options;
    const params = {
      protocol: url.protocol,
      hostname: url.hostname.replace(/^\[(.*)\]$/, "$1"),
      port: url.port || undefined,
      path: this.#indexed(url.pathname + url.search),
      method,
      headers: { accept: "*/*", "user-agent": "tidewire-loadtest", ...headers },
      agent: this.#agent,
    };
    const pairs = Object.entries(cookies).map(([name, value]) => `${name}=${value}`);
    if (pairs.length > 0) params.headers.cookie = pairs.join("; ");
    if (insecure) params.rejectUnauthorized = false;
    if (cert !== undefined) params.cert = fs.readFileSync(cert);
    if (key !== undefined) params.key = fs.readFileSync(key);
    if (ca !== undefined) params.ca = fs.readFileSync(ca);
    return params;
  }

  #body(params) {
    let { body } = this.#options;
    if (body === undefined) return undefined;
    if (typeof body === "function") {
      body = body(randomUUID());
      if (typeof body === "object") body = JSON.stringify(body);
    }
    const text = this.#indexed(String(body), false);
    params.headers["content-length"] = Buffer.byteLength(text);
    return text;
  }

  /** A text with the index in place of its parameter. */
  #indexed(text, isNext = true) {
    const { indexParam, indexParamLiteral, indexParamCallback } = this.#options;
    if (isNext) this.#index += 1;
    if (indexParam === undefined && indexParamLiteral === undefined) return text;
    if (isNext) this.#value = indexParamCallback === undefined ? this.#index : indexParamCallback();
    const value = String(this.#value);
    if (indexParamLiteral !== undefined) return text.replace(indexParamLiteral, () => value);
    const pattern = indexParam instanceof RegExp ? indexParam.source : String(indexParam);
    return text.replace(new RegExp(pattern, "g"), () => value);
  }

  #value;

  #finish(params, dueMs, error, result) {
    const elapsedMs = performance.now() - dueMs;
    this.#running -= 1;
    this.#ended += 1;
    this.#sumMs += elapsedMs;
    this.#leastMs = Math.min(this.#leastMs, elapsedMs);
    this.#largestMs = Math.max(this.#largestMs, elapsedMs);
    const bucket = bucketOf(elapsedMs);
    this.#buckets.set(bucket, (this.#buckets.get(bucket) ?? 0) + 1);
    const told = result && {
      host: params.hostname,
      path: params.path,
      method: params.method,
      statusCode: result.response.statusCode,
      body: result.text,
      headers: result.response.headers,
      labels: result.labels,
      requestElapsed: elapsedMs,
      requestIndex: this.#ended - 1,
      instanceIndex: 0,
    };
    try {
      const code = error === undefined ? this.#codeOf(told) : (error.code ?? "error");
      if (code !== undefined) {
        this.#errors += 1;
        this.#errorCodes[code] = (this.#errorCodes[code] ?? 0) + 1;
      }
      const words = code === undefined ? null : (error?.message ?? `Status code ${code}`);
      this.#options.statusCallback?.(words, told);
    } catch (thrown) {
      this.#fail(thrown);
      return;
    }
    const { requestsPerSecond, maxRequests } = this.#options;
    if (requestsPerSecond === undefined) this.#next();
    else if (maxRequests !== undefined && this.#ended >= maxRequests) this.#end();
  }

  /** The code of an error that a response is; `undefined` for a good one. */
  #codeOf(told) {
    this.#options.contentInspector?.(told);
    if (told.customError)
      return told.customErrorCode ? `${told.statusCode}:${told.customErrorCode}` : "custom";
    return told.statusCode >= 400 ? String(told.statusCode) : undefined;
  }
}

/** The upper end of a bucket that is at most 1 % wide. */
function bucketOf(ms) {
  if (ms <= 0) return 0;
  const step = 10 ** (Math.floor(Math.log10(ms)) - 2);
  return Math.ceil(ms / step) * step;
}

const run = (options, print) => new ScriptRun(options, print).run();

module.exports = { run };
