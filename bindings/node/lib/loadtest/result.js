"use strict";

// The result that the users of `loadtest` know. Latencies have their fractions of a millisecond.

const PERCENTILES = [50, 90, 95, 99];

/** The result of a load; `show` prints it, `combine` adds another. */
class Result {
  constructor(fields) {
    Object.assign(this, fields);
  }

  /** Makes the fields that follow from others. */
  static of(options, { startTimeMs, stopTimeMs, totalRequests, errorCodes, latencies, clients }) {
    const elapsedSeconds = (stopTimeMs - startTimeMs) / 1000;
    const totalErrors = Object.values(errorCodes).reduce((sum, count) => sum + count, 0);
    const rps = elapsedSeconds > 0 ? Math.round(totalRequests / elapsedSeconds) : 0;
    return new Result({
      url: options.url.href,
      cores: undefined,
      maxRequests: options.maxRequests,
      maxSeconds: options.maxSeconds,
      concurrency: options.concurrency,
      agent: options.tcp ? "tcp" : options.agentKeepAlive ? "keepalive" : "none",
      requestsPerSecond: options.requestsPerSecond,
      clients,
      startTimeMs,
      stopTimeMs,
      elapsedSeconds,
      totalTimeSeconds: elapsedSeconds,
      totalRequests,
      totalErrors,
      ...latencies,
      effectiveRps: rps,
      rps,
      errorCodes,
      instanceIndex: 0,
    });
  }

  /** Adds the figures of another result, as if both were one load. */
  combine(other) {
    const start = Math.min(this.startTimeMs, other.startTimeMs);
    const stop = Math.max(this.stopTimeMs, other.stopTimeMs);
    const errorCodes = { ...this.errorCodes };
    for (const [code, count] of Object.entries(other.errorCodes))
      errorCodes[code] = (errorCodes[code] ?? 0) + count;
    const buckets = new Map(this._buckets);
    for (const [ms, count] of other._buckets) buckets.set(ms, (buckets.get(ms) ?? 0) + count);
    const options = { ...this, url: new URL(this.url) };
    const fields = {
      startTimeMs: start,
      stopTimeMs: stop,
      totalRequests: this.totalRequests + other.totalRequests,
      errorCodes,
      latencies: latencies([...buckets], this.accumulatedMs + other.accumulatedMs, [
        Math.min(this.minLatencyMs, other.minLatencyMs),
        Math.max(this.maxLatencyMs, other.maxLatencyMs),
      ]),
      clients: this.clients + other.clients,
    };
    const concurrency = this.concurrency + other.concurrency;
    Object.assign(this, Result.of({ ...options, concurrency }, fields));
    this.cores = (this.cores ?? 1) + (other.cores ?? 1);
  }

  /** Prints the report. */
  show() {
    console.info(this.text());
  }

  /** The lines of the report. */
  text() {
    const lines = [];
    const line = (name, value) => lines.push(`${name.padEnd(21)}${value}`);
    const gap = () => lines.push("");
    gap();
    line("Target URL:", this.url);
    if (this.maxRequests !== undefined) line("Max requests:", this.maxRequests);
    else line("Max time (s):", this.maxSeconds);
    if (this.requestsPerSecond) line("Target rps:", this.requestsPerSecond);
    line("Concurrent clients:", this.clients);
    if (this.cores !== undefined) line("Running on cores:", this.cores);
    line("Agent:", this.agent);
    gap();
    line("Completed requests:", this.totalRequests);
    line("Total errors:", this.totalErrors);
    line("Total time:", `${rounded(this.totalTimeSeconds)} s`);
    line("Mean latency:", `${rounded(this.meanLatencyMs)} ms`);
    line("Effective rps:", this.effectiveRps);
    gap();
    lines.push("Percentage of requests served within a certain time");
    for (const percent of PERCENTILES) {
      lines.push(`${String(percent).padStart(4)}%      ${rounded(this.percentiles[percent])} ms`);
    }
    lines.push(` 100%      ${rounded(this.maxLatencyMs)} ms (longest request)`);
    const codes = Object.entries(this.errorCodes);
    if (codes.length > 0) gap();
    for (const [code, count] of codes) lines.push(`${code.padStart(4)}:   ${count} errors`);
    return lines.join("\n");
  }
}

/** The fields about latency, from buckets of milliseconds and counts. `ends` are the least and the largest. */
function latencies(buckets, accumulatedMs, [least, largest]) {
  const sorted = [...buckets].sort(([one], [other]) => one - other);
  const count = sorted.reduce((sum, [, number]) => sum + number, 0);
  const histogramMs = {};
  for (const [ms, number] of sorted) {
    const whole = Math.floor(ms);
    histogramMs[whole] = (histogramMs[whole] ?? 0) + number;
  }
  const fields = {
    accumulatedMs,
    meanLatencyMs: count === 0 ? 0 : accumulatedMs / count,
    minLatencyMs: count === 0 ? 0 : least,
    maxLatencyMs: count === 0 ? 0 : largest,
    percentiles: Object.fromEntries(
      PERCENTILES.map((percent) => [percent, percentile(sorted, count, percent, largest)]),
    ),
    histogramMs,
  };
  Object.defineProperty(fields, "_buckets", { value: sorted, enumerable: true });
  return fields;
}

/** The latency that this part of the requests kept: the nearest rank. */
function percentile(sorted, count, percent, largest) {
  const rank = Math.max(1, Math.ceil((percent / 100) * count));
  let seen = 0;
  for (const [ms, number] of sorted) {
    seen += number;
    if (seen >= rank) return Math.min(ms, largest);
  }
  return 0;
}

const rounded = (value) => Number(value.toFixed(3));

module.exports = { Result, latencies };
