import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test, vi } from "vitest";
import { nodeTransport, PreparedFrame } from "../../src/node.js";
import { connect, until } from "./client.js";
import {
  acceptance,
  CERTIFICATE,
  closeOf,
  frameOf,
  type Peer,
  startServer,
  type TestServer,
} from "./server.js";

vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const servers: TestServer[] = [];

async function serve(onRequest?: (peer: Peer) => void, withTls = false): Promise<TestServer> {
  const server = await startServer(onRequest, withTls);
  servers.push(server);
  return server;
}

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.stop()));
});

/** A server and a client with an open connection. */
async function connected(onMessages?: Parameters<typeof connect>[3]) {
  const server = await serve();
  const client = connect(server.url, {}, {}, onMessages);
  await until(() => client.isOpen);
  return { client, peer: server.peers[0]! };
}

describe("opening", () => {
  test("sends the path, the query, the subprotocols and the headers", async () => {
    const server = await serve((peer) =>
      peer.stream.write(acceptance(peer.request, "Sec-WebSocket-Protocol: b\r\nServer: test/1\r\n")),
    );
    const headers = { Authorization: "Bearer secret" };
    const client = connect(`${server.url}?format=msgpack`, { protocols: ["a", "b"], headers });
    await until(() => client.isOpen);
    const { request } = server.peers[0]!;
    expect(request).toContain("GET /ws?format=msgpack HTTP/1.1\r\n");
    expect(request).toContain(`\r\nHost: 127.0.0.1:${server.port}\r\n`);
    expect(request).toContain("\r\nAuthorization: Bearer secret\r\n");
    expect(request).toContain("\r\nSec-WebSocket-Protocol: a, b\r\n");
    expect(client.socket.protocol).toBe("b");
    expect(client.socket.server).toBe("test/1");
  });

  test("by a name that has several addresses reads as by an address", async () => {
    const server = await serve();
    const client = connect(server.url.replace("127.0.0.1", "localhost"));
    await until(() => client.isOpen);
    expect(server.peers[0]!.request).toContain(`\r\nHost: localhost:${server.port}\r\n`);
    server.peers[0]!.stream.write(frameOf(1, "here"));
    await until(() => client.messages.length > 0);
    expect(client.messages).toEqual(["here"]);
  });

  test.each([
    ["Bearer", ": a token is needed"],
    ['Bearer error="invalid_token", error_description="the token has expired"', ": the token has expired"],
    ['bearer error="invalid_token"', ""],
    ['Basic realm="error_description="', ""],
  ])("tells what the challenge %s says of the token", async (challenge, words) => {
    const head = `HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: ${challenge}\r\nContent-Length: 0\r\n\r\n`;
    const server = await serve((peer) => peer.stream.end(head));
    const client = connect(server.url);
    await until(() => client.closes.length > 0);
    const reason = `the server refused the connection: 401 Unauthorized${words}`;
    expect(client.closes).toEqual([{ code: 1006, reason, status: 401 }]);
  });

  test("tells the status and how long to wait", async () => {
    const server = await serve((peer) =>
      peer.stream.end("HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"),
    );
    const client = connect(server.url);
    await until(() => client.closes.length > 0);
    expect(client.closes).toEqual([
      {
        code: 1006,
        reason: "the server refused the connection: 503 Service Unavailable",
        status: 503,
        retryAfterMs: 7000,
      },
    ]);
    expect(client.isOpen).toBe(false);
  });

  test.each([
    ["ws://127.0.0.1:1/", /ECONNREFUSED/],
    ["http://127.0.0.1/", /not ws:\/\/ or wss:\/\//],
    ["ws://user:secret@127.0.0.1/", /Authorization/],
    ["nonsense", /Invalid URL/],
  ])("to %s fails by onClose, after open has returned", async (url, reason) => {
    const client = connect(url);
    expect(client.closes).toEqual([]);
    await until(() => client.closes.length > 0);
    expect(client.closes[0]!.code).toBe(1006);
    expect(client.closes[0]!.reason).toMatch(reason);
    expect(client.closes.length).toBe(1);
  });

  test("fails when the server ends the connection without an answer", async () => {
    const server = await serve((peer) => peer.stream.end());
    const client = connect(server.url);
    await until(() => client.closes.length > 0);
    expect(client.closes).toEqual([
      { code: 1006, reason: "the server closed the connection in the opening handshake" },
    ]);
  });

  test("gives up when the server does not answer", async () => {
    const server = await serve(() => {});
    const client = connect(server.url, {}, { openTimeoutMs: 30 });
    await until(() => client.closes.length > 0);
    expect(client.closes[0]!.reason).toMatch(/within 0.03 s/);
  });

  test("reads an answer that comes byte by byte, and messages that come with it", async () => {
    const server = await serve(async (peer) => {
      peer.stream.setNoDelay(true);
      const answer = Buffer.concat([Buffer.from(acceptance(peer.request)), frameOf(1, "at once")]);
      for (const byte of answer) {
        peer.stream.write(Buffer.from([byte]));
        await new Promise(setImmediate);
      }
    });
    const client = connect(server.url);
    await until(() => client.messages.length > 0);
    expect(client.messages).toEqual(["at once"]);
  });

  test("is over when closed or terminated before it is done", async () => {
    const server = await serve(() => {});
    for (const end of ["close", "terminate"] as const) {
      const client = connect(server.url);
      if (end === "close") client.socket.close(1000, "");
      else client.socket.terminate();
      await until(() => client.closes.length > 0);
      expect(client.closes[0]!.code).toBe(1006);
      expect(client.isOpen).toBe(false);
    }
  });
});

describe("messages", () => {
  test("of one turn arrive in order, text, binary and prepared, in one read", async () => {
    const { client, peer } = await connected();
    client.socket.send("é");
    client.socket.send(new Uint8Array([1, 2, 3]));
    client.socket.send(new PreparedFrame("once"));
    expect(client.socket.bufferedBytes).toBeGreaterThan(0);
    await until(() => peer.frames().length === 3);
    expect(peer.frames().map((frame) => [frame.first, frame.payload.toString("hex")])).toEqual([
      [0x81, "c3a9"],
      [0x82, "010203"],
      [0x81, Buffer.from("once").toString("hex")],
    ]);
    expect(peer.frames().every((frame) => frame.mask !== undefined)).toBe(true);
    expect(peer.reads()).toBe(1);
    await until(() => client.drains > 0);
    expect(client.socket.bufferedBytes).toBe(0);
  });

  test("may be changed by the caller once send has returned", async () => {
    const { client, peer } = await connected();
    const bytes = new Uint8Array([1, 2, 3]);
    client.socket.send(bytes);
    bytes.fill(9);
    await until(() => peer.frames().length === 1);
    expect(peer.frames()[0]!.payload.toString("hex")).toBe("010203");
  });

  test("of one read come in one call, in order", async () => {
    const { client, peer } = await connected();
    peer.stream.write(Buffer.concat([frameOf(1, "a"), frameOf(2, Buffer.from([255])), frameOf(1, "κ")]));
    await until(() => client.messages.length === 3);
    expect(client.messages).toEqual(["a", "0xff", "κ"]);
    expect(client.batches).toEqual([3]);
  });

  test("of many megabytes go and come unchanged", async () => {
    const server = await serve((peer) => {
      peer.stream.write(acceptance(peer.request));
    });
    const client = connect(server.url, { messageBytesMax: 1 << 24 });
    await until(() => client.isOpen);
    const text = "0123456789abcdéf".repeat(200_000);
    client.socket.send("before");
    client.socket.send(text);
    client.socket.send("after");
    const peer = server.peers[0]!;
    const bytes = Buffer.byteLength(text);
    await until(() => peer.bytes().length === bytes + 14 + 6 + 6 + 6 + 5);
    expect(peer.frames().map((frame) => frame.payload.toString())).toEqual(["before", text, "after"]);
    peer.stream.write(Buffer.concat([frameOf(1, text), frameOf(1, "end")]));
    await until(() => client.messages.length === 2);
    expect(client.messages).toEqual([text, "end"]);
  });

  test("do not come while reading is paused, and all come after it", async () => {
    const { client, peer } = await connected((one, frames) => {
      if (frames.includes("stop")) one.socket.pause();
    });
    peer.stream.write(frameOf(1, "stop"));
    await until(() => client.messages.length === 1);
    const block = frameOf(1, "x".repeat(60_000));
    let isFull = false;
    // The server's socket fills up, because nobody reads.
    while (!isFull) {
      isFull = !peer.stream.write(block);
      await new Promise(setImmediate);
    }
    const writtenBytes = peer.stream.bytesWritten;
    expect(client.messages.length).toBe(1);
    client.socket.resume();
    await until(() => peer.stream.writableLength === 0);
    expect(writtenBytes).toBeGreaterThan(0);
    await until(() => client.messages.length > 1);
    expect(new Set(client.messages.slice(1))).toEqual(new Set(["x".repeat(60_000)]));
  });

  test("wait while the server does not read, and drain when it does", async () => {
    const { client, peer } = await connected();
    peer.stream.pause();
    const text = "x".repeat(50_000);
    let sent = 0;
    while (client.socket.bufferedBytes < 4_000_000) {
      client.socket.send(text);
      sent += 1;
      await new Promise(setImmediate);
    }
    const drains = client.drains;
    peer.stream.resume();
    await until(() => client.drains > drains && client.socket.bufferedBytes === 0);
    await until(() => peer.bytes().length === sent * (50_000 + 8));
    expect(peer.frames().every((frame) => frame.payload.toString() === text)).toBe(true);
  });
});

describe("pings", () => {
  test("of the server are answered with their payload, in order, before later messages are", async () => {
    const { client, peer } = await connected((one, frames) => {
      for (const frame of frames) one.socket.send(`re: ${frame as string}`);
    });
    peer.stream.write(Buffer.concat([frameOf(1, "a"), frameOf(9, "p1"), frameOf(1, "b"), frameOf(9, "p2")]));
    await until(() => peer.frames().length === 4);
    const shown = peer.frames().map((frame) => `${frame.first & 15} ${frame.payload.toString()}`);
    expect(shown.filter((one) => one.startsWith("10"))).toEqual(["10 p1", "10 p2"]);
    expect(shown.filter((one) => one.startsWith("1 "))).toEqual(["1 re: a", "1 re: b"]);
    expect(shown.indexOf("10 p1")).toBeLessThan(shown.indexOf("1 re: b"));
    expect(client.closes).toEqual([]);
  });

  test("of the client bring pongs, after the messages before them", async () => {
    const { client, peer } = await connected();
    client.socket.send("message");
    client.socket.ping(Buffer.from("token"));
    await until(() => peer.frames().length === 2);
    expect(peer.frames().map((frame) => frame.first)).toEqual([0x81, 0x89]);
    peer.stream.write(Buffer.concat([frameOf(1, "answer"), frameOf(10, "token")]));
    await until(() => client.pongs.length === 1);
    expect(client.pongs).toEqual(["token"]);
    expect(client.messages).toEqual(["answer"]);
  });

  test("of a server that reads no pongs fill no memory", async () => {
    const { client, peer } = await connected();
    peer.stream.pause();
    // Fill the way to the server first.
    while (client.socket.bufferedBytes < 1_000_000) {
      client.socket.send("x".repeat(60_000));
      await new Promise(setImmediate);
    }
    const before = client.socket.bufferedBytes;
    const ping = frameOf(9, "x".repeat(125));
    for (let round = 0; round < 50; round += 1) {
      peer.stream.write(Buffer.concat(Array.from({ length: 1000 }, () => ping)));
    }
    peer.stream.write(Buffer.concat([frameOf(9, "last"), frameOf(1, "end")]));
    await until(() => client.messages.includes("end"));
    expect(client.socket.bufferedBytes).toBeLessThan(before + 100_000);
    peer.stream.resume();
    await until(() =>
      peer.frames().some((frame) => frame.first === 0x8a && frame.payload.toString() === "last"),
    );
  });
});

describe("the end", () => {
  test("by the client: a close with code and reason, its answer, one onClose", async () => {
    const { client, peer } = await connected();
    client.socket.send("last");
    client.socket.close(4000, "bye");
    client.socket.send("too late");
    client.socket.close(1000, "again");
    await until(() => peer.frames().length === 2);
    expect(peer.frames()[0]!.payload.toString()).toBe("last");
    expect(peer.frames()[1]!.payload.toString("latin1")).toBe("\x0f\xa0bye");
    // Messages before the answer still come.
    peer.stream.write(Buffer.concat([frameOf(1, "late"), closeOf(4000)]));
    peer.stream.end();
    await until(() => client.closes.length > 0);
    expect(client.messages).toEqual(["late"]);
    expect(client.closes).toEqual([{ code: 4000, reason: "" }]);
    expect(peer.frames().length).toBe(2);
  });

  test("by the server: the same code comes back, messages before it are handed over, none after it", async () => {
    const { client, peer } = await connected();
    peer.stream.write(Buffer.concat([frameOf(1, "last"), closeOf(4300, "drain"), frameOf(1, "after")]));
    await until(() => peer.frames().length === 1);
    peer.stream.end();
    await until(() => client.closes.length > 0);
    expect(client.messages).toEqual(["last"]);
    expect(peer.frames()[0]!.payload.readUInt16BE(0)).toBe(4300);
    expect(client.closes).toEqual([{ code: 4300, reason: "drain" }]);
  });

  test("by a close without a code is 1005, and the answer has none either", async () => {
    const { client, peer } = await connected();
    peer.stream.write(frameOf(8, ""));
    await until(() => peer.frames().length === 1);
    peer.stream.end();
    await until(() => client.closes.length > 0);
    expect(peer.frames()[0]!.payload.length).toBe(0);
    expect(client.closes).toEqual([{ code: 1005, reason: "" }]);
  });

  test("comes by itself when the server does not answer the close", async () => {
    const server = await serve();
    const client = connect(server.url, {}, { closeTimeoutMs: 30 });
    await until(() => client.isOpen);
    client.socket.close(1000, "");
    await until(() => client.closes.length > 0);
    expect(client.closes).toEqual([
      { code: 1006, reason: "the server did not answer the close within 0.03 s" },
    ]);
  });

  test("comes by itself when the server answers but keeps the connection", async () => {
    const server = await serve();
    const client = connect(server.url, {}, { closeTimeoutMs: 30 });
    await until(() => client.isOpen);
    client.socket.close(1000, "");
    server.peers[0]!.stream.write(closeOf(1000));
    await until(() => client.closes.length > 0);
    expect(client.closes).toEqual([{ code: 1000, reason: "" }]);
  });

  test("answers a close even while reading is paused", async () => {
    const { client, peer } = await connected();
    client.socket.pause();
    client.socket.close(1000, "");
    await until(() => peer.frames().length === 1);
    peer.stream.write(closeOf(1000));
    peer.stream.end();
    await until(() => client.closes.length > 0);
    expect(client.closes).toEqual([{ code: 1000, reason: "" }]);
  });

  test("by the network is 1006", async () => {
    const { client, peer } = await connected();
    peer.stream.destroy();
    await until(() => client.closes.length > 0);
    expect(client.closes.length).toBe(1);
    expect(client.closes[0]!.code).toBe(1006);
  });

  test("comes when a handler throws in the middle of a read", async () => {
    const { client, peer } = await connected(() => {
      throw new Error("of the handler");
    });
    const thrown = new Promise<Error>((resolve) => process.setUncaughtExceptionCaptureCallback(resolve));
    peer.stream.write(Buffer.concat([frameOf(1, "a"), frameOf(10, "p"), frameOf(1, "b")]));
    expect((await thrown).message).toBe("of the handler");
    process.setUncaughtExceptionCaptureCallback(null);
    await until(() => client.closes.length > 0);
    expect(client.closes).toEqual([{ code: 1006, reason: "a handler of the connection threw an error" }]);
  });

  test("by terminate is at once, and nothing is handed over after it", async () => {
    const { client, peer } = await connected((one) => one.socket.terminate());
    peer.stream.write(Buffer.concat([frameOf(1, "a"), frameOf(10, "p"), frameOf(1, "b")]));
    await until(() => client.closes.length > 0);
    expect(client.messages).toEqual(["a"]);
    expect(client.pongs).toEqual([]);
    expect(client.closes).toEqual([{ code: 1006, reason: "terminated" }]);
    client.socket.send("nothing");
    client.socket.terminate();
    expect(client.closes.length).toBe(1);
  });

  test.each([
    [Buffer.from([0x81, 0x80, 1, 2, 3, 4]), 1002],
    [Buffer.from([0x81, 0x01, 0xff]), 1007],
    [Buffer.from([0x82, 0x7f, 0, 0, 0, 1, 0, 0, 0, 0]), 1009],
    [Buffer.from([0xc1, 0x00]), 1002],
  ])("by a broken frame %j closes with %i", async (bytes, code) => {
    const { client, peer } = await connected();
    peer.stream.write(Buffer.concat([frameOf(1, "before"), bytes]));
    await until(() => peer.frames().length === 1);
    peer.stream.end();
    await until(() => client.closes.length > 0);
    expect(peer.frames()[0]!.payload.readUInt16BE(0)).toBe(code);
    expect(client.messages).toEqual(["before"]);
    expect(client.closes[0]).toMatchObject({ code });
  });

  test("has a code that a close may have, and a reason that is cut at a character", async () => {
    const { client, peer } = await connected();
    for (const code of [999, 1005, 1006, 1015, 2999, 5000, Number.NaN]) {
      expect(() => client.socket.close(code, "")).toThrow(RangeError);
    }
    client.socket.close(4999, `x${"é".repeat(100)}`);
    await until(() => peer.frames().length === 1);
    expect(peer.frames()[0]!.payload.subarray(2).toString()).toBe(`x${"é".repeat(61)}`);
  });
});

describe("TLS", () => {
  test.each(["ca", "caFile"] as const)("with a certificate by %s", async (option) => {
    const server = await serve(undefined, true);
    const caFile = join(tmpdir(), `tidewire-ca-${process.pid}.pem`);
    writeFileSync(caFile, CERTIFICATE);
    const client = connect(server.url, {}, option === "ca" ? { ca: CERTIFICATE } : { caFile });
    await until(() => client.isOpen);
    const peer = server.peers[0]!;
    client.socket.send("secret");
    await until(() => peer.frames().length === 1);
    expect(peer.frames()[0]!.payload.toString()).toBe("secret");
    peer.stream.write(Buffer.concat([frameOf(1, "a"), frameOf(1, "b".repeat(300_000)), frameOf(1, "c")]));
    await until(() => client.messages.length === 3);
    expect(client.messages[1]).toBe("b".repeat(300_000));
    client.socket.close(1000, "");
    await until(() => peer.frames().length === 2);
    peer.stream.end(closeOf(1000));
    await until(() => client.closes.length > 0);
    expect(client.closes).toEqual([{ code: 1000, reason: "" }]);
  });

  test("without it is refused", async () => {
    const server = await serve(undefined, true);
    const client = connect(server.url);
    await until(() => client.closes.length > 0);
    expect(client.closes[0]!.code).toBe(1006);
    expect(client.closes[0]!.reason).toMatch(/self-signed/);
  });

  test("with a file that is not there fails when the transport is made", () => {
    expect(() => nodeTransport({ caFile: "/nonexistent" })).toThrow(/ENOENT/);
  });
});

describe("permessage-deflate", () => {
  test("is offered only if it is asked for, and used only if the server accepts it", async () => {
    const server = await serve();
    const plain = connect(server.url);
    const declined = connect(server.url, {}, { deflate: true });
    await until(() => plain.isOpen && declined.isOpen);
    const offers = server.peers.map((peer) => /^sec-websocket-extensions: (.*)\r$/im.exec(peer.request)?.[1]);
    expect(offers.sort()).toEqual([
      "permessage-deflate; server_no_context_takeover; client_no_context_takeover; client_max_window_bits",
      undefined,
    ]);
    expect([plain.socket.extensions, declined.socket.extensions]).toEqual(["", ""]);
    declined.socket.send("x".repeat(2000));
    await until(() => server.peers.some((peer) => peer.frames().length > 0));
    expect(server.peers.flatMap((peer) => peer.frames())[0]).toMatchObject({ first: 0x81 });
  });

  test("compresses messages from the given size on, prepared ones, too", async () => {
    const server = await serve((peer) =>
      peer.stream.write(
        acceptance(
          peer.request,
          "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n",
        ),
      ),
    );
    const client = connect(server.url, {}, { deflate: true });
    await until(() => client.isOpen);
    expect(client.socket.extensions).toBe("permessage-deflate");
    client.socket.send("x".repeat(1023));
    client.socket.send("x".repeat(1024));
    client.socket.send(new PreparedFrame(new Uint8Array(2000)));
    // Neither what is encrypted nor what gets no shorter.
    client.socket.send(Buffer.concat([Buffer.from("E:"), Buffer.alloc(2000)]));
    client.socket.send(randomBytes(2000));
    await until(() => server.peers[0]!.frames().length === 5);
    const frames = server.peers[0]!.frames();
    expect(frames.map((frame) => frame.first)).toEqual([0x81, 0xc1, 0xc2, 0x82, 0x82]);
    expect(frames[1]!.payload.length).toBeLessThan(50);
  });

  test("with parameters that were not offered fails", async () => {
    const server = await serve((peer) =>
      peer.stream.write(acceptance(peer.request, "Sec-WebSocket-Extensions: permessage-deflate; fast\r\n")),
    );
    const client = connect(server.url, {}, { deflate: true });
    await until(() => client.closes.length > 0);
    expect(client.closes[0]!.reason).toContain("permessage-deflate");
  });
});
