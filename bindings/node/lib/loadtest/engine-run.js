"use strict";

// A load without functions of the caller: the load generator carries it out at full speed.

const { performance } = require("node:perf_hooks");
const { InvalidArgumentError } = require("../errors.js");
const { watchedLoad } = require("../load.js");
const { Progress } = require("./progress.js");
const { latencies, Result } = require("./result.js");

async function run(options, print) {
  const isWebSocket = options.url.protocol.startsWith("ws");
  const written = {
    connections: connectionsOf(options),
    requests: options.maxRequests,
    durationS: options.maxSeconds,
    ratePerS: options.requestsPerSecond,
    threads: options.cores,
    timeoutMs: options.timeout,
    insecure: options.insecure ? true : undefined,
    cert: options.cert,
    key: options.key,
    ca: options.ca,
    proxy: options.proxy,
    headers: options.headers,
    cookies: options.cookies,
    keepCookies: isWebSocket ? undefined : false,
    signal: options.signal,
  };
  if (isWebSocket) {
    written.message = options.body ?? '{"some":"message"}';
    written.reply = "order";
  } else {
    written.method = options.method;
    written.body = options.body;
    written.keepAlive = options.agentKeepAlive;
  }
  const progress = new Progress(options, print);
  const watch = ({ elapsedS, succeeded, failed, latencies, latencySumMs }) => {
    const ms = elapsedS * 1000;
    if (!progress.isDue(ms)) return;
    progress.show({ ms, requests: succeeded + failed, errors: failed, latencies, latencySumMs });
  };
  const startTimeMs = performance.now();
  let loaded;
  try {
    loaded = await watchedLoad(options.url, written, watch);
  } catch (error) {
    throw new InvalidArgumentError(error.message, { cause: error });
  }
  return resultOf(options, loaded, startTimeMs);
}

/** More connections than requests would have nothing to do. */
function connectionsOf({ concurrency, maxRequests }) {
  return Math.max(1, Math.min(Math.floor(concurrency), maxRequests ?? Number.POSITIVE_INFINITY));
}

function resultOf(options, loaded, startTimeMs) {
  const result = loaded.report.results[0] ?? {};
  const errorCodes = {};
  for (const [status, count] of Object.entries(result.statuses ?? {})) {
    if (Number(status) >= 400) errorCodes[status] = count;
  }
  for (const [name, count] of Object.entries(result.errors ?? {})) {
    // Statuses are counted above, each under its own number.
    if (name !== "unexpected-status") errorCodes[name] = count;
  }
  const buckets = (result.histogram ?? []).map(([us, count]) => [us / 1000, count]);
  const latency = loaded.latencyMs;
  const count = buckets.reduce((sum, [, number]) => sum + number, 0);
  const fields = latencies(buckets, (latency.mean ?? 0) * count, [latency.min ?? 0, latency.max ?? 0]);
  if (latency.mean !== undefined) fields.meanLatencyMs = latency.mean;
  for (const percent of [50, 90, 95, 99]) {
    if (latency[`p${percent}`] !== undefined) fields.percentiles[percent] = latency[`p${percent}`];
  }
  return Result.of(options, {
    startTimeMs,
    stopTimeMs: startTimeMs + 1000 * (result.duration_s ?? 0),
    totalRequests: loaded.succeeded + loaded.failed,
    errorCodes,
    latencies: fields,
    clients: connectionsOf(options),
  });
}

module.exports = { run };
