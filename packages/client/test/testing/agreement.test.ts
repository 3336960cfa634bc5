/** One list of behaviours, which the test server in memory and the real program have in common. */

import { afterEach, beforeEach, describe, expect, test } from "vitest";
import {
  type Client,
  type Gap,
  history,
  type Message,
  type PresenceEvent,
  presence,
  type Subscription,
  sync,
  type Unrecovered,
} from "../../src/index.js";
import { queue } from "../../src/queue.js";
import { inMemory, program, type Stage } from "./stages.js";

// A real server and a busy machine take their time.
const poll = <T>(look: () => T) => expect.poll(look, { timeout: 30_000 });
const EPOCH = expect.stringMatching(/^[0-9a-f]{8}$/);

describe.each([
  ["in memory", async () => inMemory()],
  ["the program", program],
])("%s", (_, start: () => Promise<Stage>) => {
  let stage: Stage;
  beforeEach(async () => {
    stage = await start();
  });
  afterEach(() => stage.end());

  const ann = () => stage.guest("ann");
  const bob = () => stage.guest("bob");

  test("a publication reaches its subscribers and its publisher, with all that it has", async () => {
    const [{ client: one }, { client: other }] = [ann(), bob()];
    const [own, foreign] = [heard(one, "kept.a"), heard(other, "kept.*")];
    await Promise.all([own.ready(), foreign.ready()]);
    const published = await one.publish("kept.a", { n: 1 }, { type: "tick", id: "id-1", priority: 8 });
    expect(published).toEqual({ topic: "kept.a", isDuplicate: false, position: { epoch: EPOCH, offset: 1 } });
    await one.publish("kept.a", null, { isSnapshot: true });
    await poll(() => [own.messages.length, foreign.messages.length]).toEqual([2, 2]);
    for (const { messages } of [own, foreign]) {
      const { position } = published;
      const common = { topic: "kept.a", isRedelivered: false, delivery: undefined, priority: 5 };
      expect(messages.map((message) => ({ ...message }))).toEqual([
        { ...common, type: "tick", id: "id-1", position, payload: { n: 1 }, isSnapshot: false },
        {
          ...common,
          type: "message",
          id: expect.any(String),
          position: { ...position, offset: 2 },
          payload: null,
          isSnapshot: true,
        },
      ]);
    }
  });

  test("a topic without history has no positions, and keeps the priority", async () => {
    const { client } = ann();
    const own = heard(client, "plain");
    await own.ready();
    expect(await client.publish("plain", 1, { priority: 10 })).toMatchObject({ position: undefined });
    await poll(() => own.messages.length).toBe(1);
    expect(own.messages[0]).toMatchObject({ position: undefined, priority: 10, payload: 1 });
  });

  test("a publisher may leave itself out, and gets each publication once", async () => {
    const { client } = ann();
    const [named, pattern] = [heard(client, "kept.a"), heard(client, "kept.>")];
    await Promise.all([named.ready(), pattern.ready()]);
    await client.publish("kept.a", 1, { excludeSelf: true });
    await client.publish("kept.a", 2);
    await poll(() => payloads(named)).toEqual([2]);
    expect(payloads(pattern)).toEqual([2]);
  });

  test("a publication with an id that was there before is a duplicate", async () => {
    const { client } = ann();
    const own = heard(client, "kept.a");
    await own.ready();
    const first = await client.publish("kept.a", 1, { id: "same" });
    expect(await client.publish("kept.a", 2, { id: "same" })).toEqual({ ...first, isDuplicate: true });
    expect(await client.publish("kept.b", 3, { id: "same" })).toMatchObject({ isDuplicate: false });
    await client.publish("kept.a", 4);
    await poll(() => payloads(own)).toEqual([1, 4]);
  });

  test("bytes arrive as bytes, and a missing payload as an empty object", async () => {
    const { client } = ann();
    const own = heard(client, "kept.a");
    await own.ready();
    const bytes = new Uint8Array([0, 255, 128]);
    await client.publish("kept.a", bytes);
    await client.publish("kept.a", undefined);
    await poll(() => own.messages.length).toBe(2);
    expect(payloads(own)).toEqual([bytes, {}]);
    expect((await history(client, "kept.a")).publications.map(({ payload }) => payload)).toEqual([bytes, {}]);
  });

  test("a replay gives the newest publications, the oldest of them first, before live ones", async () => {
    const [{ client: writer }, { client: reader }] = [ann(), bob()];
    for (let n = 1; n <= 7; n++) await writer.publish("kept.a", n);
    const own = heard(reader, "kept.a", { replay: 3 });
    await own.ready();
    await writer.publish("kept.a", 8);
    await poll(() => payloads(own)).toEqual([5, 6, 7, 8]);
    const more = heard(stage.guest("cleo").client, "kept.a", { replay: 100 });
    await poll(() => payloads(more)).toEqual([4, 5, 6, 7, 8]);
  });

  test("what was missed comes once and in order", async () => {
    const [{ client: writer }, reader] = [ann(), bob()];
    const own = heard(reader.client, "kept.a");
    await own.ready();
    await writer.publish("kept.a", 1);
    await poll(() => payloads(own)).toEqual([1]);
    reader.away();
    for (let n = 2; n <= 5; n++) await writer.publish("kept.a", n);
    reader.back();
    await poll(() => payloads(own)).toEqual([1, 2, 3, 4, 5]);
    await writer.publish("kept.a", 6);
    await poll(() => payloads(own)).toEqual([1, 2, 3, 4, 5, 6]);
    expect([own.lost, own.gaps]).toEqual([[], []]);
  });

  test("what is no longer kept is said to be missing, and nothing of it comes in part", async () => {
    const [{ client: writer }, reader] = [ann(), bob()];
    const own = heard(reader.client, "kept.a");
    await own.ready();
    const { position: last } = await writer.publish("kept.a", 1);
    await poll(() => payloads(own)).toEqual([1]);
    reader.away();
    for (let n = 2; n <= 9; n++) await writer.publish("kept.a", n);
    reader.back();
    await poll(() => own.lost.length).toBe(1);
    expect(own.lost).toEqual([{ topic: "kept.a", last, now: { ...last, offset: 9 } }]);
    await writer.publish("kept.a", 10);
    await poll(() => payloads(own)).toEqual([1, 10]);
  });

  test("a server that has forgotten a topic begins another epoch", async () => {
    const { client } = ann();
    const own = heard(client, "kept.a");
    await own.ready();
    const { position: last } = await client.publish("kept.a", 1);
    await poll(() => payloads(own)).toEqual([1]);
    await stage.restart();
    await poll(() => own.lost.length).toBe(1);
    expect(own.lost[0]).toMatchObject({ last, now: { offset: 0 } });
    const { position: now } = await client.publish("kept.a", 2);
    expect(now).toEqual({ epoch: EPOCH, offset: 1 });
    expect(now!.epoch).not.toBe(last!.epoch);
    await poll(() => payloads(own)).toEqual([1, 2]);
  });

  test("publications that are too old leave a gap", async () => {
    const [{ client: writer }, reader] = [ann(), bob()];
    const own = heard(reader.client, "kept.a");
    await own.ready();
    reader.away();
    await writer.publish("kept.a", 1, { ttlMs: 1 });
    const { position } = await writer.publish("kept.a", 2);
    const kept = async () => (await history(writer, "kept.a")).publications.map(({ payload }) => payload);
    await poll(kept).toEqual([2]);
    reader.back();
    await poll(() => payloads(own)).toEqual([2]);
    const range = { epoch: position!.epoch, from: 1, to: 1 };
    expect(own.gaps).toEqual([{ topic: "kept.a", reason: "expired", count: 1, range }]);
  });

  test("the newest publication is there at once, where the topic gives it", async () => {
    const [{ client: writer }, { client: reader }] = [ann(), bob()];
    await writer.publish("last.a", 1);
    await writer.publish("last.a", 2);
    const own = heard(reader, "last.a");
    await poll(() => payloads(own)).toEqual([2]);
    await sync(reader, ["last.a"]);
    await poll(() => own.messages.map(({ payload, isSnapshot }) => [payload, isSnapshot])).toEqual([
      [2, false],
      [2, true],
    ]);
    await expect(sync(reader, ["kept.a"])).rejects.toMatchObject({ code: "INVALID_ACTION" });
  });

  test("a history is read in pages, from either end", async () => {
    const { client } = ann();
    for (let n = 1; n <= 6; n++) await client.publish("kept.a", n, { type: "tick" });
    const read = async (options: object) => {
      const page = await history<number>(client, "kept.a", options);
      const { position, oldest, hasMore, isComplete } = page;
      return [page.publications.map(({ payload }) => payload), position.offset, oldest, hasMore, isComplete];
    };
    const { publications } = await history(client, "kept.a", { limit: 1 });
    const { epoch } = publications[0]!.position!;
    expect(publications[0]).toMatchObject({ type: "tick", topic: "kept.a", position: { epoch, offset: 2 } });
    expect(await read({})).toEqual([[2, 3, 4, 5, 6], 6, 2, false, true]);
    expect(await read({ limit: 2 })).toEqual([[2, 3], 6, 2, true, true]);
    expect(await read({ limit: 2, order: "newest" })).toEqual([[6, 5], 6, 2, true, true]);
    expect(await read({ since: { epoch, offset: 4 } })).toEqual([[5, 6], 6, 2, false, true]);
    expect(await read({ since: { epoch, offset: 1 } })).toEqual([[2, 3, 4, 5, 6], 6, 2, false, true]);
    expect(await read({ since: { epoch, offset: 0 } })).toEqual([[2, 3, 4, 5, 6], 6, 2, false, false]);
    expect(await read({ since: { epoch, offset: 4 }, order: "newest" })).toEqual([[3, 2], 6, 2, false, true]);
    expect(await read({ since: { epoch, offset: 2 }, order: "newest" })).toEqual([[], 6, 2, false, true]);
    expect(await read({ since: { epoch, offset: 99 } })).toEqual([[], 6, 2, false, false]);
    expect(await read({ since: { epoch: "00000000", offset: 1 } })).toEqual([[], 6, 2, false, false]);
    await expect(history(client, "plain")).rejects.toMatchObject({ code: "NOT_FOUND" });
    await expect(history(client, "secret.a")).rejects.toMatchObject({ code: "TOPIC_FORBIDDEN" });
    expect(await history(client, "kept.empty")).toMatchObject({
      publications: [],
      oldest: 1,
      position: { offset: 0 },
    });
  });

  test("members of a topic see one another come, change and go", async () => {
    const [one, { client: other }] = [ann(), bob()];
    const own = heard(one.client, "room.a", { presence: { name: "Ann" } });
    await own.ready();
    const foreign = heard(other, "room.a");
    const watcher = heard(stage.guest("cleo").client, "room.>");
    await Promise.all([foreign.ready(), watcher.ready()]);
    await poll(() => who(own)).toEqual(['join ann {"name":"Ann"}', "join bob"]);
    heard(other, "room.a", { presence: { name: "Bob" } });
    await poll(() => who(own).at(-1)).toBe('update bob {"name":"Bob"}');
    expect(await presence(other, ["room.a", "plain", "room.none"])).toEqual({
      "room.a": {
        users: 2,
        connections: 2,
        truncated: false,
        members: {
          ann: { connections: 1, data: { name: "Ann" } },
          bob: { connections: 1, data: { name: "Bob" } },
        },
      },
      plain: { users: 0, connections: 0, truncated: false, members: {} },
      "room.none": { users: 0, connections: 0, truncated: false, members: {} },
    });
    expect(await presence(other, "room.a", { countsOnly: true })).toEqual({
      "room.a": { users: 2, connections: 2, truncated: false },
    });
    one.away();
    await poll(() => who(foreign).at(-1)).toBe("leave ann");
    await poll(() => who(watcher).at(-1)).toBe("leave ann");
    expect(who(foreign)[0]).toBe("join bob");
  });

  test("several connections of a user are one member", async () => {
    const [one, again, { client: other }] = [ann(), ann(), bob()];
    const own = heard(other, "room.a");
    await own.ready();
    await heard(one.client, "room.a", { presence: { from: "one" } }).ready();
    await heard(again.client, "room.a", { presence: { from: "again" } }).ready();
    await poll(() => who(own).slice(1)).toEqual(['join ann {"from":"one"}', 'update ann {"from":"again"}']);
    again.away();
    await poll(async () => (await presence(other, "room.a"))["room.a"]?.members.ann?.connections).toBe(1);
    one.away();
    await poll(() => who(own).at(-1)).toBe("leave ann");
    expect(who(own)).toHaveLength(4);
  });

  test("what a client may not have is refused by name", async () => {
    const { client } = ann();
    const cause = (code: string) => ({ code: "SUBSCRIPTION_FAILED", cause: { code } });
    await expect(heard(client, "secret.a").ready()).rejects.toMatchObject(cause("TOPIC_FORBIDDEN"));
    await expect(heard(client, "a..b").ready()).rejects.toMatchObject(cause("INVALID_SUBSCRIPTION"));
    await expect(heard(client, "a b").ready()).rejects.toMatchObject(cause("INVALID_SUBSCRIPTION"));
    await expect(heard(client, "a.>.b").ready()).rejects.toMatchObject(cause("INVALID_SUBSCRIPTION"));
    await expect(client.publish("secret.a", 1)).rejects.toMatchObject({ code: "TOPIC_FORBIDDEN" });
    await expect(client.publish("kept.*", 1)).rejects.toMatchObject({ code: "INVALID_MESSAGE" });
    await expect(heard(client, "kept.a", { filter: { n: { $almost: 1 } } }).ready()).rejects.toMatchObject({
      code: "INVALID_SUBSCRIPTION",
    });
    const failed: string[] = [];
    const both = client.subscribe(["kept.a", "secret.b"]);
    both.on("failed", ({ topic }) => failed.push(topic));
    await poll(() => failed).toEqual(["secret.b"]);
    expect(both.status.get().state).toBe("active");
  });

  test("a filter chooses publications, live and from history", async () => {
    const [{ client: writer }, { client: reader }] = [ann(), bob()];
    await writer.publish("kept.a", { n: 1, tags: ["x"] });
    const filter = {
      n: { $gte: 1, $lt: 4 },
      $or: [{ tags: { $contains: "x" } }, { name: { $startswith: "A" } }],
    };
    const own = heard(reader, "kept.a", { filter, replay: 5 });
    await own.ready();
    await writer.publish("kept.a", { n: 2, tags: ["y"] });
    await writer.publish("kept.a", { n: 3, name: "Ann" });
    await writer.publish("kept.a", { n: 4, tags: ["x"] });
    await writer.publish("kept.a", "text");
    await writer.publish("kept.a", { n: 3, tags: ["x"] });
    await poll(() => payloads(own)).toEqual([
      { n: 1, tags: ["x"] },
      { n: 3, name: "Ann" },
      { n: 3, tags: ["x"] },
    ]);
    expect(own.gaps).toEqual([]);
  });

  test("who has unsubscribed gets nothing more, and the others do", async () => {
    const { client } = ann();
    const [own, other] = [heard(client, "kept.a"), heard(client, "kept.b")];
    await Promise.all([own.ready(), other.ready()]);
    await own.unsubscribe();
    await client.publish("kept.a", 1);
    await client.publish("kept.b", 2);
    await poll(() => payloads(other)).toEqual([2]);
    expect(payloads(own)).toEqual([]);
  });

  test("requests are answered, refused in the application's words, or unknown", async () => {
    const { client } = ann();
    expect(await client.request("double", 21)).toBe(42);
    expect(await client.request("nothing")).toEqual({});
    await expect(client.request("refused")).rejects.toMatchObject({
      code: "TOO_MANY",
      message: "at most four",
    });
    await expect(client.request("unknown")).rejects.toMatchObject({ code: "NOT_FOUND" });
    expect(await client.ping()).toBeGreaterThanOrEqual(0);
  });

  test("the application decides about publications", async () => {
    const { client } = ann();
    const own = heard(bob().client, "decided.a");
    await own.ready();
    await client.publish("decided.a", { text: "hello" });
    const refused = (text: string) => client.publish("decided.a", { text });
    await expect(refused("rude")).rejects.toMatchObject({ code: "RUDE", message: "mind your words" });
    // No code by which the client would try again for ever.
    await expect(refused("later")).rejects.toMatchObject({ code: "HANDLER_ERROR" });
    await client.publish("decided.a", { text: "loud" });
    await poll(() => payloads(own)).toEqual([{ text: "hello" }, { text: "quiet" }]);
    await expect(client.publish("secret.a", { text: "rude" })).rejects.toMatchObject({
      code: "TOPIC_FORBIDDEN",
    });
  });

  test("messages of a queue count once, across a lost connection", async () => {
    const outbox = queue({ name: `agreement-${Math.random()}` });
    const sender = stage.guest("ann", { queue: outbox });
    const own = heard(bob().client, "kept.a");
    await own.ready();
    await outbox.publish("kept.a", 1);
    sender.away();
    const later = [outbox.publish("kept.a", 2), outbox.publish("kept.a", 3)];
    sender.back();
    await Promise.all(later);
    await poll(() => payloads(own)).toEqual([1, 2, 3]);
  });
});

/** A subscription with what it has told. */
type Heard = Subscription & {
  messages: Message[];
  gaps: Gap[];
  lost: Unrecovered[];
  events: PresenceEvent[];
};

function heard(client: Client, topic: string, options: object = {}): Heard {
  const subscription = client.subscribe(topic, options);
  const told = { messages: [], gaps: [], lost: [], events: [] } as unknown as Heard;
  subscription.on("message", (message) => told.messages.push(message));
  subscription.on("gap", (gap) => told.gaps.push(gap));
  subscription.on("unrecovered", (event) => told.lost.push(event));
  subscription.on("presence", (event) => told.events.push(event));
  return Object.assign(subscription, told);
}

function payloads({ messages }: Heard): unknown[] {
  return messages.map(({ payload }) => payload);
}

function who({ events }: Heard): string[] {
  return events.map(({ change, user, data }) => `${change} ${user}${data ? ` ${JSON.stringify(data)}` : ""}`);
}
