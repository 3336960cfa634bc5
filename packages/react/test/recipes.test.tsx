/** The recipes of docs/typescript-state.md, as they stand there. */

import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath, URL } from "node:url";
import { configureStore } from "@reduxjs/toolkit";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { render, waitFor } from "@testing-library/react";
import { connect } from "@tidewire/client";
import { TestServer } from "@tidewire/client/testing";
import type { ComponentType, ReactNode } from "react";
import { Provider } from "react-redux";
import { afterAll, beforeAll, expect, test } from "vitest";
import { useStore } from "zustand";
import { TidewireProvider } from "../src/index.js";

// Vite takes `new URL(…, import.meta.url)` for a file of the page.
const here = import.meta.url;
const folder = fileURLToPath(new URL(".snippets/", here));

interface Order {
  id: number;
  state: string;
}

let recipes: Record<string, Record<string, (...given: never[]) => unknown>>;

beforeAll(async () => {
  const page = readFileSync(new URL("../../../docs/typescript-state.md", here), "utf8");
  mkdirSync(folder, { recursive: true });
  const found = [...page.matchAll(/^```tsx\n\/\/ recipe: (\w+)\n([\s\S]*?)^```$/gm)];
  const modules = found.map(async ([, name, code]) => {
    writeFileSync(`${folder}${name}.tsx`, code!);
    return [name, await import(/* @vite-ignore */ `${folder}${name}.tsx`)];
  });
  recipes = Object.fromEntries(await Promise.all(modules));
  expect(Object.keys(recipes)).toHaveLength(4);
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Shows a component under a client of this server; the text of the page. */
function show(server: TestServer, children: ReactNode): () => string {
  const { container } = render(
    <TidewireProvider url={server.url} options={{ transport: server.transport }}>
      {children}
    </TidewireProvider>,
  );
  return () => container.textContent ?? "";
}

const line = (orders: Order[] | undefined) =>
  (orders ?? []).map(({ id, state }) => `${id} ${state}`).join(", ");

/** A server whose orders change, as those of an application do. */
function shop() {
  const server = new TestServer({ history: { orders: 2 } });
  const orders = new Map<number, Order>([[1, { id: 1, state: "new" }]]);
  server.handle("orders", () => [...orders.values()]);
  const change = (id: number, state: string) => {
    orders.set(id, { id, state });
    server.publish("orders", { id, state });
  };
  return { server, change };
}

/** What both recipes of orders have to hold: they load, they follow, and they load again when publications are missing. */
async function follows(text: () => string, { server, change }: ReturnType<typeof shop>) {
  await waitFor(() => expect(text()).toBe("1 new"));
  change(2, "new");
  await waitFor(() => expect(text()).toBe("1 new, 2 new"));
  change(2, "paid");
  await waitFor(() => expect(text()).toBe("1 new, 2 paid"));
  server.stop({ comeBackMs: false });
  // More than the topic keeps.
  for (const id of [3, 4, 5, 6]) change(id, "new");
  server.start();
  await waitFor(() => expect(text()).toBe("1 new, 2 paid, 3 new, 4 new, 5 new, 6 new"));
}

test("TanStack Query", async () => {
  const useOrders = recipes.tanstack!.useOrders as () => { data: Order[] | undefined };
  const Orders: ComponentType = () => <p>{line(useOrders().data)}</p>;
  const { server, change } = shop();
  const text = show(
    server,
    <QueryClientProvider client={new QueryClient()}>
      <Orders />
    </QueryClientProvider>,
  );
  await follows(text, { server, change });
});

test("SWR", async () => {
  const usePrice = recipes.swr!.usePrice as (symbol: string) => { data?: { cents: number }; error?: Error };
  function Price() {
    const { data, error } = usePrice("tea");
    return <p>{error?.message ?? data?.cents}</p>;
  }
  const server = new TestServer({ history: { "prices.>": 1 } });
  server.publish("prices.tea", { cents: 350 });
  const text = show(
    server,
    <>
      <Price />
      <Price />
    </>,
  );
  await waitFor(() => expect(text()).toBe("350350"));
  server.publish("prices.tea", { cents: 400 });
  await waitFor(() => expect(text()).toBe("400400"));
  expect(server.subscribers("prices.tea")).toBe(1);
});

test("Redux Toolkit", async () => {
  const { server, change } = shop();
  const client = connect(server.url, { transport: server.transport });
  // biome-ignore lint/suspicious/noExplicitAny: the type is in the page.
  const api = (recipes.redux!.ordersApi as any)(client);
  const store = configureStore({
    reducer: { [api.reducerPath]: api.reducer },
    middleware: (before) => before().concat(api.middleware),
  });
  const Orders: ComponentType = () => <p>{line(api.useOrdersQuery().data)}</p>;
  const { container, unmount } = render(
    <Provider store={store}>
      <Orders />
    </Provider>,
  );
  await follows(() => container.textContent ?? "", { server, change });
  unmount();
  await client.close();
});

test("Zustand", async () => {
  const server = new TestServer({ history: { prices: 100 } });
  server.publish("prices", { symbol: "tea", cents: 350 });
  const client = connect(server.url, { transport: server.transport });
  // biome-ignore lint/suspicious/noExplicitAny: the type is in the page.
  const store = (recipes.zustand!.pricesStore as any)(client);
  // biome-ignore lint/suspicious/noExplicitAny: the type is in the page.
  const useCents = () => useStore(store, (state: any) => [state.cents.tea, state.isCurrent].join(" "));
  const Price: ComponentType = () => <p>{useCents()}</p>;
  const { container } = render(<Price />);
  await waitFor(() => expect(container.textContent).toBe("350 true"));
  server.publish("prices", { symbol: "tea", cents: 400 });
  await waitFor(() => expect(container.textContent).toBe("400 true"));
  server.stop({ comeBackMs: false });
  await waitFor(() => expect(container.textContent).toBe("400 false"));
  await client.close();
});
