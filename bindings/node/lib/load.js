"use strict";

// Loading any HTTP or WebSocket service, and what came of it.

const { callable, shown, text } = require("./arguments.js");
const { ConfigurationError, translated, WrongTypeError } = require("./errors.js");
const { unknown } = require("./names.js");
const native = require("./native.js");

const camelCase = (name) => name.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase());

/** The options: those of `tidewire load` (docs/load-options.md), in camelCase. */
const loadOptionNames = () => native.NativeLoad.optionNames().map(camelCase);
const KNOWN = new Set([...loadOptionNames(), "onProgress", "signal"]);

/** The result of a load. `report` has everything; the other properties are the most used. */
class LoadResult {
  #text;

  constructor(reportText, exitCode) {
    this.#text = reportText;
    this.exitCode = exitCode;
    this.report = JSON.parse(reportText);
  }

  get #result() {
    return this.report.results[0] ?? {};
  }

  /** Successful requests or messages in a second. */
  get ratePerS() {
    return this.#result.rate_per_s ?? 0;
  }

  /** Requests or messages whose response passed every check. */
  get succeeded() {
    return this.#result.requests?.succeeded ?? 0;
  }

  /** Requests or messages without a whole response, or with one that did not pass a check. */
  get failed() {
    return this.#result.requests?.failed ?? 0;
  }

  /** Whole responses by status. */
  get statuses() {
    return { ...this.#result.statuses };
  }

  /** The errors, by name. */
  get errors() {
    return { ...this.#result.errors };
  }

  /** Latency of all requests that were due in milliseconds, with those that failed at their age: `p50`, `p90`, `p99`, `min`, `mean`, `max` and more. */
  get latencyMs() {
    const entries = Object.entries(this.#result.latency_us ?? {});
    const numbers = entries.filter(([name, value]) => typeof value === "number" && name !== "count");
    return Object.fromEntries(numbers.map(([name, value]) => [name, value / 1000]));
  }

  /** `valid`, `generator_bound`, `noisy` or `failed`. */
  get verdict() {
    return this.#result.verdict ?? "failed";
  }

  /** Whether every expectation was kept. */
  get asExpected() {
    return (this.#result.expectations ?? []).every(({ kept }) => kept);
  }

  /** Whether the load was ended early, such as by its signal. */
  get interrupted() {
    return this.report.partial === true;
  }

  /** Notes for a reader, in sentences. */
  get notes() {
    return [...(this.#result.notes ?? [])];
  }

  /** The tables that `tidewire load` prints. */
  tables() {
    return run(() => native.reportTables(this.#text));
  }

  /** Writes report.json, report.html and report.md to a directory, which is made; the path of the page. */
  save(directory) {
    return run(() => native.saveReport(this.#text, text("directory", directory)));
  }

  toJSON() {
    return this.report;
  }
}

/**
 * Loads an HTTP or WebSocket service, with the options of `tidewire load` in camelCase.
 *
 * `onProgress` is called about twenty times a second. `signal` ends the load early, with a result that is `interrupted`;
 * what `onProgress` throws ends it, too, and rejects the promise. A service that refuses, lies or is not there is a result
 * and no error.
 */
async function load(url, options = {}) {
  if (typeof options !== "object" || options === null) {
    throw new WrongTypeError(`the options of a load are an object, not ${shown(options)}`);
  }
  const { onProgress, ...given } = options;
  if (onProgress === undefined) return await watchedLoad(url, given, () => {});
  callable("onProgress", onProgress);
  return await watchedLoad(url, given, ({ elapsedS, ratePerS, succeeded, failed, connected }) =>
    onProgress({ elapsedS, ratePerS, succeeded, failed, connected }),
  );
}

/** `load` whose `watch` also receives the number of latencies so far, and their sum. Within this package. */
async function watchedLoad(url, options, watch) {
  if (url instanceof URL) url = url.href;
  text("url", url);
  const { signal, ...given } = options;
  if (signal !== undefined && !(signal instanceof AbortSignal))
    throw new WrongTypeError("signal is an AbortSignal");
  const written = {};
  for (const [name, value] of Object.entries(given)) {
    if (!KNOWN.has(name)) throw new ConfigurationError(unknown(name, KNOWN));
    written[snakeCase(name)] = value;
  }
  signal?.throwIfAborted();
  const job = run(() => new native.NativeLoad(url, JSON.stringify(written)));
  let thrown;
  // Of the windows that have ended. Each is in the figures until the next one ends, which takes a second.
  let windowS = -1;
  let latencies = 0;
  let latencySumMs = 0;
  const show = ([elapsedS, ratePerS, succeeded, failed, connected, startS, count, meanUs]) => {
    if (thrown !== undefined) return;
    if (startS > windowS) {
      windowS = startS;
      latencies += count;
      latencySumMs += (count * meanUs) / 1000;
    }
    try {
      watch({ elapsedS, ratePerS, succeeded, failed, connected, latencies, latencySumMs });
    } catch (error) {
      thrown = { error };
      job.stop();
    }
  };
  const stop = () => job.stop();
  signal?.addEventListener("abort", stop);
  try {
    const [report, exitCode] = await job.run(show);
    if (thrown !== undefined) throw thrown.error;
    return new LoadResult(report, exitCode);
  } catch (error) {
    throw camelCased(translated(error));
  } finally {
    signal?.removeEventListener("abort", stop);
  }
}

const snakeCase = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

const NAME_LENGTH_MAX = 64;

/** Errors of options say their names as they are written here. */
function camelCased(error) {
  if (error?.code === "INVALID_ARGUMENT") {
    // One run of letters is looked at once: a message may contain a URL of any length.
    error.message = error.message.replace(/[a-z_]+/g, (name) => {
      if (name.length > NAME_LENGTH_MAX) return name;
      const camel = camelCase(name);
      return KNOWN.has(camel) ? camel : name;
    });
  }
  return error;
}

function run(action) {
  try {
    return action();
  } catch (error) {
    throw camelCased(translated(error));
  }
}

module.exports = { LoadResult, load, loadOptionNames, watchedLoad };
