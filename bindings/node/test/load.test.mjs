// Loads of real servers, by `load` and with the interface of the npm module `loadtest`.

import assert from "node:assert/strict";
import { execFile, execFileSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import path from "node:path";
import { test } from "node:test";
import { ConfigurationError, InvalidArgumentError, load } from "../index.mjs";
import programModule from "../lib/loadtest/program.js";
import { loadTest, startServer } from "../loadtest.mjs";
import { serve, soon } from "./support.mjs";

async function service(t, options = {}) {
  const server = await startServer({ port: 0, quiet: true, ...options });
  t.after(() => server.close());
  return { server, url: `http://127.0.0.1:${server.port}/` };
}

test("a load of HTTP has a result", async (t) => {
  const { server, url } = await service(t);
  const progress = [];
  const result = await soon(
    load(url, {
      connections: 4,
      requests: 500,
      headers: { "x-a": "b" },
      onProgress: (figures) => progress.push(figures),
    }),
  );
  assert.equal(result.succeeded, 500);
  assert.equal(result.failed, 0);
  assert.deepEqual(result.statuses, { 200: 500 });
  assert.equal(server.totalRequests, 500);
  assert.ok(result.latencyMs.p50 > 0 && result.latencyMs.p50 <= result.latencyMs.max);
  assert.equal(result.interrupted, false);
  assert.match(result.tables(), /p99/);
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  assert.ok(fs.existsSync(result.save(folder)));
  for (const figures of progress) assert.equal(typeof figures.elapsedS, "number");
});

test("a load of WebSocket", async (t) => {
  const server = await serve(t, { protocol: "raw" }, (server) => {
    server.on("*", (message) => message.connection.sendRaw(message));
  });
  const result = await soon(
    load(server.url, { connections: 3, requests: 300, message: "hello", reply: "order" }),
  );
  assert.equal(result.succeeded, 300);
});

test("a URL of any length is refused at once", async () => {
  // Ten thousand million steps per look at each letter would take hours.
  const letters = "a".repeat(2_000_000);
  for (const url of [letters, `http://${letters}.example/`, `ftp://a/${letters}`]) {
    await assert.rejects(soon(load(url, { requests: 1 })), InvalidArgumentError);
  }
});

test("a signal ends a load early, with what was measured", async (t) => {
  const { url } = await service(t);
  const controller = new AbortController();
  const result = await soon(
    load(url, {
      durationS: 600,
      connections: 2,
      signal: controller.signal,
      onProgress: ({ succeeded }) => succeeded > 0 && controller.abort(),
    }),
  );
  assert.equal(result.interrupted, true);
  assert.ok(result.succeeded > 0);
  await assert.rejects(load(url, { signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("what the progress function throws ends the load", async (t) => {
  const { url } = await service(t);
  const onProgress = () => {
    throw new RangeError("enough");
  };
  await assert.rejects(soon(load(url, { durationS: 600, onProgress })), RangeError);
});

test("a service that is not there is a result, a wrong option an error", async () => {
  const result = await soon(load("http://127.0.0.1:1/", { durationS: 0.2, connections: 1 }));
  assert.equal(result.succeeded, 0);
  assert.equal(result.exitCode, 1);
  await assert.rejects(load("http://127.0.0.1:1/", { conections: 1 }), (error) => {
    return error instanceof ConfigurationError && error.message.includes("did you mean connections?");
  });
  await assert.rejects(load("ftp://127.0.0.1/"), InvalidArgumentError);
  await assert.rejects(load("http://127.0.0.1/", { connections: "many" }), InvalidArgumentError);
});

test("nothing is as expected if nobody was connected", async () => {
  const expect = ["p99<1s", "errors<1%", "connected>0"];
  const result = await soon(load("http://127.0.0.1:1/", { requests: 5, connections: 1, expect }));
  assert.equal(result.asExpected, false);
  assert.equal(result.exitCode, 1);
  assert.deepEqual(
    result.report.results[0].expectations.map(({ kept }) => kept),
    [false, false, false],
  );
});

test("an option without an effect is an error", async () => {
  await assert.rejects(load("http://127.0.0.1:1/", { message: "hello" }), (error) => {
    return error instanceof InvalidArgumentError && error.message.includes("--message is for ws://");
  });
  await assert.rejects(load("ws://127.0.0.1:1/", { stepS: 1 }), /stepS needs findLimit/);
});

test("the event loop goes on while a load is prepared", async (t) => {
  const { url } = await service(t);
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  // It can be read when somebody writes it: reading it takes as long as a slow resolver.
  const scenario = path.join(folder, "scenario.toml");
  execFileSync("mkfifo", [scenario]);
  const text = '[[request]]\npath = "/"\n';
  // If the event loop waits, another process ends the wait, and the test fails.
  const write = "setTimeout(() => fs.writeFileSync(process.argv[1], process.argv[2]), 20_000)";
  const helper = execFile(process.execPath, ["-e", write, scenario, text]);
  t.after(() => helper.kill("SIGKILL"));
  let turns = 0;
  const loading = load(url, { scenario, requests: 5, connections: 1 });
  const timer = setInterval(() => {
    turns += 1;
    if (turns === 3) fs.writeFile(scenario, text, () => {});
  }, 20);
  t.after(() => clearInterval(timer));
  const result = await soon(loading);
  assert.equal(result.succeeded, 5);
  assert.ok(turns >= 3, `${turns} turns`);
});

test("loadTest: the fields of the result", async (t) => {
  const { server, url } = await service(t);
  const result = await soon(
    loadTest({ url, maxRequests: 100, concurrency: 5, agentKeepAlive: true, quiet: true }),
  );
  assert.equal(result.totalRequests, 100);
  assert.equal(server.totalRequests, 100);
  assert.equal(result.totalErrors, 0);
  assert.deepEqual(result.errorCodes, {});
  assert.equal(result.agent, "keepalive");
  assert.equal(result.rps, result.effectiveRps);
  assert.equal(result.totalTimeSeconds, result.elapsedSeconds);
  assert.ok(result.minLatencyMs <= result.meanLatencyMs && result.meanLatencyMs <= result.maxLatencyMs);
  for (const percent of [50, 90, 95, 99]) assert.ok(result.percentiles[percent] > 0, `percentile ${percent}`);
  assert.equal(
    Object.values(result.histogramMs).reduce((sum, count) => sum + count, 0),
    100,
  );
  assert.match(result.text(), /^Completed requests: {2}100$/m);
  assert.match(result.text(), /^ {2}50% {6}[\d.]+ ms$/m);
});

test("loadTest: errors are counted under their statuses, and once", async (t) => {
  const { url } = await service(t, { error: 503 });
  const result = await soon(loadTest({ url, maxRequests: 20, concurrency: 2, quiet: true }));
  assert.deepEqual(result.errorCodes, { 503: 20 });
  assert.deepEqual([result.totalRequests, result.totalErrors], [20, 20]);
  const slow = await service(t, { delay: 5_000 });
  const late = await soon(
    loadTest({ url: slow.url, maxRequests: 4, concurrency: 4, timeout: 50, quiet: true }),
  );
  assert.deepEqual([late.totalRequests, late.totalErrors], [4, 4]);
  const told = [];
  const statusCallback = (error, result) => told.push([error, result]);
  const byScript = await soon(
    loadTest({ url: slow.url, maxRequests: 4, concurrency: 4, timeout: 50, statusCallback, quiet: true }),
  );
  assert.deepEqual([byScript.totalRequests, byScript.errorCodes], [4, { timeout: 4 }]);
  assert.deepEqual(told[0], ["timeout", undefined]);
});

test("loadTest: a callback, and mistakes", async (t) => {
  const { url } = await service(t);
  const [error, result] = await soon(
    new Promise((resolve) => {
      assert.equal(
        loadTest({ url, maxRequests: 3, quiet: true }, (...given) => resolve(given)),
        undefined,
      );
    }),
  );
  assert.equal(error, null);
  assert.equal(result.totalRequests, 3);
  await assert.rejects(loadTest({}), /url is missing/);
  await assert.rejects(loadTest({ url: "ftp://a" }), InvalidArgumentError);
  await assert.rejects(loadTest({ url, method: "FETCH" }), /method/);
  await assert.rejects(loadTest({ url, maxRequest: 1 }), /did you mean maxRequests/);
  await assert.rejects(loadTest({ url, concurrency: "x" }), /concurrency/);
});

test("loadTest: bodies have a length and a type", async (t) => {
  const seen = [];
  const logger = ({ method, headers, body }) =>
    seen.push([method, headers["content-type"], headers["content-length"], body]);
  const { url } = await service(t, { logger });
  await soon(loadTest({ url, maxRequests: 1, body: { a: "é" }, method: "POST", quiet: true }));
  await soon(loadTest({ url, maxRequests: 1, postBody: "text", quiet: true }));
  await soon(
    loadTest({
      url,
      maxRequests: 1,
      method: "PUT",
      body: { a: 1 },
      contentType: "application/x-www-form-urlencoded",
      quiet: true,
    }),
  );
  await soon(
    loadTest({ url, maxRequests: 1, method: "POST", body: (id) => ({ id: id.length }), quiet: true }),
  );
  assert.deepEqual(seen, [
    ["POST", "application/json", "10", '{"a":"é"}'],
    ["POST", "text/plain", "4", "text"],
    ["PUT", "application/x-www-form-urlencoded", "3", "a=1"],
    ["POST", "text/plain", "9", '{"id":36}'],
  ]);
});

test("loadTest: functions for each request", async (t) => {
  const urls = new Set();
  const bodies = new Set();
  const { url } = await service(t, {
    logger: (request) => {
      urls.add(request.url);
      bodies.add(request.body);
    },
  });
  const statuses = [];
  await soon(
    loadTest({
      url: `${url}INDEX/`,
      maxRequests: 50,
      postBody: "n=INDEX",
      indexParam: "INDEX",
      statusCallback: (error, result) => statuses.push([error, result.statusCode, result.requestIndex]),
      quiet: true,
    }),
  );
  assert.deepEqual([urls.size, bodies.size, statuses.length], [50, 50, 50]);
  assert.deepEqual(statuses[0], [null, 200, 0]);

  const inspected = await soon(
    loadTest({
      url,
      maxRequests: 10,
      contentInspector: (result) => {
        if (result.body === "OK") Object.assign(result, { customError: true, customErrorCode: "TOO_GOOD" });
      },
      quiet: true,
    }),
  );
  assert.deepEqual(inspected.errorCodes, { "200:TOO_GOOD": 10 });

  const heads = [];
  const other = await service(t, {
    logger: (request) => heads.push([request.headers["x-number"], request.body]),
  });
  let number = 0;
  await soon(
    loadTest({
      url: other.url,
      maxRequests: 20,
      requestsPerSecond: 1_000,
      method: "POST",
      requestGenerator: (_options, params, client, callback) => {
        number += 1;
        params.headers["x-number"] = number;
        params.headers["content-length"] = 2;
        const request = client(params, callback);
        request.write("hi");
        return request;
      },
      quiet: true,
    }),
  );
  assert.deepEqual(
    heads.map(([head]) => Number(head)).sort((a, b) => a - b),
    [...Array(20).keys()].map((n) => n + 1),
  );
  assert.ok(heads.every(([, body]) => body === "hi"));
  await assert.rejects(
    loadTest({
      url,
      maxRequests: 10,
      statusCallback: () => {
        throw new RangeError("mine");
      },
    }),
    RangeError,
  );
});

test("loadTest: a rate is kept with and without functions", async (t) => {
  const { url } = await service(t);
  for (const extra of [{}, { statusCallback: () => {} }]) {
    const result = await soon(
      loadTest({ url, requestsPerSecond: 100, maxSeconds: 1, concurrency: 5, quiet: true, ...extra }),
    );
    assert.ok(result.totalRequests <= 110, `${result.totalRequests} requests in a second at 100 a second`);
    assert.ok(result.totalRequests >= 20);
  }
});

test("loadTest: WebSocket, and a server that is not there", async (t) => {
  const { url } = await service(t);
  const result = await soon(
    loadTest({ url: url.replace("http", "ws"), maxRequests: 100, concurrency: 3, quiet: true }),
  );
  assert.deepEqual([result.totalRequests, result.totalErrors], [100, 0]);
  for (const extra of [{}, { statusCallback: () => {} }, { indexParam: "a" }]) {
    const failed = await soon(
      loadTest({ url: "http://127.0.0.1:1/", maxSeconds: 0.1, quiet: true, ...extra }),
    );
    assert.equal(failed.totalRequests, failed.totalErrors);
  }
});

test("the test server answers as it is told", async (t) => {
  const { server, url } = await service(t, { error: 500, percent: 50, delay: 1, body: "fine" });
  const statuses = new Set();
  for (let number = 0; number < 60; number++) statuses.add((await fetch(url)).status);
  assert.deepEqual([...statuses].sort(), [200, 500]);
  await assert.rejects(startServer({ port: server.port, quiet: true }), /in use/);
  const shouldErrorCustom = (request) => request.url === "/bad" || request.body === "bad";
  const custom = await service(t, { body: "fine", shouldErrorCustom, error: 503, percent: 0 });
  const status = async (path, body) =>
    (await fetch(custom.url + path, body ? { method: "POST", body } : {})).status;
  assert.equal(await status(""), 200);
  assert.equal(await status("bad"), 503);
  assert.equal(await status("", "bad"), 503);
  assert.equal(await status("", "good"), 200);
  const blocker = http.createServer().listen(0);
  await once(blocker, "listening");
  blocker.close();
});

const program = (words, cwd = os.tmpdir()) =>
  new Promise((resolve) => {
    const file = path.join(
      import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname),
      "../bin/tidewire-loadtest.js",
    );
    execFile(process.execPath, [file, ...words], { cwd, timeout: 60_000 }, (error, stdout, stderr) => {
      resolve({ code: error?.code ?? 0, stdout, stderr });
    });
  });

test("the program prints the report", async (t) => {
  const { url } = await service(t);
  const { code, stdout } = await program(["-n100", "-c", "5", "-k", "--quiet", url]);
  assert.equal(code, 0);
  const lines = stdout.trim().split("\n");
  const starts = [
    "Target URL:",
    "Max requests:",
    "Concurrent clients:",
    "Agent:",
    "Completed requests:",
    "Total errors:",
  ];
  for (const start of starts) {
    const line = lines.find((line) => line.startsWith(start));
    assert.ok(line, start);
    assert.notEqual(line[21], " ");
    assert.equal(line[20], " ");
  }
  assert.match(stdout, /^Completed requests: {2}100$/m);
  assert.match(stdout, / 100% {6}[\d.]+ ms \(longest request\)/);
});

test("the program: mistakes, failures and the rc file", async (t) => {
  const { url } = await service(t, { error: 404 });
  const failed = await program(["-n", "5", "--quiet", url]);
  assert.equal(failed.code, 1);
  assert.match(failed.stdout, /^ 404: {3}5 errors$/m);
  const wrong = await program(["--maxRequest", "5", url]);
  assert.equal(wrong.code, 2);
  assert.match(wrong.stderr, /did you mean --maxRequests/);
  assert.equal((await program([])).code, 2);
  assert.match((await program(["--help"])).stdout, /--requestGenerator/);
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "tidewire-"));
  t.after(() => fs.rmSync(folder, { recursive: true }));
  fs.writeFileSync(path.join(folder, ".loadtestrc"), '{"maxRequests": 7, "quiet": true}');
  const { stdout } = await program([url], folder);
  assert.match(stdout, /^Concurrent clients: {2}7$/m);
  assert.match(stdout, /^Completed requests: {2}7$/m);
  const parsed = programModule.parse(["-H", "a:b", "-H", "c:d", "--header=e:f", "--rps", "5", "http://a/"]);
  assert.deepEqual(parsed.options, { headers: ["a:b", "c:d", "e:f"], requestsPerSecond: "5" });
});
