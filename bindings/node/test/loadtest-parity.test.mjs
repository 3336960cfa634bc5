// `tidewire/loadtest` beside the npm module `loadtest`, on the same server: the same requests arrive, the results have the
// same fields, and the reports the same lines. Where ours differ on purpose, docs/node.md says so.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import fs from "node:fs";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { loadTest as theirs } from "loadtest";
import { Latency } from "loadtest/lib/latency.js";
import { Progress } from "../lib/loadtest/progress.js";
import { loadTest as ours, startServer } from "../loadtest.mjs";
import { soon } from "./support.mjs";

const BOTH = { ours, theirs };

/** A server that keeps what it is asked, in an order that does not depend on the connections. */
async function service(t, options = {}) {
  const seen = [];
  const logger = ({ method, url, headers, body }) => seen.push({ method, url, headers, body });
  const server = await startServer({ port: 0, quiet: true, logger, ...options });
  t.after(() => server.close());
  return { seen, url: `http://127.0.0.1:${server.port}/` };
}

/** What both modules make of the same options, with what arrived. */
async function both(t, { path: way = "", ...options }, served = {}) {
  const made = {};
  for (const [name, loadTest] of Object.entries(BOTH)) {
    const { seen, url } = await service(t, served);
    const result = await soon(loadTest({ concurrency: 1, quiet: true, ...options, url: `${url}${way}` }));
    made[name] = { result, seen };
  }
  return made;
}

/** What a request says, but for what names the client. */
const said = ({ method, url, headers, body }) => ({
  method,
  url,
  body,
  type: headers["content-type"],
  cookie: headers.cookie || undefined,
  own: headers["x-own"],
});

const REQUESTS = {
  "a GET": { maxRequests: 3 },
  headers: { maxRequests: 2, headers: { "X-Own": "1" } },
  "headers as lines": { maxRequests: 2, headers: ["x-own:1"] },
  cookies: { maxRequests: 2, cookies: ["a=1", "b=2"] },
  "a body": { maxRequests: 2, method: "POST", body: "text" },
  "a body of JSON": { maxRequests: 2, method: "PUT", body: { a: [1, "é"] }, contentType: "application/json" },
  "a form": {
    maxRequests: 2,
    method: "POST",
    body: { a: 1, b: "x y" },
    contentType: "application/x-www-form-urlencoded",
  },
  postBody: { maxRequests: 2, postBody: "text" },
  patchBody: { maxRequests: 2, patchBody: "text", contentType: "text/x-own" },
  "an index": { maxRequests: 3, path: "INDEX?n=INDEX", indexParam: "INDEX", postBody: "n=INDEX" },
  "a function for the index": {
    maxRequests: 3,
    path: "INDEX",
    indexParam: "INDEX",
    indexParamCallback: () => "seven",
  },
  "a function for the body": {
    maxRequests: 2,
    method: "POST",
    contentType: "text/plain",
    body: () => "made",
  },
  requestGenerator: {
    maxRequests: 2,
    method: "POST",
    requestGenerator: (_options, params, client, callback) => {
      const text = "generated";
      params.headers["x-own"] = "1";
      params.headers["content-length"] = text.length;
      const request = client(params, callback);
      request.write(text);
      return request;
    },
  },
};

for (const [name, options] of Object.entries(REQUESTS)) {
  test(`the same requests arrive: ${name}`, async (t) => {
    const made = await both(t, options);
    assert.deepEqual(made.ours.seen.map(said), made.theirs.seen.map(said));
    assert.equal(made.ours.seen.length, options.maxRequests);
  });
}

/** The kind of a value, as far as a user of the result relies on it. */
const kind = (value) => (value === undefined || Number.isNaN(value) ? "none" : typeof value);

test("the results have the same fields, of the same types", async (t) => {
  for (const options of [
    { maxRequests: 20 },
    { maxRequests: 20, agentKeepAlive: true },
    { maxRequests: 20, tcp: true },
    { maxRequests: 10, requestsPerSecond: 200 },
    { maxSeconds: 0.2 },
  ]) {
    const { ours, theirs } = await both(t, options);
    for (const [field, value] of Object.entries(theirs.result)) {
      assert.equal(kind(ours.result[field]), kind(value), `${field} with ${JSON.stringify(options)}`);
    }
    assert.deepEqual(Object.keys(ours.result.percentiles), Object.keys(theirs.result.percentiles));
    const told = ({ result }) => {
      const { concurrency, agent, errorCodes, totalErrors, clients } = result;
      return { concurrency, agent, errorCodes, totalErrors, clients };
    };
    if (options.requestsPerSecond === undefined) assert.deepEqual(told(ours), told(theirs));
    if (options.maxRequests !== undefined) {
      assert.equal(ours.result.totalRequests, theirs.result.totalRequests);
    }
  }
});

