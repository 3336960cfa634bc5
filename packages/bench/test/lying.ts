/** Servers for tests that do not tell the truth, on the test server of the client's transport. */

import {
  acceptance,
  frameOf,
  type Peer,
  startServer,
  type TestServer,
} from "../../client/test/node/server.js";

/** How a server answers the pings of the bench. */
export type Lie = "answers none" | "answers with another token" | "answers each twice";

const PING = 9;
const PONG = 10;
const READY = JSON.stringify({ c: "WSE", t: "server_ready", p: { details: { version: "9.9" } } });

/** A server of protocol version 1 that reads everything and lies about it. */
export function startLiar(lie: Lie): Promise<TestServer> {
  return startServer((peer) => {
    peer.stream.write(Buffer.concat([Buffer.from(acceptance(peer.request)), frameOf(1, READY)]));
    const reader = new ClientFrames();
    peer.stream.on("data", (chunk: Buffer) => answer(peer, reader.read(chunk), lie));
  });
}

function answer(peer: Peer, frames: { opcode: number; payload: Buffer }[], lie: Lie): void {
  for (const frame of frames) {
    if (frame.opcode === 8) peer.stream.end(frameOf(8, frame.payload));
    if (frame.opcode !== PING || lie === "answers none") continue;
    const pong = frameOf(
      PONG,
      lie === "answers with another token" ? Buffer.from("guessed!") : frame.payload,
    );
    peer.stream.write(lie === "answers each twice" ? Buffer.concat([pong, pong]) : pong);
  }
}

/** Takes the frames of a client apart, across reads. */
class ClientFrames {
  #rest = Buffer.alloc(0);

  read(chunk: Buffer): { opcode: number; payload: Buffer }[] {
    let bytes = Buffer.concat([this.#rest, chunk]);
    const frames: { opcode: number; payload: Buffer }[] = [];
    for (;;) {
      const short = (bytes[1] ?? 0) & 0x7f;
      const header = short === 126 ? 4 : 2;
      if (short === 127 || bytes.length < header + 4) break;
      const length = short === 126 ? bytes.readUInt16BE(2) : short;
      const start = header + 4;
      if (bytes.length < start + length) break;
      const payload = Buffer.from(bytes.subarray(start, start + length));
      for (let index = 0; index < length; index += 1) payload[index]! ^= bytes[header + (index & 3)]!;
      frames.push({ opcode: bytes[0]! & 0x0f, payload });
      bytes = bytes.subarray(start + length);
    }
    this.#rest = bytes;
    return frames;
  }
}
