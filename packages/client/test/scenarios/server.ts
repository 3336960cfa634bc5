/** The server's side of a scenario: an interpreter of its steps, byte by byte. */

import { createHash } from "node:crypto";
import { createServer, type Server, type Socket } from "node:net";

const READY = { c: "WSE", t: "server_ready", p: { details: { connection_id: "c1" } } };
const HELLO = { c: "WSE", t: "server_hello", p: { connection_id: "c1" } };
const GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

export type Step = string | Record<string, unknown>;

/** What the servers of one scenario have seen. */
export class Seen {
  connections = 0;
  readonly types: string[] = [];
}

class Gone extends Error {}

export class ScenarioServer {
  readonly #scripts: Step[][];
  readonly #seen: Seen;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();
  #count = 0;
  url = "";

  constructor(scripts: Step[][], seen: Seen) {
    this.#scripts = scripts;
    this.#seen = seen;
    this.#server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
      seen.connections++;
      this.#sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => this.#sockets.delete(socket));
      const script = this.#scripts[Math.min(this.#count++, this.#scripts.length - 1)]!;
      void new Connection(socket, this.#seen).serve(script);
    });
  }

  async listen(): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, "127.0.0.1", resolve));
    this.url = `ws://127.0.0.1:${(this.#server.address() as { port: number }).port}/ws`;
  }

  async end(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }
}

class Connection {
  readonly #socket: Socket;
  readonly #seen: Seen;
  #buffer = Buffer.alloc(0);
  #isOver = false;
  #wake: (() => void) | undefined;
  #cid = "";
  #hasClosed = false;

  constructor(socket: Socket, seen: Seen) {
    this.#socket = socket;
    this.#seen = seen;
    const over = () => {
      this.#isOver = true;
      this.#wake?.();
    };
    socket.on("end", over).on("close", over);
    socket.on("data", (bytes) => {
      this.#buffer = Buffer.concat([this.#buffer, bytes]);
      this.#wake?.();
    });
    socket.pause();
  }

  /** Does what the script says, then reads until the client ends the connection. */
  async serve(script: Step[]): Promise<void> {
    try {
      await this.#run(script);
      for (;;) {
        if ((await this.#next()) !== "close") continue;
        if (!this.#hasClosed) await this.#frame(8, Buffer.from([3, 232]));
        break;
      }
    } catch (error) {
      if (!(error instanceof Gone)) throw error;
    } finally {
      this.#socket.destroySoon();
    }
  }

  async #run(script: Step[]): Promise<void> {
    for (const step of script) {
      if (typeof step === "string") await this.#word(step);
      else await this.#step(step);
    }
  }

  async #word(word: string): Promise<void> {
    if (word === "accept") await this.#upgrade();
    else if (word === "ready") await this.#text(READY);
    else if (word === "hello") await this.#text(HELLO);
    else if (word === "let_in") await this.#run(["accept", "ready"]);
    else if (word === "welcome") await this.#run(["accept", "ready", { read: "client_hello" }, "hello"]);
    else if (word === "cut") {
      this.#socket.destroy();
      throw new Gone();
    } else if (word === "half_close") this.#socket.end();
    else if (word === "freeze") await this.#freeze();
    else throw new Error(`no server does ${word}`);
  }

  async #step(step: Record<string, unknown>): Promise<void> {
    const [name, value] = Object.entries(step)[0]!;
    if (name === "answer") {
      await this.#head();
      await this.#write(Buffer.from(withDate(value as string), "latin1"));
    } else if (name === "text") await this.#text(value as string | object);
    else if (name === "frames") await this.#write(Buffer.from((value as string).replaceAll(" ", ""), "hex"));
    else if (name === "read") {
      while ((await this.#next()) !== value);
    } else if (name === "close") {
      const [code, reason] = value as [number?, string?];
      this.#hasClosed = true;
      const head = code === undefined ? [] : [code >> 8, code & 255];
      await this.#frame(8, Buffer.concat([Buffer.from(head), Buffer.from(reason ?? "")]));
    } else if (name === "repeat") {
      const [count, steps] = value as [number, Step[]];
      for (let index = 0; index < count; index++) await this.#run(steps);
    } else throw new Error(`no server does ${name}`);
  }

  async #upgrade(): Promise<void> {
    const key = /Sec-WebSocket-Key: (\S+)/i.exec(await this.#head())![1]!;
    const accept = createHash("sha1")
      .update(key + GUID)
      .digest("base64");
    const lines = ["HTTP/1.1 101 Switching Protocols", "Upgrade: websocket", "Connection: Upgrade"];
    await this.#write(Buffer.from(`${lines.join("\r\n")}\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`));
  }

  async #head(): Promise<string> {
    let at = this.#buffer.indexOf("\r\n\r\n");
    while (at < 0) {
      await this.#more();
      at = this.#buffer.indexOf("\r\n\r\n");
    }
    return this.#take(at + 4).toString("latin1");
  }

  async #text(value: string | object): Promise<void> {
    const text = typeof value === "string" ? value : JSON.stringify(value);
    await this.#frame(1, Buffer.from(text.replaceAll("$cid", this.#cid)));
  }

