"use strict";

// Connections of clients that the engine cannot read itself, such as those under TLS: their bytes are passed on.

const { Socket } = require("node:net");

/** The time for a client to read the rest, once its connection was ended. */
const REST_MS = 2_000;

class Relays {
  #relays = new Set();

  /**
   * Passes on between a client and the end of the engine with this descriptor; `received` has been read from the client. A client that
   * reads nothing for `stalledMs` is disconnected.
   */
  add(client, descriptor, received, stalledMs) {
    const engine = new Socket({ fd: descriptor, readable: true, writable: true });
    const relay = { client, engine };
    this.#relays.add(relay);
    // Each end comes as `close`, too.
    engine.on("error", () => {});
    client.setNoDelay?.(true);
    client.setTimeout?.(0);
    client.on("close", () => {
      this.#relays.delete(relay);
      engine.destroy();
    });
    engine.on("close", () => endSoon(client));
    engine.write(received);
    client.pipe(engine);
    engine.pipe(client);
    // While the client reads nothing, the end of the engine is not seen.
    watch(client, engine, stalledMs);
  }

  /** The engine has stopped. */
  end() {
    for (const { client } of this.#relays) endSoon(client);
  }
}

/** Disconnects a client whose connection was ended, whether it has read that or not. */
function endSoon(client) {
  setTimeout(() => client.destroy(), REST_MS).unref();
}

/** Ends a client for which bytes wait, and which takes none of them for a while. */
function watch(client, engine, stalledMs) {
  let timer;
  engine.on("pause", () => {
    const taken = client.bytesWritten;
    clearTimeout(timer);
    timer = setTimeout(() => {
      if (client.bytesWritten === taken) client.destroy();
      else if (engine.isPaused()) engine.emit("pause");
    }, stalledMs);
    timer.unref();
  });
  engine.on("resume", () => clearTimeout(timer));
  client.on("close", () => clearTimeout(timer));
}

module.exports = { endSoon, Relays };