test("errors have the same codes", async (t) => {
  const { ours, theirs } = await both(t, { maxRequests: 5, statusCallback: () => {} }, { error: 404 });
  assert.deepEqual(ours.result.errorCodes, theirs.result.errorCodes);
  assert.deepEqual(
    [ours.result.totalErrors, ours.result.totalRequests],
    [theirs.result.totalErrors, theirs.result.totalRequests],
  );
});

test("statusCallback is called with the same fields", async (t) => {
  const calls = {};
  for (const [name, loadTest] of Object.entries(BOTH)) {
    const { url } = await service(t, { body: "text" });
    calls[name] = [];
    const statusCallback = (error, result) => calls[name].push([error, { ...result }]);
    await soon(loadTest({ url, maxRequests: 3, concurrency: 1, statusCallback, quiet: true }));
  }
  assert.equal(calls.ours.length, calls.theirs.length);
  for (const [index, [error, result]] of calls.theirs.entries()) {
    const [ourError, ourResult] = calls.ours[index];
    // What is no error is null or undefined.
    assert.equal(ourError ?? null, error ?? null);
    // Theirs knows no host.
    for (const field of Object.keys(result).filter((name) => name !== "host")) {
      assert.equal(kind(ourResult[field]), kind(result[field]), field);
    }
    for (const field of ["path", "method", "statusCode", "body", "requestIndex"]) {
      assert.deepEqual(ourResult[field], result[field], field);
    }
  }
});

const here = (name) => fileURLToPath(new URL(name, import.meta.url));
const PROGRAMS = {
  ours: here("../bin/tidewire-loadtest.js"),
  theirs: here("../node_modules/loadtest/bin/loadtest.js"),
};

function run(program, words, cwd) {
  return new Promise((resolve) => {
    execFile(process.execPath, [program, ...words], { cwd, timeout: 60_000 }, (error, stdout, stderr) => {
      resolve({ code: error?.code ?? 0, stdout, stderr });
    });
  });
}

/** A report without its figures: `Mean latency:        N ms`. */
const shape = (text) =>
  text
    .trimEnd()
    .split("\n")
    .map((line) => (line.startsWith("Target URL:") ? "Target URL:" : line.replace(/\d+(\.\d+)?/g, "N")))
    .map((line) => line.replace(/^ +N/, " N"));

const WORDS = {
  plain: ["-n", "20", "-c", "2"],
  "keep-alive": ["-n", "20", "-c", "2", "-k"],
  "a rate": ["-n", "20", "--rps", "200"],
  headers: ["-n", "4", "-c", "1", "-H", "x-own:1", "-C", "a=1"],
  "a body": ["-n", "4", "-c", "1", "-m", "POST", "-P", "text", "-T", "text/x-own"],
  time: ["-t", "1", "-c", "1"],
};

for (const [name, words] of Object.entries(WORDS)) {
  test(`the programs print the same lines: ${name}`, async (t) => {
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
    t.after(() => fs.rmSync(folder, { recursive: true }));
    const printed = {};
    const arrived = {};
    for (const [who, program] of Object.entries(PROGRAMS)) {
      const { seen, url } = await service(t);
      const cores = ["--cores", "1"];
      const { code, stdout } = await run(program, [...words, ...cores, "--quiet", url], folder);
      assert.equal(code, 0);
      printed[who] = shape(stdout);
      arrived[who] = seen.map(said);
    }
    assert.deepEqual(printed.ours, printed.theirs);
    if (words[0] === "-n") assert.deepEqual(arrived.ours, arrived.theirs);
  });
}

