/** The two servers that must agree: the test server in memory, and the real program with a backend that answers requests. */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, type ClientOptions, connect, type Transport } from "../../src/index.js";
import { nodeTransport } from "../../src/node.js";
import { CallError, TestServer } from "../../src/testing.js";
import { SECRET, token } from "../jwt.js";
import { type Engine, startEngine } from "../node/engine.js";

/** A client whose connection a test can take away. */
export interface Guest {
  readonly client: Client;
  /** Loses the connection, and lets no other be opened until `back`. */
  away(): void;
  back(): void;
}

export interface Stage {
  /** A client of a user. */
  guest(user: string, options?: ClientOptions): Guest;
  /** Ends the server, and begins another one at the same place that knows nothing. */
  restart(): Promise<void>;
  end(): Promise<void>;
}

/** Both servers have these topics, rights and requests: `kept.>` keeps five publications, `last.>` gives its newest. */
const RULES = `
[[topics.rule]]
pattern = "kept.>"
history_publications = 5

[[topics.rule]]
pattern = "last.>"
history_publications = 5
last_value = true

[[topics.rule]]
pattern = "room.>"
presence = true
`;
const DENIED = "secret.>";

export function inMemory(): Stage {
  const server = new TestServer({
    history: { "kept.>": 5, "last.>": 5 },
    lastValue: ["last.>"],
    presence: ["room.>"],
    access: ({ topic }) => !topic.startsWith("secret."),
  });
  server.handle("double", ({ payload }) => (payload as number) * 2);
  server.onPublish<{ text: string }>("decided.>", ({ payload, replace }) => {
    if (payload.text === "rude") throw new CallError("mind your words", { code: "RUDE" });
    if (payload.text === "later") throw new CallError("not now", { code: "RATE_LIMITED" });
    if (payload.text === "loud") replace({ text: "quiet" });
  });
  server.handle("nothing", () => undefined);
  server.handle("refused", () => {
    throw new CallError("at most four", { code: "TOO_MANY" });
  });
  const guests: Guest[] = [];
  return {
    guest(user, options) {
      const made = guest(server.url, server.transport, user, options);
      guests.push(made);
      return made;
    },
    restart: async () => server.restart({ code: 1006, comeBackMs: false }),
    end: () => close(guests),
  };
}

/** What the program asks its backend. */
interface BackendRequest {
  event: string;
  topic?: string;
  type: string;
  payload: unknown;
}

/** The decisions of the backend about publications, as those of the test server. */
function decide({ text }: { text: string }): object {
  if (text === "rude") return { refused: { code: "RUDE", reason: "mind your words" } };
  if (text === "later") return { refused: { code: "RATE_LIMITED", reason: "not now" } };
  return text === "loud" ? { payload: { text: "quiet" } } : {};
}

export async function program(): Promise<Stage> {
  const backend = createServer((request, response) => {
    let body = "";
    request.on("data", (bytes: Buffer) => {
      body += bytes.toString();
    });
    request.on("end", () => {
      const { event, topic, type, payload } = JSON.parse(body) as BackendRequest;
      response.setHeader("content-type", "application/json");
      if (event === "publish") {
        const decision = topic?.startsWith("decided.") ? decide(payload as { text: string }) : {};
        return response.end(JSON.stringify(decision));
      }
      const answers: Record<string, object> = {
        double: { payload: (payload as number) * 2 },
        nothing: {},
        refused: { error: { code: "TOO_MANY", message: "at most four" } },
      };
      const answer = answers[type] ?? { error: { code: "NOT_FOUND", message: "there is no such request" } };
      return response.end(JSON.stringify(answer));
    });
  });
  await new Promise<void>((resolve) => backend.listen(0, "127.0.0.1", resolve));
  const folder = mkdtempSync(join(tmpdir(), "tidewire-stage-"));
  const config = join(folder, "tidewire.toml");
  writeFileSync(config, RULES);
  const options = ["--config", config, "--jwt-secret", SECRET, "--topics-open", "--log-level", "error"];
  const denied = ["--client-subscribe-deny", DENIED, "--client-publish-deny", DENIED];
  const url = `http://127.0.0.1:${(backend.address() as AddressInfo).port}/`;
  const start = (...more: string[]) =>
    startEngine(...options, ...denied, "--backend", url, "--backend-events", "request,publish", ...more);
  let engine: Engine = await start();
  const { address } = engine;
  const guests: Guest[] = [];
  return {
    guest(user, more) {
      const made = guest(`ws://${address}/ws`, nodeTransport(), user, more);
      guests.push(made);
      return made;
    },
    async restart() {
      await engine.stop();
      engine = await start("--listen", address);
    },
    async end() {
      await close(guests);
      await engine.stop();
      backend.close();
      rmSync(folder, { recursive: true });
    },
  };
}

async function close(guests: Guest[]): Promise<void> {
  for (const one of guests) one.back();
  await Promise.all(guests.map(({ client }) => client.close()));
}

function guest(url: string, base: Transport, user: string, options: ClientOptions = {}): Guest {
  const sockets = new Set<{ terminate(): void }>();
  let isAway = false;
  const transport: Transport = {
    ...base,
    open(open, handler) {
      if (isAway) {
        queueMicrotask(() => handler.onClose({ code: 1006, reason: "away" }));
        return { bufferedBytes: 0, send() {}, close() {}, terminate() {} };
      }
      const socket = base.open(open, {
        onOpen: () => handler.onOpen(),
        onMessages: (frames) => handler.onMessages(frames),
        onDrain: () => handler.onDrain(),
        onClose: (info) => {
          sockets.delete(socket);
          handler.onClose(info);
        },
      });
      sockets.add(socket);
      return socket;
    },
  };
  const reconnect = { baseMs: 10, maxMs: 50 };
  const client = connect(url, { token: token({ sub: user }), reconnect, transport, ...options });
  return {
    client,
    away() {
      isAway = true;
      for (const socket of [...sockets]) socket.terminate();
    },
    back() {
      isAway = false;
    },
  };
}
