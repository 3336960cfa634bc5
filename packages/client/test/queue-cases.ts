/**
 * What every queue does, whatever its storage, as functions that run in Node and in a page alike. A
 * case throws if the queue does something else.
 */

import type {
  AddedEntry,
  MessageQueue,
  Priority,
  QueuedMessage,
  QueuePort,
  QueueReport,
} from "../src/core/queue-port.js";
import { TidewireError } from "../src/errors.js";
import type { QueueLimits } from "../src/queue/limits.js";

/** A store for one case. */
export interface Fixture {
  /** A queue on the store; one at a time. */
  make(limits?: Partial<QueueLimits>): QueuePort;
  /** Whether messages outlive their queue. */
  isPersistent: boolean;
}

/** A queue that is open, with what it has reported. */
export interface Opened {
  queue: QueuePort;
  reports: QueueReport[];
  wakes: () => number;
}

export async function open(fixture: Fixture, limits: Partial<QueueLimits> = {}): Promise<Opened> {
  const queue = fixture.make(limits);
  const reports: QueueReport[] = [];
  let wakes = 0;
  const wake = () => {
    wakes += 1;
  };
  await queue.open({ wake, report: (report) => reports.push(report) });
  return { queue, reports, wakes: () => wakes };
}

export function add(
  queue: QueuePort,
  text: string,
  priority: Priority = 5,
  ttlMs?: number,
): Promise<AddedEntry> {
  const entry = { type: "order", payload: JSON.stringify(text), priority };
  return queue.add(ttlMs === undefined ? entry : { ...entry, expiresMs: Date.now() + ttlMs });
}

export async function addAll(queue: QueuePort, ...texts: string[]): Promise<AddedEntry[]> {
  return Promise.all(texts.map((text) => add(queue, text)));
}

/** Numbers and texts of messages, such as `1a`. */
export function textsOf(messages: readonly QueuedMessage[]): string[] {
  return messages.map(({ n, payload }) => `${n}${JSON.parse(payload)}`);
}

export async function take(queue: QueuePort, count = 1000, bytes = 1 << 20): Promise<string[]> {
  return textsOf(await queue.take(count, bytes));
}

/** Waits until `condition` holds. */
export async function until(condition: () => unknown, what: string): Promise<void> {
  for (let turn = 0; turn < 2_000; turn += 1) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`it does not come to pass that ${what}`);
}

/** Runs `work` with a clock that is ahead. */
async function later(ms: number, work: () => Promise<void>): Promise<void> {
  const { now } = Date;
  Date.now = () => now() + ms;
  await work().finally(() => {
    Date.now = now;
  });
}

export function equal(found: unknown, expected: unknown, what = "the value"): void {
  const [left, right] = [found, expected].map((value) => JSON.stringify(value));
  if (left !== right) throw new Error(`${what} is ${left?.slice(0, 500)} instead of ${right?.slice(0, 500)}`);
}

/** The code of the error that a promise rejects with; "none" if it resolves. */
export async function codeOf(promise: Promise<unknown>): Promise<string> {
  return promise.then(
    () => "none",
    (error) => (error instanceof TidewireError ? error.code : String(error)),
  );
}

const FIRST = { epoch: "00000001", last: 0 };
const SECOND = { epoch: "00000002", last: 0 };

function uncertainTexts(reports: readonly QueueReport[]): string[] {
  return reports.flatMap((one) =>
    one.type === "uncertain" ? one.messages.map(({ payload }) => payload) : [],
  );
}

