/** The application's side of a scenario: an interpreter of its calls. */

import { encrypt } from "../../src/encrypt.js";
import { endpoints } from "../../src/endpoints.js";
import {
  type Client,
  type ClientOptions,
  connect,
  open,
  type Target,
  TidewireError,
} from "../../src/index.js";

import { type MessageQueue, queue } from "../../src/queue.js";

import type { Seen } from "./server.js";

/** Nothing in a scenario takes longer. */
const DEADLINE_MS = 20_000;
const CONDITIONS = ["as", "gives", "answer", "failed", "has"];

/** The events of the Rust and Python clients, and what they are here. */
const EVENTS = {
  disconnected: (d: { code: number; reason: string; retryInMs?: number }) => ({
    code: [1005, 1006].includes(d.code) ? null : d.code,
    reason: d.reason,
    retry_in: d.retryInMs === undefined ? null : d.retryInMs / 1000,
  }),
  error: (error: TidewireError) => ({ code: error.code, message: error.message }),
  queueFailed: (error: TidewireError) => ({ message: error.message }),
  brokerUpdate: (d: { isAway: boolean }) => ({ away: d.isAway }),
  uncertain: (d: { messages: unknown[]; resent: boolean }) => ({
    messages: d.messages.length,
    resent: d.resent,
  }),
} as const;

type ClientStep = Record<string, unknown>;
interface Outcome {
  code: string;
  value: unknown;
}

export class Application {
  readonly #target: Target;
  readonly #options: ClientOptions & { queue?: MessageQueue };
  readonly #seen: Seen;
  readonly #calls = new Map<string, { outcome: Promise<Outcome>; abort: AbortController }>();
  readonly #received: { kind: string; value: unknown }[] = [];
  #client: Client | undefined;

