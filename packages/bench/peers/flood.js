// A thread that plays a server: it accepts one subscription and then writes publications as fast as they are taken.

import { createHash } from "node:crypto";
import { createServer } from "node:net";
import { parentPort, workerData } from "node:worker_threads";

const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

function frame(text) {
  const payload = Buffer.from(text);
  const size = payload.length;
  const head = size < 126 ? [0x81, size] : [0x81, 126, size >> 8, size & 255];
  return Buffer.concat([Buffer.from(head), payload]);
}

const head = '{"c":"U","t":"tick","tp":"a","p":{"n":1,"pad":"';
const publication = frame(`${head}${"x".repeat(Math.max(0, workerData - head.length - 3))}"}}`);
const block = Buffer.concat(Array(Math.ceil(65_536 / publication.length)).fill(publication));

const server = createServer((socket) => {
  socket.on("error", () => {});
  let isOpen = false;
  socket.on("data", (bytes) => {
    if (!isOpen) {
      isOpen = true;
      const key = /sec-websocket-key: *(\S+)/i.exec(bytes.toString("latin1"))[1];
      const accept = createHash("sha1")
        .update(key + GUID)
        .digest("base64");
      const lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"];
      socket.write(`${lines.join("\r\n")}\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
      socket.write(frame('{"t":"server_ready","p":{"details":{"connection_id":"x"}}}'));
      socket.write(frame('{"t":"server_hello","p":{"features":{"topics":true}}}'));
      return;
    }
    if (socket.listenerCount("drain")) return;
    // Both contenders number their first request 1.
    const answer = { action: "subscribe", success_topics: ["a"], failed_topics: [], recovery: {} };
    socket.write(frame(JSON.stringify({ t: "subscription_update", cid: "1", p: answer })));
    const fill = () => {
      while (!socket.destroyed && socket.write(block));
    };
    socket.on("drain", fill);
    setTimeout(fill, 50);
  });
});
server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
