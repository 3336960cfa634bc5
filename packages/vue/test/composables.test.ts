import { connect } from "@tidewire/client";
import { TestServer } from "@tidewire/client/testing";
import { afterEach, beforeEach, expect, test } from "vitest";
import {
  type App,
  createApp,
  createSSRApp,
  defineComponent,
  effectScope,
  h,
  nextTick,
  reactive,
  ref,
  shallowRef,
  toRaw,
} from "vue";
import { renderToString } from "vue/server-renderer";
import {
  createTidewire,
  provideTidewire,
  useClient,
  useConnection,
  useLatest,
  usePresence,
  usePublish,
  useRequest,
  useTopic,
} from "../src/index.js";

interface Line {
  text: string;
}

interface Price {
  symbol: string;
  value: number;
}

const apps: App[] = [];
let server: TestServer;

beforeEach(() => {
  server = new TestServer({ history: { "chat.>": 100 }, presence: ["room.*"] });
});

afterEach(() => {
  for (const app of apps.splice(0)) app.unmount();
});

/** Mounts a component whose `setup` gives what it renders. */
function show(setup: () => () => string) {
  const app = createApp(
    defineComponent({
      setup: () => {
        const text = setup();
        return () => h("p", text());
      },
    }),
  );
  apps.push(app);
  const { url, transport } = server;
  app.use(createTidewire({ url, options: { transport, reconnect: { baseMs: 5, maxMs: 20 } } }));
  const place = document.createElement("div");
  app.mount(place);
  return { app, text: () => place.textContent };
}

test("a topic shows its messages, and another topic begins with nothing at once", async () => {
  const topic = ref<string | null>("chat.a");
  const shown: string[] = [];
  const { text } = show(() => {
    const { messages, status } = useTopic<Line>(topic, { replay: 10 });
    return () => {
      const line = `${status.value} ${messages.value.map(({ payload }) => payload.text).join(",")}`;
      shown.push(`${topic.value} ${line}`);
      return line;
    };
  });
  expect(text()).toBe("pending ");
  server.publish("chat.a", { text: "one" });
  await expect.poll(text).toBe("active one");
  server.publish("chat.a", { text: "two" });
  await expect.poll(text).toBe("active one,two");
  server.publish("chat.b", { text: "other" });
  topic.value = "chat.b";
  await expect.poll(text).toBe("active other");
  expect(shown).toContain("chat.b pending ");
  expect(shown.filter((line) => line.startsWith("chat.b") && line.includes("one"))).toEqual([]);
  await expect.poll(() => server.connections[0]?.topics).toEqual(["chat.b"]);
  topic.value = null;
  await expect.poll(text).toBe("ended ");
  await expect.poll(() => server.connections[0]?.topics).toEqual([]);
});

test("options may be reactive, functions of them are the newest, and a reducer makes a state", async () => {
  const options = reactive({ filter: { n: { $gte: 2 } } });
  const heard: unknown[] = [];
  let word = "first";
  const { text } = show(() => {
    const { value, status } = useTopic("chat.a", () => ({
      ...options,
      initial: 0,
      reduce: (sum: number, { payload }: { payload: unknown }) => sum + (payload as { n: number }).n,
      onMessage: () => heard.push(word),
    }));
    return () => `${status.value} ${value.value}`;
  });
  await expect.poll(text).toBe("active 0");
  for (const n of [1, 2, 3]) server.publish("chat.a", { n });
  await expect.poll(text).toBe("active 5");
  word = "second";
  options.filter.n.$gte = 3;
  await expect.poll(text).toBe("active 0");
  for (const n of [2, 3]) server.publish("chat.a", { n });
  await expect.poll(text).toBe("active 3");
  expect(heard).toEqual(["first", "first", "second"]);
});

test("messages and the client are what they are, in refs of every kind", async () => {
  const { text } = show(() => {
    const { messages } = useTopic<Line>("chat.a");
    const client = useClient();
    const kept = ref({ list: messages, client });
    return () => `${kept.value.list.length} ${toRaw(kept.value.client) === client.value}`;
  });
  await expect.poll(text).toBe("0 true");
  await expect.poll(() => server.subscribers("chat.a")).toBe(1);
  server.publish("chat.a", { text: "one" });
  await expect.poll(text).toBe("1 true");
});

