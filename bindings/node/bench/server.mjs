// One server of the comparison: `node server.mjs PEER TASK`. It prints its port, and for each line that it reads the
// messages that JavaScript has received, the processor time it has used in microseconds, and its resident memory.

import { readFileSync, readSync } from "node:fs";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const [peer, task] = process.argv.slice(2);
let received = 0;
let bytes = 0;

const isJson = task.includes("json");
const isEcho = task.startsWith("echo");
const fields = (value) => Object.keys(value).length;

function tell() {
  const { user, system } = process.cpuUsage();
  const now = {
    received,
    bytes,
    cpuUs: user + system,
    ms: performance.now(),
    rss: process.memoryUsage().rss,
  };
  console.log(JSON.stringify(now));
}

/** For a server that does not let Node read while messages come: looks once for some thousands of them. */
function tellIfAsked() {
  if (received % 65_536 !== 0) return;
  try {
    if (readSync(0, new Uint8Array(1)) > 0) tell();
  } catch (error) {
    if (error.code !== "EAGAIN") throw error;
  }
}

/** A certificate of this machine, or its key. */
const file = (name) =>
  fileURLToPath(new URL(`../../../packages/client/test/node/fixtures/${name}`, import.meta.url));

async function httpsServer() {
  const { createServer } = await import("node:https");
  return createServer({
    cert: readFileSync(file("localhost.pem")),
    key: readFileSync(file("localhost.key.pem")),
  });
}

async function listening(server) {
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return server.address().port;
}

/** Our server with a handler that sends back; with an HTTP server at the port of that. */
async function echoing(options, web) {
  const { Server } = await import("../index.mjs");
  const server = new Server({ noAuth: true, protocol: "raw", shards: 1, rateLimitCapacity: 0, ...options });
  server.on("*", (message) => {
    received += 1;
    message.connection.sendRaw(message);
  });
  if (web !== undefined) server.attach(web);
  await server.start();
  return web === undefined ? server.address.port : await listening(web);
}

async function servedByWs(web) {
  const { WebSocketServer } = await import("ws");
  new WebSocketServer({ server: web }).on("connection", (socket) => {
    socket.on("message", (message, isBinary) => {
      received += 1;
      bytes += message.length;
      if (isJson) bytes += fields(JSON.parse(message.toString()));
      if (isEcho) socket.send(message, { binary: isBinary });
    });
  });
  return await listening(web);
}

/** The work of each server for a message: takes its length, and its value or a copy back. */
const peers = {
  async batches() {
    const { Server } = await import("../index.mjs");
    const server = new Server({ port: 0, protocol: "raw", shards: 1, rateLimitCapacity: 0 });
    const batches = server.batches();
    await server.start();
    (async () => {
      for await (const batch of batches) {
        for (const message of batch) {
          if (message.kind !== "message") continue;
          received += 1;
          bytes += message.length;
          if (isJson) bytes += fields(message.json());
          if (isEcho) message.connection.sendRaw(message);
        }
      }
    })();
    return server.address.port;
  },

  async handlers() {
    const { Server } = await import("../index.mjs");
    const server = new Server({ port: 0, protocol: "raw", shards: 1, rateLimitCapacity: 0 });
    server.on("*", (message) => {
      received += 1;
      bytes += message.length;
      if (isJson) bytes += fields(message.json());
      if (isEcho) message.connection.sendRaw(message);
    });
    await server.start();
    return server.address.port;
  },

  own: () => echoing({ port: 0 }),

  async attached() {
    const { createServer } = await import("node:http");
    return await echoing({}, createServer());
  },

  "own-tls": () =>
    echoing({ port: 0, tlsCertificate: file("localhost.pem"), tlsKey: file("localhost.key.pem") }),

  async "attached-tls"() {
    return await echoing({}, await httpsServer());
  },

  async uws() {
    const { default: uws } = await import("@btc-vision/uwebsockets.js");
    return await new Promise((resolve) => {
      uws
        .App()
        .ws("/*", {
          maxBackpressure: 64 * 1024 * 1024,
          message: (socket, message, isBinary) => {
            received += 1;
            tellIfAsked();
            bytes += message.byteLength;
            if (isJson) bytes += fields(JSON.parse(Buffer.from(message).toString()));
            if (isEcho) socket.send(message, isBinary);
          },
        })
        .listen("127.0.0.1", 0, (token) => resolve(uws.us_socket_local_port(token)));
    });
  },

  async ws() {
    const { createServer } = await import("node:http");
    return await servedByWs(createServer());
  },

  async "ws-tls"() {
    return await servedByWs(await httpsServer());
  },

  // It parses the JSON of every message, and its echo is one of its own messages.
  async "socket.io"() {
    const [{ createServer }, { Server }] = [await import("node:http"), await import("socket.io")];
    const web = createServer();
    new Server(web, { transports: ["websocket"], serveClient: false }).on("connection", (socket) => {
      socket.on("m", (value) => {
        received += 1;
        bytes += fields(value);
        if (isEcho) socket.emit("m", value);
      });
    });
    await new Promise((resolve) => web.listen(0, "127.0.0.1", resolve));
    return web.address().port;
  },
};

console.log(await peers[peer]());
createInterface({ input: process.stdin })
  .on("line", tell)
  .on("close", () => process.exit(0));
