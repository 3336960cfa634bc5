// A program of a user, which the compiler checks against the types of the package.

import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import tidewire, {
  BusyError,
  CallError,
  encodeEnvelope,
  Gap,
  jwt,
  KeyPair,
  load,
  type Message,
  PriorityQueue,
  parseEnvelope,
  Sequencer,
  Server,
  type ServerOptions,
  Signer,
  TokenBucket,
} from "tidewire";
import { TokenVerifier } from "tidewire/jwt";
import { loadTest, startServer } from "tidewire/loadtest";
import { z } from "zod";

const options: ServerOptions = {
  port: 0,
  jwtSecret: "s",
  topicRules: [{ pattern: "a.>", historyPublications: 10 }],
};
// @ts-expect-error There is no such option.
const wrong: ServerOptions = { prot: 1 };
// @ts-expect-error A port is a number.
const text: ServerOptions = { port: "1" };

const server = new Server(options);
server.on("chat", (message: Message) =>
  message.connection.send({ text: message.text }, { type: "chat", priority: 8 }),
);
const session = (_request: IncomingMessage, _response: ServerResponse, next: () => void) => next();
server.attach(createServer(), {
  use: [session],
  authorize: async ({ headers }) => headers.cookie !== undefined && { user: "ann", expiresAt: new Date() },
});
// @ts-expect-error A user is a text.
server.attach(createServer(), { authorize: () => ({ user: 5 }) });
server.authorize(async ({ headers }) => headers.cookie !== undefined && { user: "ann" }, {
  use: [],
  authorizeTimeoutMs: 50,
});
// @ts-expect-error: authorize is no option of itself.
server.authorize(() => true, { authorize: () => true });
const Said = z.object({ text: z.string(), at: z.coerce.date() });
server.on("say", Said, (message, payload) =>
  message.connection.send({ text: payload.text, at: payload.at.getTime() }),
);
server.handle("sum", z.array(z.number()), (_message, numbers) =>
  numbers.reduce((sum, number) => sum + number, 0),
);
// @ts-expect-error The schema says that it is a string.
server.on("shout", Said, (_message, payload) => payload.text.toFixed());
server.use(async (message, next) => (message.user === undefined ? undefined : next()));
const typed = new Server<{ prices: { cents: number } }>({ port: 0, noAuth: true });
typed.publish("prices", { cents: 350 });
typed.publish("others", "anything");
typed.onPublish("prices", (message) => {
  const cents: number = message.payload.cents;
  message.replace({ cents: cents + 1 });
  // @ts-expect-error A price has cents.
  return message.payload.euros;
});
typed.onPublish("rooms.*", Said, (message, said) => console.log(message.topic, said.at.getTime()));
typed.broadcast(1, { exclude: new Set([]) });
// @ts-expect-error A text is no connection.
typed.broadcast(1, { exclude: ["ann"] });
// @ts-expect-error A price has cents.
typed.publish("prices", { euros: 3.5 });
const placed: number | undefined = (await server.promises.publish("a.b", 1, { key: "k" })).offset;
const free: boolean = await server.whenFree(() => server.promises.forgetHistory("a.b"));
console.log(placed, free);
// @ts-expect-error A publication has no option of this name.
await server.promises.publish("a.b", 1, { ttl: 5 });
server.handle("sum", async ({ payload }) => {
  if (!Array.isArray(payload)) throw new CallError("an array is needed", { code: "NO_ARRAY" });
  return payload.length;
});
await server.start();
const { offset, duplicate } = server.publish("a", { n: 1 }, { id: "1" });
const many: number = await server.publishMany("a", [1, 2, 3], { type: "t" });
for await (const batch of new Server().batches()) {
  for (const message of batch)
    console.log(message.length, message.data.byteLength, message.json().n, offset, many);
}
const queued: number = server.listConnections({ user: "a" })[0]?.queuedBytes ?? 0;
const perS: number = (await server.promises.listTopics())[0]?.perS ?? 0;
console.log(queued, perS);
// @ts-expect-error A topic has no field of this name.
server.listTopics()[0]?.per_s;
const history = server.history("a", { newestFirst: true }).publications;
const place: number | undefined = history[0]?.position?.offset;
// @ts-expect-error A publication has no field of this name.
history[0]?.tp;
const token: string = jwt.encode({ sub: "a", exp: new Date() }, "key");
new TokenVerifier({ one: "key" }).decode(token);
const result = await load("http://a/", {
  connections: 1,
  onProgress: ({ ratePerS }) => console.log(ratePerS),
});
console.log(result.latencyMs.p99, history, place, duplicate, wrong, text, tidewire.version);
const { percentiles } = await loadTest({
  url: "http://a/",
  statusCallback: (error, told) => console.log(error, told?.body),
});
console.log(percentiles[99]);
const tested = await startServer({ port: 0 });
await tested.close();
try {
  server.publish("a", 1);
} catch (error) {
  if (error instanceof BusyError) console.log(error.retryAfterMs);
}
await server.stop();

const verdict = new TokenBucket(1, 1).take(1, { nowMs: 0 });
const queue = new PriorityQueue<string>();
queue.push("text", 8);
const item: string | undefined = queue.pop()?.item;
const sequencer = new Sequencer<number>();
for (const one of sequencer.add("t", { epoch: "00000001", offset: 1 }, 1).released) {
  const shown: number = one instanceof Gap ? one.length : one;
  console.log(shown, verdict.retryAfterMs, item);
}
const asText: string = encodeEnvelope("t", 1, { position: { epoch: "00000001", offset: 1 } });
const asBytes: Buffer = encodeEnvelope("t", 1, { format: "msgpack" });
// @ts-expect-error A signer has a key.
new Signer({});
console.log(parseEnvelope(asText).time?.getTime(), asBytes.length, new KeyPair().publicKey.length);
