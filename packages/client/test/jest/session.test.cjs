// A session in Jest with jsdom, as an application's tests have it: no polyfill, CommonJS, jsdom's WebSocket.
const address = `ws://${process.env.TIDEWIRE_ADDRESS}/ws`;

test("the page's globals are jsdom's", () => {
  expect(globalThis.window).toBe(globalThis);
  expect(document.defaultView).toBe(window);
  expect(typeof TextDecoder).toBe("undefined");
  expect(typeof setImmediate).toBe("undefined");
});

const formats = { json: () => undefined, msgpack: () => require("@tidewire/client/msgpack").msgpack() };
const transports = {
  "jsdom's": () => undefined,
  "Node's": () => require("@tidewire/client/node").nodeTransport(),
};

for (const [format, makeFormat] of Object.entries(formats)) {
  for (const [transport, makeTransport] of Object.entries(transports)) {
    test(`a session with ${format} over ${transport} transport`, async () => {
      const { open, acknowledge } = require("@tidewire/client");
      expect(typeof acknowledge).toBe("function");
      const errors = [];
      const client = await open(address, {
        format: makeFormat(),
        transport: makeTransport(),
        on: { error: (error) => errors.push(error) },
      });
      const subscription = await client.subscribe("room").ready();
      const text = "Grüße, 世界 – 𝄞 %41\u0000";
      const received = new Promise((resolve) => subscription.on("message", resolve));
      await client.publish("room", { text, long: text.repeat(500), big: 2 ** 40 });
      const message = await received;
      expect(message.payload).toEqual({ text, long: text.repeat(500), big: 2 ** 40 });
      await client.close();
      expect(errors).toEqual([]);
    });
  }
}
