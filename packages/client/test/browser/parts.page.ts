/** A page with the build for production of every part that changes what travels. */

import { connect, history, type Message, TidewireError } from "@tidewire/client";
import { compress } from "@tidewire/client/compress";
import { encrypt } from "@tidewire/client/encrypt";
import { endpoints } from "@tidewire/client/endpoints";
import { msgpack } from "@tidewire/client/msgpack";

/** What a client with all parts sees of a conversation with the engine. */
async function converse(url: string): Promise<unknown> {
  const servers = endpoints([{ url, weight: 2 }], { choice: "round_robin" });
  const options = { format: msgpack(), compression: compress(), encryption: encrypt() };
  const client = connect(servers, options);
  const subscription = client.subscribe<{ n: number; pad: string }>("kept.page", { recover: true });
  await subscription.ready();
  const pad = "long enough to be compressed ".repeat(100);
  const received: number[] = [];
  const all = new Promise<void>((resolve) => {
    subscription.on("message", ({ payload, position }: Message<{ n: number; pad: string }>) => {
      if (payload.pad === pad && position?.offset === received.length + 1) received.push(payload.n);
      if (received.length === 3) resolve();
    });
  });
  for (const n of [1, 2, 3]) await client.publish("kept.page", { n, pad });
  await all;
  const failure: unknown = await client.request("quote", {}).catch((error: unknown) => error);
  const { publications } = await history<{ n: number }>(client, "kept.page", { order: "newest", limit: 2 });
  const { breaker } = servers.health()[0]!;
  await client.close();
  const closed: unknown = await client.request("quote", {}).catch((error: unknown) => error);
  return {
    received,
    failure: failure instanceof TidewireError && failure.code,
    history: publications.map(({ payload }) => payload.n),
    breaker,
    closed: closed instanceof TidewireError && closed.code,
  };
}

/** What production says of a wrong option and of a wrong address. */
function wrong(): unknown {
  const ignored = { recconnect: false } as object;
  void connect("ws://127.0.0.1:9/ws", ignored).close();
  try {
    connect("ftp://127.0.0.1/");
  } catch (error) {
    return String(error);
  }
  return undefined;
}

const parts = { converse, wrong };
Object.assign(globalThis, { parts });

export type Parts = typeof parts;
