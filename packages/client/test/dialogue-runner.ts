/** Holds the client's session against the dialogues of `protocol/vectors`; runs in Node and in a page. */

import { direct } from "../src/core/pipeline.js";
import { type Now, Session, type SessionHost } from "../src/core/session.js";
import { TidewireError } from "../src/errors.js";
import { Message } from "../src/message.js";
import { msgpack } from "../src/msgpack.js";
import { resolveOptions } from "../src/options.js";

export interface DialogueStep {
  receive?: { json: string; msgpack: string };
  // biome-ignore lint/suspicious/noExplicitAny: each kind of event has fields of its own
  event?: Record<string, any>;
  refused?: string;
  say?: Record<string, unknown>;
  reply?: { t: string; p: unknown };
}

export interface Dialogue {
  name: string;
  side: string;
  steps: DialogueStep[];
}

/** The moment of all vectors. */
const NOW: Now = { ms: 1_000, unixMs: 1_732_212_345_678 };
const READY = '{"t":"server_ready","p":{"details":{"connection_id":"0193501a-6a5e-7000-8000-0000000000c1"}}}';
const HELLO = '{"t":"server_hello","p":{"features":{"topics":true,"history":true}}}';

type Seen = { kind: string; detail: unknown };

class Player {
  readonly seen: Seen[] = [];
  readonly #session: Session;
  readonly #pipeline;

  constructor() {
    const format = msgpack();
    const options = resolveOptions("ws://a/ws", { token: () => "" });
    const push = (kind: string, detail: unknown) => void this.seen.push({ kind, detail });
    const host: SessionHost = {
      write: (fields, payload) => push("write", { ...fields, p: JSON.parse(String(payload ?? "null")) }),
      emit: (name, detail) => push(name, detail),
      changed: () => undefined,
      wantToken: () => push("wantToken", undefined),
      hasRoom: true,
      isPoor: false,
      renew: () => undefined,
      checkOpen: () => undefined,
    };
    this.#session = new Session(options, host);
    this.#session.answers.get = (type) => (payload, timeoutMs) => {
      push("call", { type, payload, timeout_ms: timeoutMs });
      return new Promise(() => {});
    };
    const layers = {
      format,
      compression: undefined,
      signing: undefined,
      exchange: undefined,
      messageBytesMax: 1e6,
    };
    this.#pipeline = direct(layers, {
      isOver: () => false,
      send: () => undefined,
      receive: (message) =>
        message instanceof Message
          ? this.#session.receiveMessage(message, NOW)
          : this.#session.receive(message, NOW),
      fail: (error) => {
        // What a key_update leads to is the business of the tests of encryption.
        if (!/key_update/.test(String(error))) throw error;
      },
      refuse: () => undefined,
      notify: () => undefined,
      hold: () => undefined,
      proceed: () => undefined,
    });
    this.#session.connected("ws://a/ws", undefined, NOW);
  }

  get session(): Session {
    return this.#session;
  }

  receive(frame: string | Uint8Array): void {
    this.#pipeline.read([frame]);
  }
}

/** What is wrong with a dialogue in a format; nothing if the client does what it says. */
export function play(dialogue: Dialogue, encoding: "json" | "msgpack"): string[] {
  const failures: string[] = [];
  const player = new Player();
  const opens = (kind: string) => dialogue.steps.some(({ event }) => event && kind in event);
  if (!opens("ready")) player.receive(READY);
  if (!opens("established") && !opens("ready")) player.receive(HELLO);
  for (const step of dialogue.steps) {
    if (!step.receive) continue;
    player.seen.length = 0;
    let error: unknown;
    try {
      player.receive(encoding === "json" ? step.receive.json : withPrefix(step.receive.msgpack));
    } catch (cause) {
      error = cause;
    }
    const wrong = judge(step, player, error);
    if (wrong) failures.push(`${dialogue.name}: ${wrong} after ${step.receive.json.slice(0, 300)}`);
  }
  return failures;
}

function withPrefix(hex: string): Uint8Array {
  return Uint8Array.from(`4d3a${hex}`.match(/../g)!, (byte) => Number.parseInt(byte, 16));
}

