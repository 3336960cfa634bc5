// A Worker that has a session with the server of the test for each request, and answers with what it has seen.
import { open } from "@tidewire/client";
import { compress } from "@tidewire/client/compress";
import { encrypt } from "@tidewire/client/encrypt";
import { msgpack } from "@tidewire/client/msgpack";
import { sign } from "@tidewire/client/sign";

const OPTIONS = {
  json: () => ({}),
  msgpack: () => ({ format: msgpack() }),
  encrypt: () => ({ encryption: encrypt(), compression: compress(), format: msgpack() }),
};

export default {
  async fetch(request, { ADDRESS }) {
    const name = new URL(request.url).pathname.slice(1);
    const errors = [];
    try {
      const client = await open(`ws://${ADDRESS}/ws`, {
        ...OPTIONS[name](),
        on: { error: (error) => errors.push(String(error)) },
      });
      const subscription = await client.subscribe("room").ready();
      const received = new Promise((resolve) => subscription.on("message", resolve));
      const long = "x".repeat(300_000);
      const published = await client.publish("room", { text: "Grüße", long });
      const { payload } = await received;
      const latencyMs = await client.ping();
      await client.close();
      return Response.json({
        text: payload.text,
        isWhole: payload.long === long,
        isDuplicate: published.isDuplicate,
        latency: typeof latencyMs,
        errors,
        hasSign: typeof sign,
      });
    } catch (error) {
      return Response.json({ error: `${error?.code} ${error?.stack}`, errors });
    }
  },
};
