// A client and a server in JavaScript that do what JSON lines on standard input say; `../check.py` explains the lines.
// agent.mjs client|server
import { createInterface } from "node:readline";
import { connect } from "@tidewire/client";
import { encrypt } from "@tidewire/client/encrypt";
import { msgpack } from "@tidewire/client/msgpack";
import { queue } from "@tidewire/client/queue";
import { presence } from "@tidewire/client";
import { build, describe } from "./notation.mjs";

const print = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

class ClientAgent {
  async open({ url, format, encrypted }) {
    this.queue = queue();
    this.client = connect(url, {
      queue: this.queue,
      ...(format === "msgpack" && { format: msgpack() }),
      ...(encrypted && { encryption: encrypt() }),
    });
    this.client.on("message", ({ type, payload }) => print({ arrived: "message", type, payload: describe(payload) }));
    this.client.on("error", ({ code }) => print({ reported: code }));
    this.client.on("disconnected", ({ code, reason }) => print({ closed: `${code} ${reason}` }));
    await this.client.ready();
  }

  async subscribe({ topics }) {
    const messages = this.client.subscribe(topics);
    messages.on("message", ({ type, payload }) => print({ arrived: "publication", type, payload: describe(payload) }));
    await messages.ready();
  }

  async publish({ topic, type, value }) {
    await this.client.publish(topic, build(value), { type });
  }

  async enqueue({ topic, type, value }) {
    await this.queue.publish(topic, build(value), { type });
  }

  async send({ type, value }) {
    if (!this.client.send(type, build(value))) throw new Error("there was no room");
  }

  async request({ type, value }) {
    return describe(await this.client.request(type, build(value)));
  }

  async join({ topic, value }) {
    await this.client.subscribe(topic, { presence: build(value) }).ready();
  }

  async members({ topic }) {
    const rooms = await presence(this.client, topic);
    return Object.values(rooms[topic].members).map(({ data }) => describe(data));
  }

  async close() {
    await this.client.close();
  }
}

class ServerAgent {
  async start({ options }) {
    const { Server } = await import("../../../bindings/node/index.mjs");
    this.server = new Server(options);
    this.server.on("*", ({ type, payload }) => print({ arrived: "message", type, payload: describe(payload) }));
    this.server.handle("*", ({ payload }) => payload);
    await this.server.start();
    return this.server.url;
  }

  async publish({ topic, type, value }) {
    this.server.publish(topic, build(value), { type });
  }

  async broadcast({ type, value }) {
    this.server.broadcast(build(value), { type });
  }

  async close() {
    await this.server.stop();
  }
}

const agent = process.argv[2] === "server" ? new ServerAgent() : new ClientAgent();
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line);
  agent[order.do](order).then(
    (result) => print({ id: order.id, done: result ?? null }),
    (error) => print({ id: order.id, refused: error.code ?? error.name, words: error.message }),
  );
}
