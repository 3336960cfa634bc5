/** Types of the client, as the compiler sees them. `npm run check` compiles this file; here it only has to run. */

import { expectTypeOf } from "expect-type";
import { test } from "vitest";
import {
  type Client,
  type ClientEvents,
  type ClientOptions,
  type ConnectionStatus,
  connect,
  type Gap,
  type HistoryPage,
  handle,
  history,
  type Message,
  type Observable,
  open,
  type PayloadOf,
  type Position,
  type PreparedMessage,
  type PresenceEvent,
  type PresenceInfo,
  type Published,
  prepare,
  presence,
  type Subscription,
  type SubscriptionStatus,
  type TidewireError,
  type TypedClient,
} from "../src/index.js";
import { type MessageQueue, queue } from "../src/queue.js";

interface Price {
  symbol: string;
  bid: number;
}

interface Chat {
  text: string;
}

export async function subscribing(client: Client) {
  const prices = client.subscribe<Price>("prices.*");
  expectTypeOf(prices).toEqualTypeOf<Subscription<Price>>();
  expectTypeOf(client.subscribe("prices.*")).toEqualTypeOf<Subscription<unknown>>();
  expectTypeOf(client.subscribe<Price>(["a", "b"] as const)).toEqualTypeOf<Subscription<Price>>();
  expectTypeOf(prices.ready()).resolves.toEqualTypeOf<Subscription<Price>>();
  expectTypeOf(prices.status).toEqualTypeOf<Observable<SubscriptionStatus>>();
  for await (const message of prices) {
    expectTypeOf(message).toEqualTypeOf<Message<Price>>();
    expectTypeOf(message.payload.bid).toEqualTypeOf<number>();
    expectTypeOf(message.topic).toEqualTypeOf<string | undefined>();
    expectTypeOf(message.position).toEqualTypeOf<Position | undefined>();
  }
  for await (const batch of prices.batches()) expectTypeOf(batch).toEqualTypeOf<Message<Price>[]>();
  prices.on("message", (message) => expectTypeOf(message).toEqualTypeOf<Message<Price>>());
  prices.on("gap", (gap) => expectTypeOf(gap).toEqualTypeOf<Gap>());
  prices.on("presence", (event) => expectTypeOf(event).toEqualTypeOf<PresenceEvent>());
  prices.on("failed", ({ topic, error }) => {
    expectTypeOf(topic).toBeString();
    expectTypeOf(error).toEqualTypeOf<TidewireError>();
  });
  // @ts-expect-error There is no such event.
  prices.on("messages", () => {});
  // @ts-expect-error A policy is one of three.
  client.subscribe("prices", { overload: "drop_newest" });
  // @ts-expect-error There is no such option.
  client.subscribe("prices", { recovery: true });
  // @ts-expect-error A priority is one of five.
  await client.publish("prices", {}, { priority: 2 });
}

export function asking(client: Client) {
  expectTypeOf(client.request<Price>("quote", { symbol: "A" })).resolves.toEqualTypeOf<Price>();
  expectTypeOf(client.request("quote")).resolves.toBeUnknown();
  expectTypeOf(client.publish("chat.eu", { text: "hello" })).resolves.toEqualTypeOf<Published>();
  expectTypeOf(client.send("tick", { n: 1 })).toBeBoolean();
  expectTypeOf(prepare(client, "tick", { n: 1 })).toEqualTypeOf<PreparedMessage>();
  expectTypeOf(client.ping({ timeoutMs: 1_000 })).resolves.toBeNumber();
  expectTypeOf(history<Chat>(client, "chat.eu")).resolves.toEqualTypeOf<HistoryPage<Chat>>();
  expectTypeOf(presence(client, "chat.eu")).resolves.toEqualTypeOf<Record<string, PresenceInfo>>();
  handle(client, "where", (_: Chat, { type, signal }) => {
    expectTypeOf(type).toBeString();
    expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
    return { lat: 52.5 };
  });
  // @ts-expect-error The order is one of two.
  void history(client, "chat.eu", { order: "oldest_first" });
}

