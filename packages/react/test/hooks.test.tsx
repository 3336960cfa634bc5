import { act, waitFor } from "@testing-library/react";
import { useState } from "react";
import { expect, test } from "vitest";
import {
  type Publish,
  type Rows,
  useLatest,
  usePresence,
  usePublish,
  useRequest,
  useTopic,
} from "../src/index.js";
import { FakeServer } from "./server.js";
import { frame, show } from "./support.js";

interface Price {
  symbol: string;
  value: number;
}

test("a row renders only when its own value changes, and all rows share one subscription", async () => {
  const renders: Record<string, number> = {};
  function Row({ symbol }: { symbol: string }) {
    renders[symbol] = (renders[symbol] ?? 0) + 1;
    const last = useLatest<Price>("prices", { key: "symbol", select: (rows) => rows.get(symbol) });
    return <i>{`${symbol}=${last?.payload.value ?? "?"} `}</i>;
  }
  const { server, text } = show(["A", "B", "C"].map((symbol) => <Row key={symbol} symbol={symbol} />));
  await waitFor(() => expect(server.topics("subscribe")).toEqual(["prices"]));
  await act(frame);
  const before = { ...renders };
  for (let value = 1; value <= 10; value += 1) server.publish("prices", { symbol: "B", value });
  await waitFor(() => expect(text()).toBe("A=? B=10 C=? "));
  expect(renders["A"]).toBe(before["A"]);
  expect(renders["C"]).toBe(before["C"]);
  expect(renders["B"]! - before["B"]!).toBe(2);
});

test("a table keeps the last message of each row, in order, and no more rows than it may", async () => {
  const symbolOf = ({ payload }: { payload: Price }) => payload?.symbol;
  function Table() {
    const rows: Rows<Price> = useLatest<Price>("prices", { key: symbolOf, rowsMax: 2 });
    return <p>{[...rows].map(([symbol, { payload }]) => `${symbol}${payload.value}`).join(" ")}</p>;
  }
  const { server, text } = show(<Table />);
  await waitFor(() => expect(server.topics("subscribe")).toEqual(["prices"]));
  await act(frame);
  const update = (symbol: string, value: number) => server.publish("prices", { symbol, value });
  update("A", 1);
  update("B", 1);
  update("A", 2);
  server.publish("prices", null);
  await waitFor(() => expect(text()).toBe("A2 B1"));
  update("C", 3);
  await waitFor(() => expect(text()).toBe("B1 C3"));
});

function Members({ name }: { name?: string }) {
  const { members, users, isLoaded, isRecovering } = usePresence<{ name: string }>(
    "room",
    name === undefined ? {} : { data: { name } },
  );
  const names = members.map(({ user, data }) => `${user}:${data?.name ?? "-"}`).join(",");
  return <p>{`${isLoaded ? "loaded" : "unknown"} ${users} ${names}${isRecovering ? " recovering" : ""}`}</p>;
}

test("members are those of the list and of the events after it", async () => {
  const server = new FakeServer();
  server.members["room"] = { ada: { connections: 1, data: { name: "Ada" } }, bob: { connections: 2 } };
  const screen = show(<Members name="Me" />, server);
  const { text } = screen;
  expect(text()).toBe("unknown 0 ");
  await waitFor(() => expect(text()).toBe("loaded 2 ada:Ada,bob:-"));
  expect(server.of("subscription_update")).toHaveLength(1);
  expect(server.of("subscription_update")[0]!.p["presence"]).toEqual({ name: "Me" });
  server.presence("join", "room", "cleo", { name: "Cleo" });
  server.presence("update", "room", "bob", { name: "Bob" });
  server.presence("leave", "room", "ada");
  server.presence("join", "another", "eve");
  await waitFor(() => expect(text()).toBe("loaded 2 bob:Bob,cleo:Cleo"));
  screen.show(<Members name="Myself" />);
  await waitFor(() =>
    expect(server.of("subscription_update").at(-1)!.p["presence"]).toEqual({ name: "Myself" }),
  );
  expect(server.topics("unsubscribe")).toEqual([]);
  expect(text()).toBe("loaded 2 bob:Bob,cleo:Cleo");
});

test("events that come before the list count, and a new connection asks for the list again", async () => {
  const server = new FakeServer();
  server.members["room"] = { ada: { connections: 1 } };
  server.onRequest = (t) => {
    if (t === "presence_request" && server.of(t).length === 1) {
      server.presence("join", "room", "bob");
      server.presence("leave", "room", "ada");
    }
  };
  const { text } = show(<Members />, server);
  await waitFor(() => expect(text()).toBe("loaded 1 bob:-"));
  server.members["room"] = { cleo: { connections: 1 } };
  server.connection.close(1006);
  await waitFor(() => expect(text()).toBe("loaded 1 bob:- recovering"));
  await waitFor(() => expect(text()).toBe("loaded 1 cleo:-"));
});