test("the lines while a load runs are the same", (t) => {
  const steps = [
    { requests: 10, errors: 0, sumMs: 25 },
    { requests: 5, errors: 2, sumMs: 35 },
    { requests: 0, errors: 0, sumMs: 0 },
    { requests: 20, errors: 0, sumMs: 8 },
  ];
  for (const options of [{ maxRequests: 40 }, { maxSeconds: 30 }]) {
    const [ours, theirs] = [[], []];
    const latency = new Latency({ options });
    const { mock } = t.mock.method(console, "info", (line) => theirs.push(line));
    const progress = new Progress(options, (line) => ours.push(line));
    const sums = { ms: 0, requests: 0, errors: 0, latencies: 0, latencySumMs: 0 };
    for (const { requests, errors, sumMs } of steps) {
      for (let number = 0; number < requests; number += 1) {
        latency.totalRequests += 1;
        latency.add(sumMs / requests, number < errors ? "500" : undefined);
      }
      latency.lastShownNs = latency.getTimeNs() - 5_000_000_000n;
      latency.showPartial();
      sums.ms += 5_000;
      sums.requests += requests;
      sums.errors += errors;
      sums.latencies += requests;
      sums.latencySumMs += sumMs;
      progress.show({ ...sums });
    }
    mock.restore();
    assert.deepEqual(ours, theirs);
    assert.match(ours[2], /^Errors: 2, accumulated errors: 2, 13\.3% of total requests$/);
  }
});

test("both programs print lines while they run, with and without functions for each request", async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  const generator = path.join(folder, "generator.mjs");
  fs.writeFileSync(
    generator,
    "export default (_options, params, client, callback) => client(params, callback);",
  );
  const words = ["-t", "5.6", "-c", "2", "--cores", "1"];
  const { url } = await service(t, { delay: 50, percent: 50 });
  const runs = [
    [PROGRAMS.theirs, []],
    [PROGRAMS.ours, []],
    [PROGRAMS.ours, ["-R", generator]],
  ].map(([program, more]) => run(program, [...words, ...more, url], folder));
  const [theirs, ...ours] = (await Promise.all(runs)).map(({ stdout }) =>
    shape(stdout).filter((line) => /^(Requests|Errors):/.test(line)),
  );
  assert.equal(theirs.length, 2);
  assert.deepEqual(ours, [theirs, theirs]);
});

test("both programs read the same rc file", async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  // Theirs cannot use headers or a body from the file: it ends with "Configuration result is immutable".
  // The last three are for their test server.
  const ofServer = { delay: 5, error: 500, percent: "100" };
  const settings = { maxRequests: 6, concurrency: 2, method: "PUT", agentKeepAlive: true, ...ofServer };
  fs.writeFileSync(path.join(folder, ".loadtestrc"), JSON.stringify(settings));
  const arrived = {};
  for (const [who, program] of Object.entries(PROGRAMS)) {
    const { seen, url } = await service(t);
    await run(program, ["--cores", "1", "--quiet", url], folder);
    arrived[who] = seen.map(said);
  }
  assert.deepEqual(arrived.ours, arrived.theirs);
  assert.equal(arrived.ours.length, 6);
});

/** Runs `loadTest` with some options in a folder, as a program does. */
function loadIn(folder, module, options) {
  const source = `
    import { loadTest } from ${JSON.stringify(module)};
    const { totalRequests, concurrency } = await loadTest(${JSON.stringify(options)});
    console.log(JSON.stringify({ totalRequests, concurrency }));`;
  const words = ["--input-type=module", "-e", source];
  return new Promise((resolve, reject) => {
    execFile(process.execPath, words, { cwd: folder, timeout: 60_000 }, (error, stdout) => {
      if (error === null) resolve(JSON.parse(stdout));
      else reject(error);
    });
  });
}

test("both interfaces read the same rc file", async (t) => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  fs.writeFileSync(path.join(folder, ".loadtestrc"), '{"maxRequests": 6, "concurrency": 2, "method": "PUT"}');
  const modules = {
    ours: new URL("../loadtest.mjs", import.meta.url).href,
    theirs: import.meta.resolve("loadtest"),
  };
  for (const module of Object.values(modules)) {
    const { seen, url } = await service(t);
    const result = await loadIn(folder, module, { url, concurrency: 3, quiet: true });
    assert.deepEqual(result, { totalRequests: 6, concurrency: 3 });
    assert.deepEqual(
      seen.map(({ method }) => method),
      Array(6).fill("PUT"),
    );
  }
  const usual = { maxRequests: 1, body: "usual", method: "POST", headers: { "x-own": "1", "x-other": "1" } };
  fs.writeFileSync(path.join(folder, ".loadtestrc"), JSON.stringify(usual));
  const { seen, url } = await service(t);
  await loadIn(folder, modules.ours, { url, patchBody: "given", headers: ["x-own:2"], quiet: true });
  const [{ method, body, headers }] = seen;
  assert.deepEqual([method, body, headers["x-own"], headers["x-other"]], ["PATCH", "given", "2", "1"]);
});