export function watching(client: Client) {
  expectTypeOf(client.status).toEqualTypeOf<Observable<ConnectionStatus>>();
  expectTypeOf(client.state).toEqualTypeOf<"connecting" | "open" | "recovering" | "waiting" | "closed">();
  const off = client.on("disconnected", ({ code, retryInMs }) => {
    expectTypeOf(code).toBeNumber();
    expectTypeOf(retryInMs).toEqualTypeOf<number | undefined>();
  });
  expectTypeOf(off).toEqualTypeOf<() => void>();
  client.on("error", (error) => expectTypeOf(error).toEqualTypeOf<TidewireError>());
  client.on("uncertain", ({ done, resent }) => {
    expectTypeOf(done).toEqualTypeOf<() => void>();
    expectTypeOf(resent).toBeBoolean();
  });
  expectTypeOf<ClientEvents["message"]>().toEqualTypeOf<Message>();
  // @ts-expect-error There is no such event.
  client.on("close", () => {});
}

export function opening(options: ClientOptions) {
  expectTypeOf(connect("ws://a")).toEqualTypeOf<Client>();
  expectTypeOf(connect(new URL("ws://a"), options)).toEqualTypeOf<Client>();
  expectTypeOf(open("ws://a")).resolves.toEqualTypeOf<Client>();
  expectTypeOf<ClientOptions["token"]>().toEqualTypeOf<
    string | (() => string | Promise<string>) | undefined
  >();
  connect("ws://a", { queue: queue(), token: async () => "a", reconnect: { delay: "linear" } });
  connect("ws://a", { on: { gap: ({ count }) => expectTypeOf(count).toBeNumber() } });
  // @ts-expect-error There is no such option.
  connect("ws://a", { recconnect: false });
  // @ts-expect-error A delay is one of four.
  connect("ws://a", { reconnect: { delay: "constant" } });
  // @ts-expect-error An address is no number.
  connect(5006);
}

export function queueing(outbox: MessageQueue, signal: AbortSignal) {
  expectTypeOf(outbox.send("order", { item: 1 }, { priority: 8, signal })).resolves.toBeVoid();
  expectTypeOf(outbox.publish("orders", 1, { key: "k", signal })).resolves.toBeVoid();
  expectTypeOf(outbox.depth).toBeNumber();
}

interface Topics {
  "chat.eu": Chat;
  [prices: `prices.${string}`]: Price;
}

export async function typed() {
  const client = connect<Topics>("ws://a");
  expectTypeOf(client).toEqualTypeOf<TypedClient<Topics>>();
  expectTypeOf(open<Topics>("ws://a")).resolves.toEqualTypeOf<TypedClient<Topics>>();
  // It is a client for all that takes one.
  expectTypeOf(client).toExtend<Client>();
  void history<Chat>(client, "chat.eu");

  expectTypeOf(client.subscribe("chat.eu")).toEqualTypeOf<Subscription<Chat>>();
  expectTypeOf(client.subscribe("prices.btc", { recover: true })).toEqualTypeOf<Subscription<Price>>();
  expectTypeOf(client.subscribe("prices.*")).toEqualTypeOf<Subscription<Price>>();
  expectTypeOf(client.subscribe(["prices.btc", "chat.eu"])).toEqualTypeOf<Subscription<Price | Chat>>();
  for await (const { payload } of client.subscribe("prices.btc")) {
    expectTypeOf(payload).toEqualTypeOf<Price>();
  }
  // A topic that the map does not have, and a type that is given, are as without a map.
  expectTypeOf(client.subscribe("news")).toEqualTypeOf<Subscription<unknown>>();
  expectTypeOf(client.subscribe<Chat>("prices.btc")).toEqualTypeOf<Subscription<Chat>>();

  await client.publish("chat.eu", { text: "hello" });
  await client.publish("news", { any: "thing" });
  // @ts-expect-error The payload of a topic of the map has its type.
  await client.publish("chat.eu", { words: "hello" });
  // @ts-expect-error The same for a topic that a template has.
  await client.publish("prices.btc", { text: "hello" });
  expectTypeOf<PayloadOf<Topics, "prices.btc">>().toEqualTypeOf<Price>();
  expectTypeOf<PayloadOf<Topics, "news">>().toBeUnknown();
}

test("the types are those that the compiler has checked", () => {
  for (const checked of [subscribing, asking, watching, opening, queueing, typed]) {
    expectTypeOf(checked).returns.not.toBeAny();
  }
});
