// A backend for `tidewire serve` in plain Node, without packages.
//
//   TIDEWIRE_BACKEND_SECRET=0123456789abcdef node server.mjs
//   TIDEWIRE_BACKEND_SECRET=0123456789abcdef tidewire serve --backend http://127.0.0.1:8080/tidewire \
//       --backend-events connect,subscribe,publish,request,message,disconnect --topics-open
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const secret = process.env.TIDEWIRE_BACKEND_SECRET ?? "";
if (!secret) {
  console.error("set TIDEWIRE_BACKEND_SECRET to the secret of the server");
  process.exit(1);
}
const port = Number(process.env.PORT ?? 8080);

// Whether the engine has sent this body within the last five minutes.
function isSigned(header, body) {
  const match = /^t=(\d+),v1=([0-9a-f]{64})$/.exec(header ?? "");
  if (!match || Math.abs(Date.now() / 1000 - Number(match[1])) > 300) return false;
  const expected = createHmac("sha256", secret).update(`${match[1]}.`).update(body).digest();
  return timingSafeEqual(expected, Buffer.from(match[2], "hex"));
}

// Payloads and messages are what clients send: they can be any JSON.
const handlers = {
  connect(event) {
    const user = new URLSearchParams(event.query).get("user");
    if (!user) return { refused: { reason: "say who you are: /ws?user=ada" } };
    return { user, subscriptions: [`users.${user}`] };
  },
  subscribe(event) {
    const others = event.topics.filter((topic) => topic.startsWith("users.") && topic !== `users.${event.user}`);
    const reason = "this topic belongs to somebody else";
    return { refused_topics: Object.fromEntries(others.map((topic) => [topic, { reason }])) };
  },
  publish(event) {
    const text = event.payload?.text;
    if (typeof text !== "string" || text === "") return { refused: { reason: "a message is {\"text\": \"…\"}" } };
    return { payload: { text, from: event.user } };
  },
  request(event) {
    const { type, payload } = event;
    if (type !== "add") return { error: { code: "NOT_FOUND", message: `nothing answers to ${type}` } };
    if (!Array.isArray(payload)) return { error: { code: "INVALID", message: "add needs a list of numbers" } };
    return { payload: payload.reduce((sum, number) => sum + Number(number), 0) };
  },
  message: (event) => console.log(event.user, "says", JSON.stringify(event.message)),
  disconnect: (event) => console.log(event.user, "has left"),
};

// The status and body of the answer.
function answer(header, body) {
  if (!isSigned(header, body)) return [401, ""];
  const events = JSON.parse(body);
  if (Array.isArray(events)) {
    // Nothing waits for an answer. An id that was seen before is a repetition.
    for (const event of events) handlers[event.event](event);
    return [204, ""];
  }
  return [200, JSON.stringify(handlers[events.event](events))];
}

const server = createServer(async (request, response) => {
  let result;
  try {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    result = answer(request.headers["tidewire-signature"], Buffer.concat(chunks));
  } catch (error) {
    console.error(error);
    result = [500, ""];
  }
  response.writeHead(result[0], { "Content-Type": "application/json" }).end(result[1]);
});

// Longer than the engine keeps a connection without a request, so that it never meets one that ends.
server.keepAliveTimeout = 60_000;
server.listen(port, "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}/tidewire`);
});