export const cases: Record<string, (fixture: Fixture) => Promise<void>> = {
  async "the most urgent goes first, then the oldest, numbered without a hole"(fixture) {
    const { queue } = await open(fixture);
    await add(queue, "low", 3);
    await add(queue, "a", 8);
    await add(queue, "b", 8);
    await queue.resume(FIRST);
    equal(await take(queue, 2), ["1a", "2b"]);
    await add(queue, "background", 1);
    await add(queue, "normal", 5);
    await add(queue, "now", 10);
    equal(await take(queue), ["3now", "4normal", "5low", "6background"]);
    equal(await take(queue), []);
    equal(queue.depth, 6);
    queue.acknowledge(5);
    await until(() => queue.depth === 1, "acknowledged messages leave");
    await queue.close();
  },

  async "a call whose signal is aborted ends, and its message stays"(fixture) {
    const opened = await open(fixture);
    const queue = opened.queue as MessageQueue;
    const early = AbortSignal.abort();
    equal(await codeOf(queue.send("order", "never", { signal: early })), "ABORTED");
    equal(await codeOf(queue.sendLater("order", "never", { signal: early })), "ABORTED");
    const calls = new AbortController();
    const { signal } = calls;
    const sent = codeOf(queue.send("order", "a", { signal }));
    const published = codeOf(queue.publish("orders.eu", "b", { signal }));
    equal(await codeOf(queue.sendLater("order", "c", { signal })), "none");
    await until(() => queue.depth === 3, "all are stored");
    calls.abort();
    equal(await sent, "ABORTED");
    equal(await published, "ABORTED");
    await queue.resume(FIRST);
    equal(await take(queue), ["1a", "2b", "3c"]);
    queue.acknowledge(3);
    await until(() => queue.depth === 0, "acknowledged messages leave");
    await queue.close();
  },

  async "a message keeps what it was added with"(fixture) {
    const { queue } = await open(fixture);
    const full = { type: "trade", payload: '{"x":"é"}', priority: 8 as const, topic: "orders.eu", key: "k" };
    await queue.add({ ...full, expiresMs: Date.now() + 60_000 });
    await queue.resume(FIRST);
    const [message] = await queue.take(1, 1);
    equal(Object.entries(message!).sort(), Object.entries({ ...full, n: 1 }).sort());
    await queue.close();
  },

  async "after a lost connection the rest has the same numbers"(fixture) {
    const { queue } = await open(fixture);
    const [first] = await addAll(queue, "a", "b", "c", "d");
    await queue.resume(FIRST);
    equal(await take(queue, 3), ["1a", "2b", "3c"]);
    await queue.resume({ ...FIRST, last: 1 });
    equal(await codeOf(first!.acknowledged), "none");
    equal(await take(queue), ["2b", "3c", "4d"]);
    queue.rewind(3);
    equal(await take(queue), ["4d"]);
    await queue.close();
  },

  async "what the server has taken from another life of this producer is passed over"(fixture) {
    const { queue } = await open(fixture);
    await addAll(queue, "a", "b");
    await queue.resume({ epoch: "0000abcd", last: 41 });
    equal(await take(queue), ["42a", "43b"]);
    await queue.close();
  },

  async "another epoch makes what was sent uncertain, and drops it"(fixture) {
    const { queue, reports } = await open(fixture);
    const [first] = await addAll(queue, "a", "b", "c");
    await queue.resume({ ...FIRST, last: 5 });
    equal(await take(queue, 2), ["6a", "7b"]);
    await queue.resume(SECOND);
    equal(await take(queue), ["1c"]);
    equal(await codeOf(first!.acknowledged), "CONNECTION_LOST");
    equal(uncertainTexts(reports), ['"a"', '"b"']);
    await queue.close();
  },

  async "another epoch makes what was sent uncertain, and sends it again"(fixture) {
    const { queue, reports } = await open(fixture, { uncertain: "resend" });
    const [first] = await addAll(queue, "a", "b", "c");
    await queue.resume({ ...FIRST, last: 5 });
    equal(await take(queue, 2), ["6a", "7b"]);
    await queue.resume(SECOND);
    equal(await take(queue), ["1a", "2b", "3c"]);
    equal(uncertainTexts(reports), ['"a"', '"b"']);
    equal((reports[0] as { resent: boolean }).resent, true);
    queue.acknowledge(1);
    equal(await codeOf(first!.acknowledged), "none");
    await queue.close();
  },

  async "uncertain messages stay until the application has handled them"(fixture) {
    const { queue, reports } = await open(fixture);
    await addAll(queue, "a", "b", "c");
    await queue.resume(FIRST);
    await take(queue, 2);
    await queue.resume(SECOND);
    // Another one of the same number, from another epoch.
    await take(queue, 1);
    await queue.resume({ epoch: "00000003", last: 0 });
    equal(queue.depth, 3);
    equal(await take(queue), []);
    equal(uncertainTexts(reports), ['"a"', '"b"'], "what is reported before the application is done");
    const [first] = reports as { done(): void }[];
    first!.done();
    first!.done();
    await until(() => reports.length === 2, "the next are reported");
    equal(uncertainTexts(reports), ['"a"', '"b"', '"c"']);
    equal(queue.depth, 1);
    (reports[1] as { done(): void }).done();
    await until(() => queue.depth === 0, "they are gone");
    await queue.close();
  },

  async "limits of count and bytes hold, and what is acknowledged makes room"(fixture) {
    const { queue } = await open(fixture, { messagesMax: 3, bytesMax: 20 });
    await addAll(queue, "a", "b");
    const third = await Promise.all([codeOf(add(queue, "c")), codeOf(add(queue, "d"))]);
    equal(third, ["none", "BUSY"]);
    await queue.resume(FIRST);
    await take(queue);
    queue.acknowledge(3);
    await until(() => queue.depth === 0, "there is room");
    equal(await codeOf(add(queue, "0123456789012345678")), "BUSY");
    equal(await codeOf(add(queue, "éééééééééé")), "BUSY", "ten letters of two bytes");
    equal(await codeOf(add(queue, "012345678901234567")), "none");
    equal(await codeOf(add(queue, "")), "BUSY");
    equal(queue.depth, 1);
    await queue.close();
  },

  async "a message that is too old is not sent, one that was sent does not expire"(fixture) {
    const { queue, reports } = await open(fixture);
    const late = await add(queue, "late", 10, -1);
    await add(queue, "sent", 5, 60_000);
    await add(queue, "later", 3, 60_000);
    await add(queue, "good", 1);
    await queue.resume(FIRST);
    equal(await take(queue, 1), ["1sent"]);
    equal(await codeOf(late.acknowledged), "EXPIRED");
    equal(reports, [{ type: "expired", messages: 1 }]);
    await later(60_001, async () => {
      equal(await take(queue), ["2good"]);
      queue.rewind(0);
      equal(await take(queue), ["1sent", "2good"]);
    });
    await queue.close();
  },

  async "the age limit of the queue holds"(fixture) {
    const { queue, reports } = await open(fixture, { ageMaxMs: 1_000 });
    await addAll(queue, "a", "b");
    await queue.resume(FIRST);
    await later(1_001, async () => equal(await take(queue), []));
    equal(reports, [{ type: "expired", messages: 2 }]);
    equal(queue.depth, 0);
    await queue.close();
  },

  async "more than one commit may expire at once"(fixture) {
    const { queue } = await open(fixture);
    await Promise.all(Array.from({ length: 1_500 }, () => add(queue, "old", 8, -1)));
    await add(queue, "good");
    await queue.resume(FIRST);
    equal(await take(queue), ["1good"]);
    equal(await take(queue), []);
    equal(queue.depth, 1);
    await queue.close();
  },

  async "takes are bounded by bytes but never empty"(fixture) {
    const { queue } = await open(fixture);
    await addAll(queue, "x".repeat(100), "y".repeat(100), "z", "z");
    await queue.resume(FIRST);
    equal((await queue.take(10, 50)).length, 1);
    equal((await queue.take(10, 50)).length, 1);
    equal(await take(queue, 10, 6), ["3z", "4z"]);
    queue.rewind(0);
    equal((await queue.take(10, 206)).length, 2, "numbered ones are bounded as well");
    await queue.close();
  },

  async "a message that the server does not accept for its size is dropped and reported"(fixture) {
    const { queue, reports } = await open(fixture);
    const [large] = await addAll(queue, "x".repeat(2_000), "small");
    const tooLarge = new TidewireError("MESSAGE_TOO_LARGE");
    await queue.resume(FIRST, ({ payload }) => (payload.length > 1_000 ? tooLarge : undefined));
    equal(await take(queue), ["1small"]);
    equal(await codeOf(large!.acknowledged), "MESSAGE_TOO_LARGE");
    equal(
      reports.map(
        (report) => report.type === "refused" && [report.message.payload.length, report.error.code],
      ),
      [[2_002, "MESSAGE_TOO_LARGE"]],
    );
    await queue.close();
  },

  async "a binary payload is kept as one, beside others"(fixture) {
    const { queue } = await open(fixture);
    await add(queue, "before");
    await queue.add({ type: "bytes", payload: '"AAH/"', binary: true, priority: 5 });
    await queue.add({ type: "bytes", topic: "a", payload: '""', binary: true, priority: 5 });
    await add(queue, "after");
    const marks = (messages: readonly QueuedMessage[]) =>
      messages.map(({ payload, binary }) => [payload, binary ?? false]);
    const expected = [
      ['"before"', false],
      ['"AAH/"', true],
      ['""', true],
      ['"after"', false],
    ];
    if (!fixture.isPersistent) {
      await queue.resume(FIRST);
      equal(marks(await queue.take(10, 1e6)), expected);
      return queue.close();
    }
    await queue.close();
    const { queue: again } = await open(fixture);
    await again.resume(FIRST);
    equal(marks(await again.take(10, 1e6)), expected);
    await again.close();
  },

  async "what would be refused leaves the store with a report, wherever it stands, and nothing waits for it"(
    fixture,
  ) {
    const { queue, reports } = await open(fixture);
    const added = await addAll(queue, "bad", "a", "bad", "bad", "b", "bad");
    const invalid = new TidewireError("INVALID_ARGUMENT", "no");
    const judge = ({ payload }: QueuedMessage) => (payload === '"bad"' ? invalid : undefined);
    await queue.resume(FIRST, judge);
    equal(await take(queue), ["1a", "2b"]);
    const codes = await Promise.all([0, 2, 3, 5].map((index) => codeOf(added[index]!.acknowledged)));
    equal(codes, ["INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT", "INVALID_ARGUMENT"]);
    equal(
      reports.map((report) => report.type === "refused" && report.message.payload),
      ['"bad"', '"bad"', '"bad"', '"bad"'],
    );
    equal(queue.depth, 2);
    await queue.close();
  },

  async "numbered messages that would be refused leave the store, and the others move up"(fixture) {
    const { queue, reports } = await open(fixture);
    await addAll(queue, "a", "bad", "b", "bad", "c");
    // As an older version has numbered them.
    await queue.resume(FIRST);
    equal(await take(queue), ["1a", "2bad", "3b", "4bad", "5c"]);
    const judge = ({ payload }: QueuedMessage) =>
      payload === '"bad"' ? new TidewireError("INVALID_ARGUMENT", "no") : undefined;
    await queue.resume({ ...FIRST, last: 1 }, judge);
    equal(await take(queue), ["2b", "3c"]);
    equal(
      reports.map(({ type }) => type),
      ["refused", "refused"],
    );
    await add(queue, "d");
    equal(await take(queue), ["4d"]);
    queue.acknowledge(4);
    await until(() => queue.depth === 0, "all are gone");
    await queue.close();
  },

  async "a message that the server refuses and does not acknowledge is passed with the next connection"(
    fixture,
  ) {
    const { queue, reports } = await open(fixture);
    const [bad, good] = await addAll(queue, "bad", "good");
    await queue.resume(FIRST);
    equal(await take(queue), ["1bad", "2good"]);
    queue.refused(1, new TidewireError("INVALID_MESSAGE", "no"));
    equal(await codeOf(bad!.acknowledged), "INVALID_MESSAGE");
    queue.refused(1, new TidewireError("INVALID_MESSAGE", "no"));
    equal(queue.rewind(0), false, "whether it can go on");
    equal(await take(queue), ["1bad", "2good"]);
    await queue.resume(FIRST);
    equal(await take(queue), ["1good"]);
    queue.acknowledge(1);
    equal(await codeOf(good!.acknowledged), "none");
    equal(
      reports.map(({ type }) => type),
      ["refused"],
      "reports",
    );
    await until(() => queue.depth === 0, "both are gone");
    await queue.close();
  },

  async "a refusal for the moment counts if the server acknowledges the message, and not if it is sent again"(
    fixture,
  ) {
    const { queue, reports } = await open(fixture);
    const [one, two] = await addAll(queue, "a", "b");
    await queue.resume(FIRST);
    await take(queue);
    const full = new TidewireError("QUEUE_FULL", "later");
    queue.refused(1, full, true);
    equal(queue.rewind(0), true);
    equal(await take(queue), ["1a", "2b"]);
    queue.refused(2, full, true);
    queue.acknowledge(2);
    equal(await codeOf(one!.acknowledged), "none");
    equal(await codeOf(two!.acknowledged), "QUEUE_FULL");
    equal(
      reports.map(({ type }) => type),
      ["refused"],
    );
    await queue.close();
  },

  async "an acknowledgement is for all numbers up to it, and not for what was not sent"(fixture) {
    const { queue } = await open(fixture);
    const added = await addAll(queue, "a", "b", "c", "d");
    await queue.resume(FIRST);
    await take(queue, 3);
    queue.refused(2, new TidewireError("TOPIC_FORBIDDEN", "no"));
    queue.acknowledge(2);
    const codes = () => Promise.all(added.slice(0, 3).map(({ acknowledged }) => codeOf(acknowledged)));
    queue.acknowledge(9_999);
    equal(await codes(), ["none", "TOPIC_FORBIDDEN", "none"]);
    await until(() => queue.depth === 1, "they are gone");
    equal(await take(queue), ["4d"]);
    const waiting = codeOf(added[3]!.acknowledged);
    await queue.close();
    equal(await waiting, "CLOSED");
    equal(await codeOf(add(queue, "e")), "CLOSED");
  },

  async "an acknowledgement of numbers that are to be sent again releases none of them"(fixture) {
    const { queue } = await open(fixture);
    await addAll(queue, "a", "b", "c");
    await queue.resume(FIRST);
    await take(queue);
    queue.rewind(1);
    queue.acknowledge(3);
    equal(await take(queue), ["2b", "3c"]);
    await queue.close();
  },

  async "a server that keeps no producers gets nothing"(fixture) {
    const { queue } = await open(fixture);
    await addAll(queue, "a");
    equal(await take(queue), [], "before the first connection");
    await queue.resume(FIRST);
    await queue.resume(undefined);
    equal(await take(queue), []);
    await queue.resume(FIRST);
    equal(await take(queue), ["1a"]);
    await queue.close();
  },

  async "a take that a rewind or a resume overtakes is empty, and nothing is lost"(fixture) {
    const { queue } = await open(fixture);
    await addAll(queue, "a", "b", "c");
    await queue.resume(FIRST);
    const overtaken = take(queue, 2);
    await Promise.resolve();
    queue.rewind(0);
    equal(await overtaken, []);
    equal(await take(queue, 2), ["1a", "2b"]);
    const another = take(queue, 2);
    const resumed = queue.resume({ ...FIRST, last: 1 });
    equal(await another, []);
    await resumed;
    equal(await take(queue), ["2b", "3c"]);
    await queue.close();
  },

  async "what is added is announced, also while a take is under way"(fixture) {
    const { queue, wakes } = await open(fixture);
    await queue.resume(FIRST);
    const before = wakes();
    for (let round = 1; round <= 20; round += 1) {
      const taken: string[] = [];
      const taking = take(queue).then((texts) => taken.push(...texts));
      await add(queue, "x");
      await taking;
      if (taken.length === 0) taken.push(...(await take(queue)));
      equal(taken, [`${round}x`]);
    }
    equal(wakes() >= before + 20, true, "that each addition wakes");
    await queue.close();
  },

  async "thousands that are added at once are stored in order"(fixture) {
    const { queue } = await open(fixture);
    const texts = Array.from({ length: 1_500 }, (_, index) => `-${index}`);
    await addAll(queue, ...texts);
    equal(queue.depth, 1_500);
    await queue.resume(FIRST);
    const found: string[] = [];
    for (let taken = await take(queue); taken.length > 0; taken = await take(queue)) found.push(...taken);
    equal(
      found,
      texts.map((text, index) => `${index + 1}${text}`),
    );
    queue.acknowledge(1_500);
    await until(() => queue.depth === 0, "all of them are gone");
    await queue.close();
  },

  async "a queue belongs to one client, and to another after it was closed"(fixture) {
    const { queue } = await open(fixture);
    equal(typeof queue.producerId, "string");
    equal(await codeOf(queue.open({ wake() {}, report() {} })), "INVALID_ARGUMENT");
    await queue.close();
    equal(queue.producerId, undefined);
    await queue.open({ wake() {}, report() {} });
    equal(await codeOf(add(queue, "a")), "none");
    await queue.close();
    await queue.close();
  },

  async "after a restart messages, numbers and producer are as they were"(fixture) {
    if (!fixture.isPersistent) return;
    const first = await open(fixture);
    const { producerId } = first.queue;
    await addAll(first.queue, "a", "b", "c");
    await add(first.queue, "d", 3, 60_000);
    await first.queue.resume(FIRST);
    equal(await take(first.queue, 3), ["1a", "2b", "3c"]);
    first.queue.acknowledge(1);
    await first.queue.close();
    const second = await open(fixture);
    equal([second.queue.producerId, second.queue.depth], [producerId, 3]);
    await add(second.queue, "e", 8);
    await second.queue.resume({ ...FIRST, last: 2 });
    equal(await take(second.queue), ["3c", "4e", "5d"]);
    await second.queue.close();
    const third = await open(fixture);
    await third.queue.resume(SECOND);
    equal(uncertainTexts(third.reports), ['"c"', '"d"', '"e"'], "what is reported, in the order of storing");
    await third.queue.close();
    const fourth = await open(fixture);
    await until(() => fourth.reports.length > 0, "what was not handled is reported again");
    equal(uncertainTexts(fourth.reports), ['"c"', '"d"', '"e"'], "what is reported again");
    await fourth.queue.close();
  },

  async "a message that was stored while the clock was ahead does not stay for years"(fixture) {
    if (!fixture.isPersistent) return;
    const ahead = await open(fixture, { ageMaxMs: 1e12 });
    await addAll(ahead.queue, "a");
    await ahead.queue.close();
    const { queue } = await open(fixture, { ageMaxMs: 1_000 });
    await queue.resume(FIRST);
    await later(3_600_000, async () => equal(await take(queue), []));
    await queue.close();
  },
};
