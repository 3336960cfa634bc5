import { act, render, waitFor } from "@testing-library/react";
import { useState } from "react";
import { expect, test } from "vitest";
import { TidewireProvider, useConnection, useTopic } from "../src/index.js";
import { FakeServer } from "./server.js";
import { frame, show } from "./support.js";

interface Line {
  text: string;
}

function Lines({ topic, max }: { topic: string | null; max?: number }) {
  const { messages, status, error, isRecovering } = useTopic<Line>(topic, max === undefined ? {} : { max });
  return (
    <p>
      {status} {messages.map(({ payload }) => payload.text).join(",")} {error?.code}{" "}
      {isRecovering && "recovering"}
    </p>
  );
}

test("messages appear, the newest last, and no more than were asked for", async () => {
  const { server, text } = show(<Lines topic="chat" max={3} />);
  await waitFor(() => expect(text()).toContain("active"));
  for (let n = 1; n <= 20; n += 1) server.publish("chat", { text: `m${n}` });
  await waitFor(() => expect(text()).toContain("m20"));
  expect(text()).toBe("active m18,m19,m20  ");
});

test("StrictMode makes one connection and one subscription", async () => {
  const { server, text } = show(<Lines topic="chat" />);
  await waitFor(() => expect(text()).toContain("active"));
  await act(frame);
  expect(server.transport.connections).toHaveLength(1);
  expect(server.topics("subscribe")).toEqual(["chat"]);
  expect(server.topics("unsubscribe")).toEqual([]);
});

test("a burst is one render", async () => {
  let renders = 0;
  function Counted() {
    renders += 1;
    const { messages, status } = useTopic("chat");
    return (
      <p>
        {status} {messages.length}
      </p>
    );
  }
  const { server, text } = show(<Counted />);
  await waitFor(() => expect(text()).toContain("active"));
  await act(frame);
  const before = renders;
  await act(async () => {
    for (let n = 0; n < 50; n += 1) server.publish("chat", { n });
    await frame();
    await frame();
  });
  expect(text()).toBe("active 50");
  // StrictMode calls a component twice for each render.
  expect(renders - before).toBe(2);
});

test("another topic shows nothing of the one before, not even for one render", async () => {
  const shown: [string, string[]][] = [];
  function Recorded({ topic }: { topic: string }) {
    const { messages, status } = useTopic<Line>(topic);
    shown.push([topic, messages.map((message) => message.topic!)]);
    return <p>{`${topic} ${status} ${messages.length}`}</p>;
  }
  const screen = show(<Recorded topic="a" />);
  const { server, text } = screen;
  await waitFor(() => expect(text()).toBe("a active 0"));
  server.publish("a", { text: "old" });
  await waitFor(() => expect(text()).toBe("a active 1"));
  server.answers = false;
  screen.show(<Recorded topic="b" />);
  expect(text()).toBe("b pending 0");
  server.publish("a", { text: "late" });
  await act(frame);
  expect(text()).toBe("b pending 0");
  await waitFor(() => expect(server.topics("unsubscribe")).toEqual(["a"]));
  for (const [topic, topics] of shown) expect(topics.filter((name) => name !== topic)).toEqual([]);
});

test("options that are written inline do not subscribe again; another filter does, and begins anew", async () => {
  let render = () => {};
  function Inline({ side }: { side: string }) {
    const [count, setCount] = useState(0);
    render = () => setCount((before) => before + 1);
    const { messages, status } = useTopic("trades", {
      filter: { field: "side", eq: side },
      replay: 5,
      onMessage: () => {},
    });
    return <p>{`${count} ${status} ${messages.length}`}</p>;
  }
  const screen = show(<Inline side="buy" />);
  const { server, text } = screen;
  await waitFor(() => expect(text()).toBe("0 active 0"));
  server.publish("trades", {});
  await waitFor(() => expect(text()).toBe("0 active 1"));
  for (let n = 1; n <= 5; n += 1) act(() => render());
  expect(text()).toBe("5 active 1");
  expect(server.topics("subscribe")).toEqual(["trades"]);
  screen.show(<Inline side="sell" />);
  await waitFor(() => expect(text()).toBe("5 active 0"));
});

