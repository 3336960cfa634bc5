// What waits to be sent while the server has not caught up. The test plays the native module.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";
import { eventually } from "./support.mjs";

const { Outbox, SEND_BINARY } = createRequire(import.meta.url)("../lib/outbox.js");

/** A module that is busy at first; then it reads records as src/server/outbox.rs does. */
class Core {
  isBusy = true;
  calls = 0;
  sent = [];

  flush(buffer, at, end, batch) {
    this.calls += 1;
    if (this.isBusy) return at;
    while (at < end) {
      const [length, what, , , first, second] = new Uint32Array(buffer.buffer, at, 7);
      const isInBatch = (what & 8) !== 0;
      const start = isInBatch ? first : at + 28 + first;
      this.sent.push(String((isInBatch ? batch : buffer).subarray(start, start + second)));
      at += length;
    }
    return end;
  }
}

test("messages that wait stay what they were, of whatever batch, and in order", async () => {
  const core = new Core();
  const outbox = new Outbox(core, (...line) => assert.fail(line.join(" ")));
  const [one, two] = ["one and more", "two and more"].map((text) => Buffer.from(text));
  outbox.addOfBatch(SEND_BINARY, 1, 1, one, 0, 3);
  outbox.addOfBatch(SEND_BINARY, 1, 1, one, 4, 7);
  outbox.flush();
  assert.equal(outbox.isStuck, true);
  // Records refer to one batch at a time, so those of another one are copied.
  outbox.addOfBatch(SEND_BINARY, 1, 1, two, 0, 3);
  two.fill("2");
  outbox.add(SEND_BINARY, 1, 1, "", "text", 0);
  // The application gets to see the bytes of the first.
  outbox.release(one);
  one.fill("1");
  const before = core.calls;
  await eventually(() => core.calls > before);
  assert.deepEqual(core.sent, []);
  core.isBusy = false;
  await eventually(() => !outbox.isStuck);
  assert.deepEqual(core.sent, ["one", "and", "two", "text"]);
  outbox.addOfBatch(SEND_BINARY, 1, 1, two, 0, 3);
  outbox.flush();
  assert.deepEqual(core.sent.slice(4), ["222"]);
});
