// How many messages per second a Socket.IO server hands to Redis: emit.mjs PORT pubsub|streams SECONDS.
//
// The server emits from inside, to 100 rooms in turn, and no client is connected. A message counts when Redis has
// answered a command that was sent after it on the same connection, so that none waits in this process. Prints the
// rate and the CPU of this process per message, in microseconds, as JSON.
import { createServer } from "node:http";
import { createAdapter } from "@socket.io/redis-adapter";
import { createAdapter as createStreamsAdapter } from "@socket.io/redis-streams-adapter";
import { createClient } from "redis";
import { Server } from "socket.io";

const [port, kind, seconds] = process.argv.slice(2);
const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();
const subscriber = await client.duplicate().connect();
const adapter = kind === "streams" ? createStreamsAdapter(client) : createAdapter(client, subscriber);
const io = new Server(createServer(), { adapter });
const payload = { pad: "x".repeat(150) };
const BATCH = 512;
const ROOMS = 100;

async function emitFor(ms) {
  const end = performance.now() + ms;
  let count = 0;
  while (performance.now() < end) {
    for (let n = 0; n < BATCH; n++) io.to(`h.${(count + n) % ROOMS}`).emit("x", payload);
    await client.ping();
    count += BATCH;
  }
  return count;
}

await emitFor(500);
const before = process.cpuUsage();
const began = performance.now();
const count = await emitFor(Number(seconds) * 1000);
const elapsed = (performance.now() - began) / 1000;
const used = process.cpuUsage(before);
console.log(JSON.stringify({ rate_per_s: count / elapsed, cpu_us: (used.user + used.system) / count }));
process.exit();