test("a row renders only when its own value changes, and all rows share one subscription", async () => {
  const renders: Record<string, number> = {};
  const Row = defineComponent({
    props: { symbol: { type: String, required: true } },
    setup(props) {
      const last = useLatest<Price>("prices", () => ({
        key: "symbol",
        select: (rows) => rows.get(props.symbol),
      }));
      return () => {
        renders[props.symbol] = (renders[props.symbol] ?? 0) + 1;
        return `${props.symbol}=${last.value?.payload.value ?? "?"} `;
      };
    },
  });
  const app = createApp({ setup: () => () => ["A", "B"].map((symbol) => h(Row, { symbol })) });
  apps.push(app);
  app.use(createTidewire({ url: server.url, options: { transport: server.transport } }));
  const place = document.createElement("div");
  app.mount(place);
  await expect.poll(() => server.subscribers("prices")).toBe(1);
  const before = renders["A"];
  for (let value = 1; value <= 10; value += 1) server.publish("prices", { symbol: "B", value });
  await expect.poll(() => place.textContent).toBe("A=? B=10 ");
  expect(renders["A"]).toBe(before);
  expect(server.requests.filter(({ what }) => what === "subscribe")).toHaveLength(1);
});

test("members come, change and go, and this user with its data", async () => {
  const data = ref({ name: "Me" });
  const { app, text } = show(() => {
    const { members, users, isLoaded } = usePresence<{ name: string }>("room.a", () => ({
      data: data.value,
    }));
    return () => `${isLoaded.value} ${users.value} ${members.value.map((one) => one.data?.name).join(",")}`;
  });
  await expect.poll(text).toBe("true 1 Me");
  const other = connect(server.url, { transport: server.transport, token: "bob" });
  const own = other.subscribe("room.a", { presence: { name: "Bob" } });
  await expect.poll(text).toBe("true 2 Me,Bob");
  data.value.name = "Myself";
  await expect.poll(text).toBe("true 2 Myself,Bob");
  expect(server.requests.filter(({ what }) => what === "unsubscribe")).toEqual([]);
  await own.unsubscribe();
  await expect.poll(text).toBe("true 1 Myself");
  app.unmount();
  apps.splice(0);
  await expect.poll(() => server.presence("room.a")).toEqual({});
  await other.close();
});

test("a request is made once, and again for another payload or on demand", async () => {
  let price = 1;
  server.handle<{ symbol: string }>("quote", ({ payload }) => `${payload.symbol}${price}`);
  const symbol = ref("A");
  let again = () => {};
  const { text } = show(() => {
    const { status, data, refetch } = useRequest<string>("quote", () => ({ symbol: symbol.value }));
    again = refetch;
    return () => `${status.value} ${data.value ?? "-"}`;
  });
  await expect.poll(text).toBe("success A1");
  price = 2;
  again();
  await expect.poll(text).toBe("success A2");
  symbol.value = "B";
  await nextTick();
  expect(text()).toBe("loading -");
  await expect.poll(text).toBe("success B2");
  expect(server.requests.filter(({ what }) => what === "request")).toHaveLength(3);
});

test("the state of the connection is shown, and what is missed comes", async () => {
  const { text } = show(() => {
    const { messages } = useTopic<Line>("chat.a");
    const { state } = useConnection();
    return () => `${state.value} ${messages.value.map((one) => one.payload.text).join(",")}`;
  });
  await expect.poll(text).toBe("open ");
  server.stop({ comeBackMs: false });
  await expect.poll(text).toMatch(/^(waiting|connecting) /);
  server.publish("chat.a", { text: "missed" });
  server.start();
  await expect.poll(text).toBe("open missed");
});

test("who publishes and does not wait is not told that the component is gone", async () => {
  let say = (): unknown => undefined;
  const { app } = show(() => {
    const publish = usePublish<Line>("chat.a");
    say = () => publish({ text: "hello" });
    return () => "";
  });
  await expect.poll(() => server.connections.length).toBe(1);
  await say();
  expect(server.history("chat.a").map(({ payload }) => payload)).toEqual([{ text: "hello" }]);
  server.drop("publish");
  void say();
  const waited = say();
  app.unmount();
  apps.splice(0);
  // An unhandled rejection would fail the run.
  await expect(waited).rejects.toMatchObject({ code: "CLOSED" });
});

