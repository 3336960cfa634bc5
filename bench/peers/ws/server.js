// Echo, sink and broadcast server on ws. One process, one thread, as the other servers here.
// SIGTERM is not handled: its default action, to end the process at once, is what a benchmark wants.

import { parseArgs } from "node:util";
import WebSocket, { WebSocketServer } from "ws";

const handlers = { echo, sink, broadcast };
const options = readOptions();
const server = new WebSocketServer({
  host: "127.0.0.1",
  port: options.port,
  backlog: 4096,
  perMessageDeflate: options.deflateLevel > 0 && {
    zlibDeflateOptions: { level: options.deflateLevel },
    threshold: 0,
  },
  // The set of all clients, which only a broadcast uses.
  clientTracking: options.mode === "broadcast",
});

server.on("listening", () => console.log(`listening on 127.0.0.1:${server.address().port}`));
server.on("error", (error) => fail(error.message, 1));
server.on("connection", (socket) => {
  // An error is a client that broke the protocol or went away; ws closes the connection itself.
  socket.on("error", () => {});
  socket.on("message", handlers[options.mode]);
});

function echo(data, isBinary) {
  this.send(data, { binary: isBinary });
}

function sink() {}

// The loop that the documentation of ws gives for this.
function broadcast(data, isBinary) {
  for (const client of server.clients) {
    if (client !== this && client.readyState === WebSocket.OPEN) client.send(data, { binary: isBinary });
  }
}

function readOptions() {
  try {
    const text = { type: "string" };
    const { values } = parseArgs({ options: { port: text, mode: text, "deflate-level": text } });
    const port = Number(values.port ?? NaN);
    if (!Number.isInteger(port) || port < 0 || port > 65535) throw new Error("--port is not a TCP port");
    if (!Object.hasOwn(handlers, values.mode ?? "")) throw new Error("--mode is not echo, sink or broadcast");
    const deflateLevel = Number(values["deflate-level"] ?? 0);
    if (!(deflateLevel >= 0 && deflateLevel <= 9)) throw new Error("--deflate-level is not from 1 to 9");
    return { port, mode: values.mode, deflateLevel };
  } catch (error) {
    return fail(`${error.message}; usage: --port N --mode echo|sink|broadcast [--deflate-level N]`, 2);
  }
}

function fail(message, code) {
  console.error(message);
  process.exit(code);
}
