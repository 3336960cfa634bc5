// Places for clients that wait, shared among their addresses.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { test } from "node:test";

const { Places } = createRequire(import.meta.url)("../lib/places.js");

test("when all places are taken, each address has its share", async () => {
  const places = new Places(6);
  const greedy = Array.from({ length: 6 }, () => places.take("greedy"));
  // Nobody else wants one: it may have all, but no more.
  assert.throws(() => places.take("greedy"), { name: "BusyError" });
  const modest = [places.take("modest"), places.take("modest")];
  for (const { evicted } of greedy.slice(0, 2)) await assert.rejects(evicted, { name: "BusyError" });
  // Who was evicted has nothing to give back.
  greedy[0].giveBack();
  modest.push(places.take("modest"));
  await assert.rejects(greedy[2].evicted);
  assert.throws(() => places.take("modest"), { name: "BusyError" });
  // A third one takes the place of either.
  places.take("third");
  const rest = [...greedy.slice(3), ...modest].map(({ evicted }) => evicted.then(undefined, () => "evicted"));
  const settled = await Promise.all(rest.map((one) => Promise.race([one, new Promise(setImmediate)])));
  assert.equal(settled.filter((one) => one === "evicted").length, 1);
  modest[1].giveBack();
  modest[1].giveBack();
  places.take("greedy");
  assert.throws(() => places.take("greedy"), { name: "BusyError" });
});

test("what was begun for clients that lost their place is bounded, too", () => {
  const places = new Places(2);
  const taken = ["a", "a", "b", "c"].map((address) => places.take(address));
  assert.throws(() => places.take("d"), { name: "BusyError" });
  taken[0].end();
  assert.throws(() => places.take("b"), { name: "BusyError" });
  taken[2].giveBack();
  taken[2].end();
  places.take("d");
});

test("an IPv6 network is one address", () => {
  const places = new Places(4);
  for (const end of ["1", "2", "a:b:c:d"])
    places.take(`2001:db8:0:0:${end.length > 1 ? end : `:${end}`}`.replace(":::", "::"));
  places.take("2001:db8::3");
  assert.throws(() => places.take("2001:db8::4"), { name: "BusyError" });
  places.take("2001:db8:0:1::1");
  places.take("::ffff:192.0.2.1");
});