test("a reducer makes a state, and the newest function is called", async () => {
  function Sum({ factor }: { factor: number }) {
    const { value } = useTopic<{ n: number }, number>("numbers", {
      initial: 0,
      reduce: (sum, { payload }) => sum + factor * payload.n,
    });
    return <p>{value}</p>;
  }
  const screen = show(<Sum factor={1} />);
  const { server, text } = screen;
  await waitFor(() => expect(server.topics("subscribe")).toEqual(["numbers"]));
  await act(frame);
  server.publish("numbers", { n: 2 });
  await waitFor(() => expect(text()).toBe("2"));
  screen.show(<Sum factor={10} />);
  server.publish("numbers", { n: 3 });
  await waitFor(() => expect(text()).toBe("32"));
  expect(server.topics("subscribe")).toEqual(["numbers"]);
});

test("max 0 renders for no message, and the handler gets each", async () => {
  const seen: unknown[] = [];
  let renders = 0;
  function Silent() {
    renders += 1;
    const { status } = useTopic("chat", { max: 0, onMessage: ({ payload }) => seen.push(payload) });
    return <p>{status}</p>;
  }
  const { server, text } = show(<Silent />);
  await waitFor(() => expect(text()).toBe("active"));
  await act(frame);
  const before = renders;
  for (let n = 0; n < 3; n += 1) server.publish("chat", n);
  await act(frame);
  expect(seen).toEqual([0, 1, 2]);
  expect(renders).toBe(before);
});

test("a topic that the server does not give is an error, and none is no request", async () => {
  const server = new FakeServer();
  server.forbidden.add("secret");
  const screen = show(<Lines topic="secret" />, server);
  await waitFor(() => expect(screen.text()).toContain("SUBSCRIPTION_FAILED"));
  expect(screen.text()).toContain("ended");
  screen.show(<Lines topic={null} />);
  expect(screen.text()).toBe("ended   ");
  await act(frame);
  expect(server.topics("subscribe")).toEqual(["secret"]);
});

test("options that contradict another subscription are an error of the component, not of the tree", async () => {
  function Filtered() {
    const { error } = useTopic("chat", { filter: { field: "a", eq: 1 } });
    return <b>{error?.code}</b>;
  }
  const { text } = show(
    <>
      <Lines topic="chat" />
      <Filtered />
    </>,
  );
  await waitFor(() => expect(text()).toContain("INVALID_ARGUMENT"));
  await waitFor(() => expect(text()).toContain("active"));
});

test("a lost connection is told as recovering, and the messages stay", async () => {
  function State() {
    return <i>{useConnection().state}</i>;
  }
  const { server, text } = show(
    <>
      <Lines topic="chat" />
      <State />
    </>,
  );
  await waitFor(() => expect(text()).toContain("active"));
  await waitFor(() => expect(text()).toContain("open"));
  server.publish("chat", { text: "before" });
  await waitFor(() => expect(text()).toContain("before"));
  server.connection.close(1006);
  await waitFor(() => expect(text()).toMatch(/active before {2}recovering(waiting|connecting)/));
  await waitFor(() => expect(text()).toBe("active before  open"), { timeout: 5_000 });
  expect(server.transport.connections).toHaveLength(2);
});

test("a replay of a pattern is told in development, and the component goes on without it", async () => {
  const server = new FakeServer();
  const told: string[] = [];
  const on = { degraded: ({ what }: { what: string }) => void told.push(what) };
  function Prices() {
    const { messages, status } = useTopic<Line>("prices.*", { recover: true, replay: 5 });
    return <p>{`${status} ${messages.map(({ payload }) => payload.text).join(",")}`}</p>;
  }
  const screen = render(
    <TidewireProvider url="ws://fake.test/ws" options={{ transport: server.transport, on }}>
      <Prices />
    </TidewireProvider>,
  );
  await waitFor(() => expect(screen.container.textContent).toContain("active"));
  expect(told).toEqual(["recover", "replay"]);
  server.publish("prices.a", { text: "live" });
  await waitFor(() => expect(screen.container.textContent).toBe("active live"));
});