test("presence of a topic that is subscribed with a filter is an error of the component, not of the tree", async () => {
  function Both() {
    const { status } = useTopic("room", { filter: { field: "a", eq: 1 } });
    const { error } = usePresence("room", { data: { name: "Me" } });
    return <p>{`${status} ${error?.code}`}</p>;
  }
  const { text } = show(<Both />);
  await waitFor(() => expect(text()).toBe("active INVALID_ARGUMENT"));
});

test("more users than are named count", async () => {
  const server = new FakeServer();
  server.members["room"] = { ada: { connections: 1 } };
  server.unnamed = 2_000;
  const { text } = show(<Members />, server);
  await waitFor(() => expect(text()).toBe("loaded 2001 ada:-"));
  server.presence("leave", "room", "somebody");
  await waitFor(() => expect(text()).toBe("loaded 2000 ada:-"));
});

function Quote({ symbol, enabled = true }: { symbol: string; enabled?: boolean }) {
  const { status, data, error, isFetching, refetch } = useRequest<number>("quote", { symbol }, { enabled });
  return (
    <button type="button" onClick={refetch}>
      {`${status} ${data ?? "-"} ${error?.code ?? "-"}${isFetching ? " fetching" : ""}`}
    </button>
  );
}

test("a request is made once, again for another payload or on demand, and no old answer is shown", async () => {
  const server = new FakeServer();
  let price = 1;
  server.onCall = (_, payload) => {
    const { symbol } = payload as Price;
    return symbol === "SLOW" ? undefined : price;
  };
  const screen = show(<Quote symbol="A" />, server);
  const { text } = screen;
  expect(text()).toBe("loading - - fetching");
  await waitFor(() => expect(text()).toBe("success 1 -"));
  expect(server.of("call_request")).toHaveLength(1);
  price = 2;
  await act(async () => document.querySelector("button")!.click());
  await waitFor(() => expect(text()).toBe("success 2 -"));
  screen.show(<Quote symbol="SLOW" />);
  expect(text()).toBe("loading - - fetching");
  await waitFor(() => expect(server.of("call_request")).toHaveLength(3));
  screen.show(<Quote symbol="B" />);
  await waitFor(() => expect(text()).toBe("success 2 -"));
  // The answer to a request that nobody waits for any more comes late.
  server.connection.send({
    c: "WSE",
    t: "call_response",
    cid: server.of("call_request")[2]!.cid,
    p: { payload: 99 },
  });
  await act(frame);
  expect(text()).toBe("success 2 -");
  screen.show(<Quote symbol="C" enabled={false} />);
  expect(text()).toBe("idle - -");
});

test("a request that fails has an error; one whose connection was lost is made again", async () => {
  const server = new FakeServer();
  const screen = show(<Quote symbol="A" />, server);
  await waitFor(() => expect(server.of("call_request")).toHaveLength(1));
  const error = { code: "NOT_FOUND", message: "nobody answers" };
  server.connection.send({
    c: "WSE",
    t: "call_response",
    cid: server.of("call_request")[0]!.cid,
    p: { error },
  });
  await waitFor(() => expect(screen.text()).toBe("error - NOT_FOUND"));
  screen.show(<Quote symbol="B" />);
  await waitFor(() => expect(server.of("call_request")).toHaveLength(2));
  server.onCall = () => 5;
  server.connection.close(1006);
  await waitFor(() => expect(screen.text()).toBe("success 5 -"));
});

test("publish stays the same function and resolves when the server has accepted", async () => {
  const server = new FakeServer();
  const functions = new Set<Publish<{ text: string }>>();
  let render = () => {};
  function Form() {
    const [sent, setSent] = useState(0);
    const [, setCount] = useState(0);
    render = () => setCount((n) => n + 1);
    const publish = usePublish<{ text: string }>("chat");
    functions.add(publish);
    const send = () => publish({ text: "hello" }, { type: "line" }).then(() => setSent((n) => n + 1));
    return (
      <button type="button" onClick={() => void send()}>
        {sent}
      </button>
    );
  }
  const { text } = show(<Form />, server);
  // StrictMode throws the first render of the first two away.
  functions.clear();
  act(() => render());
  act(() => render());
  await act(async () => document.querySelector("button")!.click());
  await waitFor(() => expect(text()).toBe("1"));
  expect(server.of("publish_request")[0]!.p).toMatchObject({
    topic: "chat",
    type: "line",
    payload: { text: "hello" },
  });
  expect(functions.size).toBe(1);
});
