// Sessions in Hermes over a scripted transport. Prints what happened as JSON.
import "./timers";
import "./iteration";
import "./platform";
import { connect, history } from "@tidewire/client";
import { msgpack } from "@tidewire/client/msgpack";
import { followAppState } from "@tidewire/client/react-native";
import { FakeTransport } from "@tidewire/client/testing";

const until = (isTrue) =>
  new Promise((resolve) => {
    const look = () => (isTrue() ? resolve() : setTimeout(look, 1));
    look();
  });

let offset = 0;

/** A server that takes every subscription and publication. */
function serve(connection) {
  connection.onMessage = ({ t, cid, p }) => {
    if (t === "subscription_update") {
      const recovery = {};
      for (const topic of p.topics)
        recovery[topic] = { epoch: "0000000a", offset, recovered: true, count: 0 };
      const answer = { action: p.action, success_topics: p.topics, failed_topics: [], recovery };
      connection.send({ c: "WSE", t, cid, p: answer });
    } else if (t === "publish_request") {
      const { topic, type, id, payload } = p;
      const position = { epoch: "0000000a", offset: ++offset };
      connection.send({ c: "WSE", t: "publish_response", cid, p: { topic, id, ...position } });
      connection.send(
        `{"c":"U","t":${JSON.stringify(type)},"tp":${JSON.stringify(topic)},"e":"0000000a","o":${offset},"p":${JSON.stringify(payload)}}`,
      );
    } else if (t === "history_request") {
      const page = { topic: p.topic, epoch: "0000000a", offset, oldest: 1, complete: true, publications: [] };
      connection.send({ c: "WSE", t: "history_response", cid, p: page });
    }
  };
  connection.accept({ features: { topics: true, history: true } });
}

async function main() {
  const transport = new FakeTransport();
  transport.onConnect = serve;
  const errors = [];
  const states = [];
  const client = connect("wss://a.example/ws?room=1", {
    transport,
    token: () => "secret==",
    tokenPlacement: { query: "token" },
    reconnect: { baseMs: 1 },
    on: { error: (error) => errors.push(String(error)) },
  });
  client.status.subscribe(() => states.push(client.status.get().state));
  const subscription = client.subscribe("room");
  await subscription.ready();
  const texts = [];
  subscription.on("message", ({ payload }) => texts.push(payload.text));
  const { position } = await client.publish("room", { text: "Grüße 𝄞" });
  await until(() => texts.length === 1);
  // The network of a telephone goes, and comes back.
  transport.connections[0].close(1006);
  await until(() => transport.connections.length === 2 && client.state === "open");
  await client.publish("room", { text: "again" });
  await until(() => texts.length === 2);
  const loop = (async () => {
    for await (const { payload } of subscription) return payload.text;
  })();
  await client.publish("room", { text: "loop" });
  const page = await history(client, "room");
  // The user goes to another application, and comes back.
  let change;
  const stop = followAppState(client, {
    addEventListener: (_, listener) => {
      change = listener;
      return { remove: () => (change = undefined) };
    },
  });
  change("background");
  await until(() => transport.connections[1].closed);
  const { code } = transport.connections[1].closed;
  change("active");
  await until(() => transport.connections.length === 3 && client.state === "open");
  stop();
  const signal = new AbortController();
  const pending = client.request("never", null, { signal: signal.signal }).catch(({ code }) => code);
  signal.abort();
  const format = msgpack();
  const bytes = format.envelope(
    { t: "a" },
    format.payload({ text: "Grüße 𝄞 and more than thirty-two characters" }),
  );
  const result = {
    url: transport.connections[0].options.url,
    position,
    texts,
    looped: await loop,
    isComplete: page.isComplete,
    aborted: await pending,
    states,
    msgpack: format.read(bytes.subarray(2)).p.text,
    errors,
    background: { code, isFollowed: change !== undefined },
  };
  await client.close();
  return { ...result, state: client.state };
}

main().then(
  (result) => print(JSON.stringify(result)),
  (error) => print(`failed: ${error.code} ${error.stack}`),
);
