/** Types of the hooks, as the compiler sees them. `npm run check` compiles this file; here it only has to run. */

import type {
  Client,
  ConnectionStatus,
  Message,
  Published,
  PublishOptions,
  TidewireError,
} from "@tidewire/client";
import { endpoints } from "@tidewire/client/endpoints";
import { expectTypeOf } from "expect-type";
import { expect, test } from "vitest";
import {
  type Member,
  type Rows,
  TidewireProvider,
  typedHooks,
  useClient,
  useConnection,
  useLatest,
  usePresence,
  usePublish,
  useRequest,
  useTopic,
} from "../src/index.js";

interface Price {
  symbol: string;
  value: number;
}

interface Market {
  "chat.eu": { text: string };
  [prices: `prices.${string}`]: Price;
}

const market = typedHooks<Market>();

export function TypedTopics({ symbol }: { symbol: string | undefined }) {
  const { messages } = market.useTopic("chat.eu", { replay: 50 });
  expectTypeOf(messages).toEqualTypeOf<readonly Message<{ text: string }>[]>();
  const { value } = market.useTopic(symbol && (`prices.${symbol}` as const), {
    initial: 0,
    reduce: (sum: number, { payload }) => sum + payload.value,
  });
  expectTypeOf(value).toEqualTypeOf<number>();
  expectTypeOf(market.useLatest("prices.btc")).toEqualTypeOf<Message<Price> | undefined>();
  expectTypeOf(market.useLatest("prices.*", { key: "symbol" })).toEqualTypeOf<Rows<Price>>();
  const size = market.useLatest("prices.*", { key: "symbol", select: (rows) => rows.size });
  expectTypeOf(size).toEqualTypeOf<number>();
  expectTypeOf(market.usePublish("chat.eu")).toEqualTypeOf<
    (payload: { text: string }, options?: PublishOptions) => Promise<Published>
  >();
  // @ts-expect-error There is no such topic.
  market.useTopic("chat.us");
  // @ts-expect-error There is no such field.
  market.useLatest("prices.*", { key: "name" });
  return null;
}

export function Types({ client }: { client: Client }) {
  expectTypeOf(useClient()).toEqualTypeOf<Client | undefined>();
  expectTypeOf(useConnection()).toEqualTypeOf<ConnectionStatus>();

  const list = useTopic<Price>("prices", { max: 5 });
  expectTypeOf(list.messages).toEqualTypeOf<readonly Message<Price>[]>();
  expectTypeOf(list.error).toEqualTypeOf<TidewireError | undefined>();
  expectTypeOf(list.status).toEqualTypeOf<"pending" | "active" | "ended">();
  expectTypeOf(useTopic("prices").messages).toEqualTypeOf<readonly Message<unknown>[]>();
  const sum = useTopic("prices", {
    initial: 0,
    reduce: (all, message: Message<Price>) => all + message.payload.value,
  });
  expectTypeOf(sum.value).toEqualTypeOf<number>();
  // @ts-expect-error A reducer needs a first state.
  useTopic<Price, number>("prices", { reduce: (all) => all });
  // @ts-expect-error What others learn of a subscriber is for usePresence.
  useTopic("prices", { presence: {} });

  expectTypeOf(useLatest<Price>("prices")).toEqualTypeOf<Message<Price> | undefined>();
  expectTypeOf(useLatest<Price>("prices", { key: "symbol" })).toEqualTypeOf<Rows<Price>>();
  const row = useLatest<Price>("prices", { key: "symbol", select: (rows) => rows.get("A") });
  expectTypeOf(row).toEqualTypeOf<Message<Price> | undefined>();
  const size = useLatest<Price, number>("prices", { key: "symbol", select: (rows) => rows.size });
  expectTypeOf(size).toEqualTypeOf<number>();
  // @ts-expect-error There is no such field.
  useLatest<Price>("prices", { key: "name" });

  const { members } = usePresence<{ name: string }>("room", { data: { name: "Ada" } });
  expectTypeOf(members).toEqualTypeOf<readonly Member<{ name: string }>[]>();
  // @ts-expect-error The data is of the type of the members' data.
  usePresence<{ name: string }>("room", { data: { nickname: "Ada" } });

  expectTypeOf(useRequest<Price>("quote").data).toEqualTypeOf<Price | undefined>();
  expectTypeOf(usePublish<Price>("prices")).toEqualTypeOf<
    (payload: Price, options?: PublishOptions) => Promise<Published>
  >();

  return (
    <>
      <TidewireProvider client={client} />
      <TidewireProvider url={endpoints(["wss://a.test/ws", "wss://b.test/ws"])} options={{ adapt: false }} />
      {/* @ts-expect-error A provider has a client or an address. */}
      <TidewireProvider />
      {/* @ts-expect-error A client that is given has its options. */}
      <TidewireProvider client={client} options={{}} />
    </>
  );
}

test("typed hooks are the hooks", () => {
  expect(typedHooks()).toEqual({ useTopic, useLatest, usePublish });
});

test("the types are those that the compiler has checked", () => {
  expectTypeOf(Types).returns.not.toBeAny();
});
