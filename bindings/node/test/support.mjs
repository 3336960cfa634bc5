// Shared parts of the tests: a client that knows nothing of Tidewire but its messages, and waiting for conditions.

import { execFile } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import { setTimeout as pause } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import WebSocket from "ws";
import { Server } from "../index.mjs";

export const DEADLINE_MS = 30_000;

/** A server on a free port that lets everyone in, ended with the test. */
export async function serve(test, options = {}, prepare = () => {}) {
  const server = new Server({ port: 0, noAuth: true, topicsOpen: true, shards: 1, ...options });
  prepare(server);
  await server.start();
  test.after(() => server.stop());
  return server;
}

/** Waits for something that has to become true. */
export async function eventually(condition) {
  const until = Date.now() + DEADLINE_MS;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > until) throw new Error(`this never became true: ${condition}`);
    await pause(2);
  }
}

/** Waits for a promise that has to be settled. */
export async function soon(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("it took too long")), DEADLINE_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** A WebSocket client that keeps what it receives. */
export class Client {
  #received = [];
  #number = 0;

  static async connect(test, url, options = {}) {
    const client = new Client();
    client.socket = new WebSocket(url, options);
    client.closed = new Promise((resolve) => {
      client.socket.on("close", (code, reason) => resolve({ code, reason: String(reason) }));
    });
    client.socket.on("message", (data, isBinary) => client.#received.push(isBinary ? data : String(data)));
    test.after(() => client.socket.terminate());
    await soon(once(client.socket, "open"));
    client.socket.on("error", () => {});
    return client;
  }

  send(data) {
    this.socket.send(data);
  }

  say(t, p, fields = {}) {
    this.send(JSON.stringify({ t, p, ...fields }));
  }

  /** The next message as it is. */
  async next() {
    await eventually(() => this.#received.length > 0);
    return this.#received.shift();
  }

  /** The next message of a type; others are passed over. */
  async until(type) {
    for (;;) {
      const message = JSON.parse(await this.next());
      if (message.t === type) return message;
    }
  }

  async subscribe(...topics) {
    this.say("subscription_update", { action: "subscribe", topics });
    for (;;) {
      // The server also tells of subscriptions that it made itself.
      const { p } = await this.until("subscription_update");
      if ([...p.success_topics, ...p.failed_topics].includes(topics[0])) return p;
    }
  }

  async request(type, payload) {
    this.#number += 1;
    const cid = String(this.#number);
    this.say("call_request", { type, payload }, { cid });
    for (;;) {
      const answer = await this.until("call_response");
      if (answer.cid === cid) return answer.p;
    }
  }
}

/** The output, the errors and the exit code of a program of Node. */
export function program(source, { file, nodeOptions = [], timeout = DEADLINE_MS, env = {} } = {}) {
  const what = file === undefined ? ["--input-type=module", "-e", source] : [file];
  const cwd = fileURLToPath(new URL("..", import.meta.url));
  return new Promise((resolve) => {
    const options = { cwd, timeout, env: { ...process.env, ...env } };
    execFile(process.execPath, [...nodeOptions, ...what], options, (error, stdout, stderr) => {
      resolve({ stdout, stderr, code: error === null ? 0 : error.code, signal: error?.signal ?? null });
    });
  });
}

/** A listening HTTP server, ended with the test; its port. */
export async function listening(test, httpServer) {
  httpServer.listen(0, "127.0.0.1");
  await once(httpServer, "listening");
  test.after(() => httpServer.close());
  return httpServer.address().port;
}

/** A running server that is attached to an HTTP server; the port of that. */
export async function attached(
  test,
  rules,
  options = {},
  httpServer = http.createServer((_, answer) => answer.end("a page")),
) {
  const server = new Server({ noAuth: true, topicsOpen: true, shards: 2, ...options });
  server.attach(httpServer, rules);
  await server.start();
  test.after(() => server.stop());
  return { server, httpServer, port: await listening(test, httpServer) };
}

/** The status and the body of what a client is refused with. */
export async function refusal(url, options) {
  const socket = new WebSocket(url, options);
  socket.on("error", () => {});
  const [, answer] = await soon(once(socket, "unexpected-response"));
  let body = "";
  for await (const piece of answer) body += piece;
  return { status: answer.statusCode, body, retryAfter: answer.headers["retry-after"] };
}