  async #frame(opcode: number, payload: Buffer): Promise<void> {
    const { length } = payload;
    const head = Buffer.alloc(10);
    head[0] = 0x80 | opcode;
    let size = 2;
    if (length < 126) head[1] = length;
    else if (length < 65536) {
      head[1] = 126;
      size = 2 + head.writeUInt16BE(length, 2) - 2;
    } else {
      head[1] = 127;
      head.writeBigUInt64BE(BigInt(length), 2);
      size = 10;
    }
    await this.#write(Buffer.concat([head.subarray(0, size), payload]));
  }

  /** The type of the next message, `close` for a close frame, nothing for other frames. */
  async #next(): Promise<string> {
    const [first, second] = await this.#exactly(2);
    let length = second! & 0x7f;
    if (length === 126) length = (await this.#exactly(2)).readUInt16BE();
    else if (length === 127) length = Number((await this.#exactly(8)).readBigUInt64BE());
    const mask = await this.#exactly(4);
    const payload = Buffer.from(await this.#exactly(length));
    for (let index = 0; index < length; index++) payload[index]! ^= mask[index % 4]!;
    let found = "";
    if ((first! & 0x0f) === 8) found = "close";
    else if ((first! & 0x0f) === 1) {
      const text = payload.toString();
      try {
        const envelope = JSON.parse(text.slice(Math.max(text.indexOf("{"), 0))) as {
          cid?: string;
          t?: string;
        };
        this.#cid = envelope.cid ?? this.#cid;
        found = envelope.t ?? "";
      } catch {
        found = "";
      }
    }
    this.#seen.types.push(found);
    return found;
  }

  async #exactly(count: number): Promise<Buffer> {
    while (this.#buffer.length < count) await this.#more();
    return this.#take(count);
  }

  #take(count: number): Buffer {
    const taken = this.#buffer.subarray(0, count);
    this.#buffer = this.#buffer.subarray(count);
    return taken;
  }

  async #more(): Promise<void> {
    if (this.#isOver) throw new Gone();
    this.#socket.resume();
    await new Promise<void>((resolve) => {
      this.#wake = resolve;
    });
    this.#wake = undefined;
    this.#socket.pause();
  }

  async #write(bytes: Buffer): Promise<void> {
    if (this.#socket.destroyed) throw new Gone();
    await new Promise<void>((resolve, reject) => {
      const gone = () => reject(new Gone());
      this.#socket.once("close", gone);
      this.#socket.write(bytes, (error) => {
        this.#socket.off("close", gone);
        if (error) reject(new Gone());
        else resolve();
      });
    });
  }

  /** Reads nothing until the client has gone. */
  async #freeze(): Promise<void> {
    this.#socket.pause();
    while (!this.#isOver && !this.#socket.destroyed) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    throw new Gone();
  }
}

/** `$date+7` stands for the HTTP date 7 s from now. */
function withDate(text: string): string {
  return text.replace(/\$date\+(\d+)/g, (_, seconds) =>
    new Date(Date.now() + Number(seconds) * 1000).toUTCString(),
  );
}
