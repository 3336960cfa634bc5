/** A page whose clients share a connection, or have one each, which a test drives from outside. */

import { type Client, connect, type Message } from "@tidewire/client";
import { shared } from "@tidewire/client/shared";

interface Options {
  isShared?: boolean;
  topics?: string[];
  idleTimeoutMs?: number;
  /** The delay before the first reconnection. */
  baseMs?: number;
  /** What the others on the topics learn of this tab. */
  presence?: object;
}

// What a page leaves behind is counted before anything of the client runs.
const left = {
  sockets: new Set<WebSocket>(),
  timers: new Set<unknown>(),
  channels: new Set<BroadcastChannel>(),
};
globalThis.BroadcastChannel = class extends BroadcastChannel {
  constructor(name: string) {
    super(name);
    left.channels.add(this);
  }

  override close(): void {
    super.close();
    left.channels.delete(this);
  }
};
globalThis.WebSocket = class extends WebSocket {
  constructor(...args: ConstructorParameters<typeof WebSocket>) {
    super(...args);
    left.sockets.add(this);
    this.addEventListener("close", () => left.sockets.delete(this));
  }
};
const { setTimeout, clearTimeout } = globalThis;
Object.assign(globalThis, {
  setTimeout(run: () => void, ms?: number) {
    const timer = setTimeout(() => {
      left.timers.delete(timer);
      run();
    }, ms);
    left.timers.add(timer);
    return timer;
  },
  clearTimeout(timer: number) {
    left.timers.delete(timer);
    clearTimeout(timer);
  },
});

const tab = {
  client: undefined as Client | undefined,
  got: {} as Record<string, unknown[]>,
  states: [] as string[],
  log: [] as string[],
  degraded: [] as string[],
  events: [] as string[],

  start(
    url: string,
    { isShared = true, topics = [], idleTimeoutMs = 60_000, baseMs = 50, presence }: Options = {},
  ): void {
    const client = connect(url, {
      ...(isShared ? { shared: shared() } : {}),
      reconnect: { baseMs, maxMs: 4 * baseMs },
      idleTimeoutMs,
      log: (_, message) => tab.log.push(message),
      on: {
        degraded: ({ reason }) => tab.degraded.push(reason),
        disconnected: ({ code, reason }) => tab.events.push(`disconnected ${code} ${reason}`),
        connected: () => tab.events.push("connected"),
        unrecovered: ({ topic }) => tab.events.push(`unrecovered ${topic}`),
      },
    });
    tab.client = client;
    client.status.subscribe(() => tab.states.push(client.state));
    for (const topic of topics) {
      tab.got[topic] = [];
      const options = presence ? { presence } : {};
      client.subscribe(topic, options).on("message", ({ payload }: Message) => tab.got[topic]!.push(payload));
    }
  },

  state: () => tab.client?.state,
  left: () => ({ sockets: left.sockets.size, timers: left.timers.size, channels: left.channels.size }),

  async locks(): Promise<number> {
    const { held = [], pending = [] } = await navigator.locks.query();
    return held.length + pending.length;
  },

  /** The page stands still, as at a breakpoint. */
  hang(ms: number): void {
    const endMs = performance.now() + ms;
    setTimeout(() => {
      while (performance.now() < endMs);
    });
  },

  /** Spends some of the processor, so that the page's process can be told from others. */
  work(): number {
    let sum = 0;
    for (let count = 0; count < 1e8; count++) sum = (sum + count * 7) % 1_000_003;
    return sum;
  },
};

export type Tab = typeof tab;

for (const name of ["pagehide", "pageshow", "freeze", "resume"]) {
  const target = name.startsWith("page") ? window : document;
  target.addEventListener(name, (event) => {
    tab.events.push(`${name} ${(event as PageTransitionEvent).persisted ?? ""}`.trim());
  });
}

Object.assign(globalThis, { tab });