  constructor(urls: string[], options: Record<string, unknown>, seen: Seen) {
    this.#target = targetOf(urls, options);
    const listen = (kind: string) => [kind, (value: unknown) => this.#received.push({ kind, value })];
    const on = Object.fromEntries([...Object.keys(EVENTS), "message"].map(listen)) as ClientOptions["on"];
    this.#options = { ...toOptions(options), ...(on ? { on } : {}) };
    this.#seen = seen;
  }

  get client(): Client {
    if (!this.#client) throw new Error("the client was not started");
    return this.#client;
  }

  async step(step: ClientStep): Promise<void> {
    if (typeof step.done === "string") {
      const call = this.#calls.get(step.done)!;
      this.#calls.delete(step.done);
      return check(step, call.outcome);
    }
    if (typeof step.cancel === "string") {
      const call = this.#calls.get(step.cancel)!;
      this.#calls.delete(step.cancel);
      call.abort.abort();
      await call.outcome;
      return;
    }
    if (await this.#look(step)) return;
    const name = Object.keys(step).find((one) => !CONDITIONS.includes(one))!;
    const abort = new AbortController();
    const outcome = this.#call(name, step[name], (step.has ?? {}) as object, abort.signal).then(
      (value) => ({ code: "ok", value }),
      (error: unknown) => {
        if (!(error instanceof TidewireError)) throw error;
        return { code: error.code, value: error };
      },
    );
    if (typeof step.as !== "string") return check(step, outcome);
    this.#calls.set(step.as, { outcome, abort });
    // It has begun before the next step does.
    await Promise.resolve();
  }

  /** Ends the client, and every call with it. */
  async end(): Promise<void> {
    if (this.#client) await inTime("close", this.#client.close());
    for (const [name, { outcome }] of this.#calls) await inTime(name, outcome);
  }

  async #look(step: ClientStep): Promise<boolean> {
    const { state, read, never_read: never, connections } = step;
    if (state !== undefined) {
      await until(step, () => (this.#client?.state ?? "closed") === state);
    } else if (read !== undefined) await until(step, () => this.#seen.types.includes(read as string));
    else if (never !== undefined) {
      if (this.#seen.types.includes(never as string)) throw new Error(`${String(never)} was read`);
    } else if (connections !== undefined) {
      await until(step, () => this.#seen.connections >= (connections as number));
    } else return false;
    return true;
  }

  async #call(name: string, value: unknown, has: object, signal: AbortSignal): Promise<unknown> {
    if (name === "start") {
      this.#client = connect(this.#target, this.#options);
      return undefined;
    }
    if (name === "connect") {
      this.#client = await open(this.#target, this.#options);
      return undefined;
    }
    const { client } = this;
    const [first, second, third] = (Array.isArray(value) ? value : [value]) as [string, unknown, unknown];
    if (name === "ready") return void (await client.connected({ signal }));
    if (name === "send") return void client.send(first, second);
    if (name === "request") return client.request(first, second, { signal });
    if (name === "publish")
      return void (await client.publish(first, third, { type: second as string, signal }));
    if (name === "subscribe") return this.#subscribe(value as string[], signal);
    if (name === "enqueue") return this.#options.queue!.sendLater(first, second);
    if (name === "send_acknowledged") return this.#options.queue!.send(first, second);
    if (name === "ping") return client.ping({ signal });
    if (name === "receive") {
      return void (await this.#receive("message", (one) => (one as { type: string }).type === value));
    }
    if (name === "event") {
      const kind = (value as string).replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
      const found = await this.#receive(kind, () => true);
      const seen = EVENTS[kind as keyof typeof EVENTS](found as never) as Record<string, unknown>;
      return compare(seen, has as Record<string, unknown>);
    }
    if (name !== "close") throw new Error(`no application does ${name}`);
    return client.close(first as unknown as number, second as string);
  }

  async #subscribe(topics: string[], signal: AbortSignal): Promise<string[]> {
    const failed: string[] = [];
    const subscription = this.client.subscribe(topics);
    subscription.on("failed", ({ topic }) => failed.push(topic));
    try {
      await subscription.ready({ signal });
    } catch (error) {
      if (!failed.length || (error as TidewireError).code !== "SUBSCRIPTION_FAILED") throw error;
    }
    return failed;
  }

  async #receive(kind: string, isWanted: (value: unknown) => boolean): Promise<unknown> {
    let found: unknown;
    let ended = false;
    await until({ kind }, () => {
      if (this.client.state === "closed" && kind === "message") ended = true;
      const at = this.#received.findIndex((one) => one.kind === kind && isWanted(one.value));
      if (at >= 0) found = this.#received.splice(at, 1)[0]!.value;
      return ended || at >= 0;
    });
    // What a call of an ended client is told.
    if (ended && found === undefined) await this.client.connected();
    return found;
  }
}

function toOptions(options: Record<string, unknown>): ClientOptions & { queue?: MessageQueue } {
  const { reconnect_base_ms: baseMs, reconnect_max_ms: maxMs } = options;
  const known: ClientOptions & { queue?: MessageQueue } = {
    reconnect: options.reconnect === false ? false : defined({ baseMs, maxMs }),
    ...defined({
      requestsMax: options.requests_max,
      connectTimeoutMs: options.connect_timeout_ms,
      requestTimeoutMs: options.request_timeout_ms,
      token: options.token,
    }),
  };
  if (options.encryption) known.encryption = encrypt();
  if (options.offline_queue) {
    known.queue = queue({ uncertain: options.queue_resend_uncertain ? "resend" : "drop" });
  }
  return known;
}

/** The addresses of a scenario, with what its options say of their choice. */
function targetOf(urls: string[], options: Record<string, unknown>): Target {
  const { choice, breaker_failures_max, breaker_open_ms } = options;
  const breaker = defined({ failuresMax: breaker_failures_max, openMs: breaker_open_ms });
  if (urls.length === 1 && !choice && !Object.keys(breaker).length) return urls[0]!;
  return endpoints(urls, defined({ choice, breaker }));
}

function defined(value: Record<string, unknown>): object {
  return Object.fromEntries(Object.entries(value).filter(([, one]) => one !== undefined));
}

/** Holds what a call gave against what it should give. */
async function check(step: ClientStep, outcome: Promise<Outcome>): Promise<void> {
  const expected = step.connect ?? step.gives ?? "ok";
  const { code, value } = await inTime(JSON.stringify(step), outcome);
  if (![expected].flat().includes(code))
    throw new Error(`${JSON.stringify(step)} gave ${code}: ${String(value)}`);
  if (code !== "ok") return;
  for (const name of ["answer", "failed"]) {
    if (name in step && JSON.stringify(step[name]) !== JSON.stringify(value)) {
      throw new Error(`${JSON.stringify(step)} gave ${JSON.stringify(value)}`);
    }
  }
}

/** Of a text it is enough to be contained, `[low, high]` is a range. */
function compare(fields: Record<string, unknown>, expected: Record<string, unknown>): void {
  for (const [name, value] of Object.entries(expected)) {
    const found = fields[name];
    const isRight =
      typeof value === "string"
        ? String(found).includes(value)
        : Array.isArray(value) && typeof found === "number"
          ? value[0] <= found && found <= value[1]
          : JSON.stringify(found) === JSON.stringify(value);
    if (!isRight)
      throw new Error(`${name}: ${JSON.stringify(fields)} in place of ${JSON.stringify(expected)}`);
  }
}

async function inTime<T>(what: string, promise: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} never ends`)), DEADLINE_MS);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

async function until(step: object, condition: () => boolean): Promise<void> {
  const deadline = performance.now() + DEADLINE_MS;
  while (!condition()) {
    if (performance.now() > deadline) throw new Error(`in vain: ${JSON.stringify(step)}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}