test("an application that ends leaves no connection", async () => {
  for (let round = 0; round < 20; round += 1) {
    const { app, text } = show(() => {
      const { status } = useTopic("chat.a");
      const { users } = usePresence("room.a", { data: { round } });
      return () => `${status.value} ${users.value}`;
    });
    if (round % 5 === 0) await expect.poll(text).toBe("active 1");
    app.unmount();
  }
  apps.splice(0);
  await expect.poll(() => server.connections).toEqual([]);
  expect([server.subscribers("chat.a"), server.presence("room.a")]).toEqual([0, {}]);
});

test("a component above gives a client, as does an effect scope one that the application has", async () => {
  const client = connect(server.url, { transport: server.transport });
  const Below = defineComponent({
    setup() {
      const { status } = useTopic("chat.a");
      return () => status.value;
    },
  });
  const app = createApp({
    setup() {
      provideTidewire({ client });
      return () => h(Below);
    },
  });
  const place = document.createElement("div");
  app.mount(place);
  await expect.poll(() => place.textContent).toBe("active");
  app.unmount();
  await expect.poll(() => server.subscribers("chat.a")).toBe(0);
  expect(client.state).toBe("open");

  const scope = effectScope();
  const other = createApp({});
  other.use(createTidewire({ client }));
  const shown = other.runWithContext(() => scope.run(() => useTopic<Line>("chat.a"))!);
  await expect.poll(() => shown.status.value).toBe("active");
  scope.stop();
  await expect.poll(() => server.subscribers("chat.a")).toBe(0);
  await client.close();
});

test("without a client the error says what to do", () => {
  const app = createApp({ setup: () => useConnection().state });
  app.config.errorHandler = (error) => {
    throw error;
  };
  app.config.warnHandler = () => {};
  expect(() => app.mount(document.createElement("div"))).toThrow("createTidewire");
});

test("a server renders what is empty, opens nothing, and the page takes its markup over", async () => {
  server.handle("time", () => "noon");
  const component = defineComponent({
    setup() {
      const { messages, status } = useTopic("chat.a");
      const last = useLatest("chat.a");
      const { users } = usePresence("room.a", { data: { name: "me" } });
      const { data } = useRequest("time");
      const { state } = useConnection();
      const client = useClient();
      return () =>
        h(
          "p",
          [
            status.value,
            messages.value.length,
            last.value?.type,
            users.value,
            data.value,
            state.value,
            !!client.value,
          ].join(" "),
        );
    },
  });
  const options = () => ({ url: server.url, options: { transport: server.transport } });
  const app = createSSRApp(component);
  const { document: page } = globalThis;
  Object.assign(globalThis, { document: undefined });
  const markup = await renderToString(app.use(createTidewire(options())));
  Object.assign(globalThis, { document: page });
  expect(markup).toBe("<p>pending 0  0  connecting false</p>");
  expect(server.connections).toEqual([]);
  const warnings: string[] = [];
  const hydrated = createSSRApp(component);
  hydrated.config.warnHandler = (words) => void warnings.push(words);
  hydrated.use(createTidewire(options()));
  apps.push(hydrated);
  const place = document.createElement("div");
  place.innerHTML = markup;
  hydrated.mount(place);
  await expect.poll(() => place.textContent).toBe("active 0  1 noon open true");
  expect(warnings).toEqual([]);
  expect(server.connections).toHaveLength(1);
});

test("types are those of the topic, and of a shallow ref", () => {
  const scope = () => {
    const { messages } = useTopic<Line>(shallowRef("chat.a"));
    const text: string | undefined = messages.value[0]?.payload.text;
    // @ts-expect-error A reducer needs a first state.
    useTopic<Line, number>("chat.a", { reduce: (sum: number) => sum });
    // @ts-expect-error There is no such field.
    useLatest<Price>("prices", { key: "name" });
    return text;
  };
  expect(scope).toBeTypeOf("function");
});
