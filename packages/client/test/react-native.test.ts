/** The built package bundled by Metro: in Hermes over a scripted transport, and over React Native's own WebSocket in Node. */

import { execFile } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { createContext, runInContext } from "node:vm";
import { beforeAll, describe, expect, test } from "vitest";
import { WebSocket } from "ws";
import { startEngine } from "./node/engine.js";

const run = promisify(execFile);
const folder = fileURLToPath(new URL("./react-native/", import.meta.url));
const hermes = `${folder}node_modules/hermes-engine-cli/linux64-bin/hermes`;

describe.skipIf(!existsSync(hermes))("React Native", () => {
  beforeAll(async () => {
    await run(process.execPath, [`${folder}build.cjs`, `${folder}built`, "hermes", "socket"]);
  }, 300_000);

  test("Hermes has sessions over a scripted transport", async () => {
    const { stdout } = await run(hermes, ["-O", "-w", "-Xmicrotask-queue", `${folder}built/hermes.js`], {
      timeout: 60_000,
    });
    const { states, ...result } = JSON.parse(stdout) as { states: string[] };
    expect(result).toEqual({
      url: "wss://a.example/ws?room=1&protocol_version=1&token=secret%3D%3D",
      position: { epoch: "0000000a", offset: 1 },
      texts: ["Grüße 𝄞", "again", "loop"],
      looped: "loop",
      isComplete: true,
      aborted: "ABORTED",
      msgpack: "Grüße 𝄞 and more than thirty-two characters",
      errors: [],
      background: { code: 1000, isFollowed: false },
      state: "closed",
    });
    expect(states.filter((state) => state === "open")).toHaveLength(3);
  });

  test("React Native's WebSocket and URL have sessions over a real socket", async () => {
    const engine = await startEngine("--no-auth", "--topics-open", "--log-level", "error");
    try {
      expect(await sessionOverNative(`ws://${engine.address}/ws`)).toEqual({
        json: { isWhole: true, errors: [], state: "closed" },
        msgpack: { isWhole: true, errors: [], state: "closed" },
        refused: "CONNECT_FAILED",
      });
    } finally {
      await engine.stop();
    }
  });
});

/** Runs the bundle in a context without Node's globals, whose native module of WebSockets is `ws`. */
function sessionOverNative(address: string): Promise<unknown> {
  return new Promise((report) => {
    const sockets = new Map<number, WebSocket>();
    const context = createContext({
      setTimeout,
      clearTimeout,
      setInterval,
      clearInterval,
      console,
      address,
      report,
    });
    const emit = (name: string, event: object) => context.emitNative(name, event);
    context.nativeModules = {
      WebSocketModule: {
        connect(url: string, protocols: string[] | null, options: { headers: object }, id: number) {
          const socket = new WebSocket(url, protocols ?? [], { headers: { ...options.headers } });
          sockets.set(id, socket);
          socket.on("open", () => emit("websocketOpen", { id, protocol: socket.protocol }));
          socket.on("message", (bytes: Buffer, isBinary) =>
            emit("websocketMessage", {
              id,
              type: isBinary ? "binary" : "text",
              data: bytes.toString(isBinary ? "base64" : "utf8"),
            }),
          );
          let hasFailed = false;
          socket.on("error", ({ message }) => {
            hasFailed = true;
            emit("websocketFailed", { id, message });
          });
          socket.on("close", (code, reason) => {
            if (!hasFailed) emit("websocketClosed", { id, code, reason: reason.toString() });
          });
        },
        send: (text: string, id: number) => sockets.get(id)!.send(text),
        sendBinary: (text: string, id: number) => sockets.get(id)!.send(Buffer.from(text, "base64")),
        ping: (id: number) => sockets.get(id)!.ping(),
        close: (code: number, reason: string, id: number) => sockets.get(id)!.close(code, reason),
        addListener() {},
        removeListeners() {},
      },
    };
    runInContext(readFileSync(`${folder}built/socket.js`, "utf8"), context);
  });
}
