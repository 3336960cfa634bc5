// One server of the comparison: `node server.mjs PEER TASK`. It prints its port, and for each line that it reads the
// messages that JavaScript has received, the processor time it has used in microseconds, and its resident memory.

import { createInterface } from "node:readline";

const [peer, task] = process.argv.slice(2);
let received = 0;
let bytes = 0;

const isJson = task === "json";
const isEcho = task.startsWith("echo");

/** What each server does with a message: takes its length, and its value or a copy back. */
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
          if (isJson) bytes += message.json().symbol.length;
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
      if (isJson) bytes += message.json().symbol.length;
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
            bytes += message.byteLength;
            if (isJson) bytes += JSON.parse(Buffer.from(message).toString()).symbol.length;
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
        if (isJson) bytes += JSON.parse(message.toString()).symbol.length;
        if (isEcho) socket.send(message, { binary: isBinary });
      });
    });
    await new Promise((resolve) => server.once("listening", resolve));
    return server.address().port;
  },
};

console.log(await peers[peer]());
createInterface({ input: process.stdin })
  .on("line", () => {
    const { user, system } = process.cpuUsage();
    console.log(JSON.stringify({ received, bytes, cpuUs: user + system, rss: process.memoryUsage().rss }));
  })
  .on("close", () => process.exit(0));
