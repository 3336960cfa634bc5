// A thread that accepts WebSocket connections and writes frames of one JSON text to each as fast as it takes them.

import { createHash } from "node:crypto";
import { createServer } from "node:net";
import { parentPort, workerData } from "node:worker_threads";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

function frames(payloadBytes) {
  const message = { c: "U", t: "trade", tp: "orders.eu", e: "0badcafe", o: 17, p: { id: 1234567, pad: "" } };
  message.p.pad = "x".repeat(payloadBytes - JSON.stringify(message).length);
  const payload = Buffer.from(JSON.stringify(message));
  const frame = Buffer.concat([Buffer.from([0x81, 126, payload.length >> 8, payload.length & 255]), payload]);
  return Buffer.concat(Array.from({ length: Math.floor(65_536 / frame.length) }, () => frame));
}

const block = frames(workerData);
const server = createServer((socket) => {
  socket.setNoDelay(true);
  socket.on("error", () => {});
  socket.once("data", (request) => {
    const key = /^sec-websocket-key: *(\S+)/im.exec(request.toString("latin1"))[1];
    const accept = createHash("sha1")
      .update(key + GUID)
      .digest("base64");
    socket.write(
      `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
    );
    const fill = () => {
      while (!socket.destroyed && socket.write(block));
    };
    socket.on("drain", fill);
    fill();
  });
});
server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
