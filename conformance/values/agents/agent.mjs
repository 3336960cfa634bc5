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

const OWN = { msgpack, encrypt, queue, presence };

/** The parts of a client for a tab that reaches the connection of another one, made from their sources. */
async function otherTab() {
  const { build: bundle } = await import("esbuild");
  const names = ["test/shared/world.ts", ...["queue", "topics", "msgpack", "encrypt"].map((name) => `src/${name}.ts`)];
  const { outputFiles } = await bundle({
    stdin: {
      contents: names.map((name) => `export * from "./packages/client/${name}";`).join(""),
      resolveDir: new URL("../../..", import.meta.url).pathname,
    },
    bundle: true,
    platform: "node",
    format: "esm",
    write: false,
  });
  const code = Buffer.from(outputFiles[0].contents).toString("base64");
  return import(`data:text/javascript;base64,${code}`);
}

class ClientAgent {
  async open({ url, format, encrypted, shared }) {
    this.own = shared ? await otherTab() : OWN;
    this.queue = this.own.queue();
    const layers = {
      ...(format === "msgpack" && { format: this.own.msgpack() }),
      ...(encrypted && { encryption: this.own.encrypt() }),
    };
    if (!shared) this.client = connect(url, { queue: this.queue, ...layers });
    else {
      const world = new this.own.World();
      await world.tab().connect(url, layers).ready();
      const tab = world.tab();
      this.client = tab.connect(url, { queue: this.queue, ...layers });
      // The shared connection begins anew with the first queue of a tab.
      await this.queue.publish("values.first", 1);
      if (tab.sockets.size) throw new Error("this tab has a connection of its own");
    }
    await this.listen();
  }

  async listen() {
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
    const rooms = await this.own.presence(this.client, topic);
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