function judge(step: DialogueStep, player: Player, error: unknown): string | undefined {
  const { seen } = player;
  if (step.refused) {
    if (error instanceof TidewireError) return undefined;
    if (error) return `a foreign error ${String(error)}`;
    return seen.length ? `was accepted: ${JSON.stringify(seen)}` : undefined;
  }
  if (error) return `was refused: ${String(error)}`;
  const [kind, expected] = Object.entries(step.event!)[0]!;
  const check = CHECKS[kind];
  if (!check) return `no check of ${kind}`;
  const wrong = check(expected, player);
  return wrong === undefined || wrong === true ? undefined : `${kind} gave ${JSON.stringify(seen)}`;
}

// biome-ignore lint/suspicious/noExplicitAny: see DialogueStep
type Check = (expected: any, player: Player) => unknown;

function find(player: Player, kind: string): Record<string, unknown> | undefined {
  return player.seen.find((one) => one.kind === kind)?.detail as Record<string, unknown> | undefined;
}

function matches(found: unknown, expected: Record<string, unknown>): boolean {
  if (typeof found !== "object" || found === null) return false;
  const fields = found as Record<string, unknown>;
  return Object.entries(expected).every(([name, value]) => {
    const own = fields[name] ?? null;
    return JSON.stringify(own) === JSON.stringify(value ?? null);
  });
}

/** What the session does for each event of the protocol. */
const CHECKS: Record<string, Check> = {
  ready: (e, player) =>
    matches(find(player, "connected"), { connectionId: e.connection_id || "?", user: e.user_id }),
  established: (e, { session }) => session.isOpen && session.outbound.bytesMax === e.message_bytes_max,
  server_ping: (e, player) =>
    matches((find(player, "write") as { p: unknown }).p, {
      client_timestamp: NOW.unixMs,
      server_timestamp: e.timestamp_ms,
      latency: e.timestamp_ms === null ? 0 : Math.max(0, NOW.unixMs - e.timestamp_ms),
    }),
  pong: (_, { seen }) => seen.length === 0,
  error: (e, player) => {
    // A gap of numbered messages is the producer's business.
    if (e.code === "MESSAGE_GAP") return player.seen.length === 0;
    const retryAfterMs = e.retry_after_s === null ? null : Math.min(e.retry_after_s * 1000, 86_400_000);
    return matches(find(player, "error"), { code: e.code, retryAfterMs });
  },
  application: (_, { seen }) => seen.length === 1 && seen[0]!.kind === "message",
  batch: (e, { seen }) =>
    seen.filter(({ kind }) => kind === "message").length ===
    e.filter((m: { t: string }) => m.t !== "PONG").length,
  presence: (e, player) => {
    const { change, topic, user_id: user, data } = e;
    return matches(find(player, "presence"), { change, topic, user, data });
  },
  system: (e, player) =>
    (e.type !== "rate_limit_warning" ||
      matches(find(player, "rateLimitWarning"), { limit: e.p.limit, remaining: e.p.remaining })) &&
    (e.p.broker_away === undefined || matches(find(player, "brokerUpdate"), { isAway: e.p.broker_away })),
  publication_gap: (e, player) => {
    const range = e.range && { epoch: e.range.epoch, from: e.range.from, to: e.range.to };
    return matches(find(player, "gap"), { topic: e.topic, reason: e.reason, count: e.count, range });
  },
  call: (e, player) =>
    matches(find(player, "call"), { type: e.type, payload: e.payload, timeout_ms: e.timeout_ms }),
  auth_expiry_warning: (_, player) => player.seen.some(({ kind }) => kind === "wantToken"),
  // Without encryption of version 2 it is refused; the test of the layers has the rest.
  key_update: () => true,
  reconnect: (e, player) => {
    const { reconnectAfterMs } = player.session.disconnected();
    player.session.connected("ws://a/ws", undefined, NOW);
    return reconnectAfterMs === e.after_ms;
  },
  // Answers to requests that nobody made change nothing.
  auth_refreshed: (_, { seen }) => seen.length === 0,
  subscription_update: (_, { seen }) => seen.length === 0,
  publish_response: (_, { seen }) => seen.length === 0,
  presence_response: (_, { seen }) => seen.length === 0,
  history_response: (_, { seen }) => seen.length === 0,
  call_response: (_, { seen }) => seen.length === 0,
  message_ack: (_, { seen }) => seen.length === 0,
};
