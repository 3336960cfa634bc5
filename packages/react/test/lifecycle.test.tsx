import { act, render, waitFor } from "@testing-library/react";
import { connect } from "@tidewire/client";
import { StrictMode, Suspense } from "react";
import { renderToString } from "react-dom/server";
import { afterEach, expect, test, vi } from "vitest";
import {
  TidewireProvider,
  useClient,
  useConnection,
  useLatest,
  usePresence,
  useRequest,
  useTopic,
} from "../src/index.js";
import { FakeServer } from "./server.js";
import { frame, show } from "./support.js";

afterEach(() => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

/** A component with all hooks. */
function Everything() {
  const { messages, status } = useTopic("chat");
  const last = useLatest("chat");
  const rows = useLatest<{ id: string }>("prices", { key: "id" });
  const { users } = usePresence("chat", { data: { name: "me" } });
  const { data, status: asked } = useRequest<string>("time");
  const { state } = useConnection();
  return (
    <p>{[status, messages.length, last?.type ?? "none", rows.size, users, asked, data, state].join(" ")}</p>
  );
}

const EMPTY = "pending 0 none 0 0 loading  connecting";

function serverWithTime(): FakeServer {
  const server = new FakeServer();
  server.onCall = (type) => (type === "time" ? "noon" : undefined);
  return server;
}

/** Counts timers and listeners that are set and not yet over. */
function countResources() {
  const timers = new Set<unknown>();
  const { setTimeout: set, clearTimeout: clear } = globalThis;
  vi.stubGlobal("setTimeout", (call: () => void, ms?: number) => {
    const id = set(() => {
      timers.delete(id);
      call();
    }, ms);
    timers.add(id);
    return id;
  });
  vi.stubGlobal("clearTimeout", (id: never) => {
    timers.delete(id);
    clear(id);
  });
  const frames = new Set<unknown>();
  const { requestAnimationFrame: request, cancelAnimationFrame: cancel } = globalThis;
  vi.stubGlobal("requestAnimationFrame", (call: (ms: number) => void) => {
    const id = request((ms) => {
      frames.delete(id);
      call(ms);
    });
    frames.add(id);
    return id;
  });
  vi.stubGlobal("cancelAnimationFrame", (id: never) => {
    frames.delete(id);
    cancel(id);
  });
  const listeners = new Map<string, number>();
  const target = EventTarget.prototype;
  const { addEventListener, removeEventListener } = target;
  vi.spyOn(target, "addEventListener").mockImplementation(function (
    this: EventTarget,
    type,
    listener,
    options,
  ) {
    const signal = typeof options === "object" ? options.signal : undefined;
    if (this === window || this === document) {
      listeners.set(type, (listeners.get(type) ?? 0) + 1);
      signal?.addEventListener("abort", () => listeners.set(type, listeners.get(type)! - 1));
    }
    addEventListener.call(this, type, listener, options);
  });
  vi.spyOn(target, "removeEventListener").mockImplementation(function (
    this: EventTarget,
    type,
    listener,
    options,
  ) {
    if (this === window || this === document) listeners.set(type, (listeners.get(type) ?? 0) - 1);
    removeEventListener.call(this, type, listener, options);
  });
  return { timers, frames, listeners };
}

test("100 mounts and unmounts under StrictMode leave no listener, timer or connection", async () => {
  const { timers, frames, listeners } = countResources();
  const server = serverWithTime();
  const tree = (
    <StrictMode>
      <TidewireProvider url="ws://fake.test/ws" options={{ transport: server.transport }}>
        <Everything />
      </TidewireProvider>
    </StrictMode>
  );
  for (let round = 0; round < 100; round += 1) {
    const screen = render(tree);
    if (round % 10 === 0) {
      await waitFor(() => expect(screen.container.textContent).toBe("active 0 none 0 0 success noon open"));
      server.publish("chat", { round });
    } else if (round % 2 === 0) await act(frame);
    screen.unmount();
  }
  await vi.waitUntil(() => server.open === 0);
  // What is in a page for good, React's own listeners among it, was there after the first mount.
  await vi.waitUntil(() => frames.size === 0 && timers.size === 0, { timeout: 20_000 });
  for (const type of ["online", "focus", "pageshow", "pagehide", "visibilitychange", "freeze", "resume"]) {
    expect([type, listeners.get(type) ?? 0]).toEqual([type, 0]);
  }
  expect(server.transport.connections.length).toBeLessThanOrEqual(100);
});

test("a server renders without window, opens nothing, and the page takes its markup over", async () => {
  const server = serverWithTime();
  const tree = (
    <TidewireProvider url="wss://example.test/ws" options={{ transport: server.transport }}>
      <Everything />
    </TidewireProvider>
  );
  const { window, document } = globalThis;
  vi.stubGlobal("window", undefined);
  vi.stubGlobal("document", undefined);
  const markup = renderToString(tree);
  vi.stubGlobal("window", window);
  vi.stubGlobal("document", document);
  expect(markup).toBe(`<p>${EMPTY}</p>`);
  expect(server.transport.connections).toEqual([]);
  const complaints = vi.spyOn(console, "error").mockImplementation(() => {});
  const container = document.createElement("div");
  container.innerHTML = markup;
  document.body.append(container);
  render(tree, { container, hydrate: true });
  await waitFor(() => expect(container.textContent).toBe("active 0 none 0 0 success noon open"));
  expect(complaints.mock.calls).toEqual([]);
  expect(server.transport.connections).toHaveLength(1);
});

test("a tree that suspends before it is there opens nothing, and works when it is there", async () => {
  const server = serverWithTime();
  let isReady = false;
  let resolve = () => {};
  const waits = new Promise<void>((done) => {
    resolve = done;
  });
  function Suspends() {
    if (!isReady) throw waits;
    return null;
  }
  const screen = show(
    <Suspense fallback="waiting">
      <Everything />
      <Suspends />
    </Suspense>,
    server,
  );
  await waitFor(() => expect(screen.text()).toBe("waiting"));
  await act(frame);
  expect(server.topics("subscribe")).toEqual([]);
  isReady = true;
  resolve();
  await waitFor(() => expect(screen.text()).toBe("active 0 none 0 0 success noon open"));
  expect(server.topics("subscribe").sort()).toEqual(["chat", "prices"]);
});

test("a client of the application is used and not closed", async () => {
  const server = serverWithTime();
  const client = connect("ws://fake.test/ws", { transport: server.transport });
  function Shows() {
    return <b>{useClient() === client ? "the client" : "another"}</b>;
  }
  const screen = render(
    <StrictMode>
      <TidewireProvider client={client}>
        <Shows />
        <Everything />
      </TidewireProvider>
    </StrictMode>,
  );
  expect(screen.container.textContent).toContain("the client");
  await waitFor(() => expect(screen.container.textContent).toContain("success noon open"));
  screen.unmount();
  await vi.waitUntil(() => server.topics("unsubscribe").length === 2);
  expect(client.state).toBe("open");
  await client.close();
});

test("another address opens another client and closes the first", async () => {
  const server = serverWithTime();
  const options = { transport: server.transport };
  const tree = (url: string) => (
    <TidewireProvider url={url} options={{ ...options }}>
      <Everything />
    </TidewireProvider>
  );
  const screen = render(tree("ws://a.test/ws"));
  await waitFor(() => expect(screen.container.textContent).toContain("open"));
  screen.rerender(tree("ws://a.test/ws"));
  await act(frame);
  expect(server.transport.connections).toHaveLength(1);
  screen.rerender(tree("ws://b.test/ws"));
  expect(screen.container.textContent).toBe(EMPTY);
  await waitFor(() => expect(screen.container.textContent).toBe("active 0 none 0 0 success noon open"));
  expect(server.transport.connections.map(({ options }) => new URL(options.url).host)).toEqual([
    "a.test",
    "b.test",
  ]);
  await vi.waitUntil(() => server.open === 1);
});

test("a component that is mounted anew at once keeps what components share", async () => {
  const server = serverWithTime();
  function Row() {
    const last = useLatest<number>("chat");
    return <p>{last?.payload ?? "none"}</p>;
  }
  const screen = show(<Row key="1" />, server);
  await waitFor(() => expect(server.topics("subscribe")).toEqual(["chat"]));
  await act(frame);
  server.publish("chat", 7);
  await waitFor(() => expect(screen.text()).toBe("7"));
  screen.show(<Row key="2" />);
  expect(screen.text()).toBe("7");
  await act(frame);
  expect(screen.text()).toBe("7");
  expect(server.topics("subscribe")).toEqual(["chat"]);
  expect(server.topics("unsubscribe")).toEqual([]);
});

test("a hook without a provider says what is missing", () => {
  vi.spyOn(console, "error").mockImplementation(() => {});
  expect(() => render(<Everything />)).toThrow("there is no TidewireProvider above this component");
});
