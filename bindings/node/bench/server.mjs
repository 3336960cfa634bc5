// One server of the comparison: `node server.mjs PEER TASK`. It prints its port, and for each line that it reads the
// messages that JavaScript has received, the processor time it has used in microseconds, and its resident memory.

import { readSync } from "node:fs";
import { createInterface } from "node:readline";

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
    const { WebSocketServer } = await import("ws");
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    server.on("connection", (socket) => {
      socket.on("message", (message, isBinary) => {
        received += 1;
        bytes += message.length;
        if (isJson) bytes += fields(JSON.parse(message.toString()));
        if (isEcho) socket.send(message, { binary: isBinary });
      });
    });
    await new Promise((resolve) => server.once("listening", resolve));
    return server.address().port;
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
