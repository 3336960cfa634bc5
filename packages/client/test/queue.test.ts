import { describe, expect, test } from "vitest";
import { MemoryStorage } from "../src/queue/memory.js";
import { Queue } from "../src/queue/queue.js";
import type { Row } from "../src/queue/storage.js";
import { addAll, cases, codeOf, open, take, until } from "./queue-cases.js";

describe("queue in memory", () => {
  test.each(Object.keys(cases))("%s", { timeout: 30_000 }, async (name) => {
    const storage = new MemoryStorage();
    await cases[name]!({
      isPersistent: true,
      make: (limits = {}) => new Queue(limits, () => ({ storage })),
    });
  });
});

/** A storage whose writes fail while `isBroken`. */
class BrokenStorage extends MemoryStorage {
  isBroken = false;

  #check(): void {
    if (this.isBroken) throw new Error("the disk is full");
  }

  override async add(...args: Parameters<MemoryStorage["add"]>): ReturnType<MemoryStorage["add"]> {
    this.#check();
    return super.add(...args);
  }

  override async update(changed: readonly Row[], deleted: readonly Row[], epoch?: string): Promise<void> {
    this.#check();
    return super.update(changed, deleted, epoch);
  }
}

/** A storage whose updates wait until they are let go on. */
class SlowStorage extends MemoryStorage {
  goOn: (() => void) | undefined;

  override async update(...args: Parameters<MemoryStorage["update"]>): Promise<void> {
    await new Promise<void>((resolve) => {
      this.goOn = resolve;
    });
    return super.update(...args);
  }
}

test("a take that is overtaken while its numbers are stored gives them out the next time", async () => {
  const storage = new SlowStorage();
  const { queue } = await open({ isPersistent: true, make: () => new Queue({}, () => ({ storage })) });
  const goOn = async () => {
    await until(() => storage.goOn, "the storage is asked");
    storage.goOn?.();
    storage.goOn = undefined;
  };
  await addAll(queue, "a", "b");
  const resumed = queue.resume({ epoch: "00000001", last: 0 });
  await goOn();
  await resumed;
  const overtaken = take(queue, 1);
  await until(() => storage.goOn, "the number is being stored");
  queue.rewind(0);
  await goOn();
  expect(await overtaken).toEqual([]);
  const both = take(queue);
  await goOn();
  expect(await both).toEqual(["1a", "2b"]);
  await queue.close();
});

describe("a storage that fails", { timeout: 30_000 }, () => {
  const resume = { epoch: "00000001", last: 0 };

  test("an acknowledgement that cannot be stored is reported once and stored later", async () => {
    const storage = new BrokenStorage();
    const { queue, reports } = await open({
      isPersistent: true,
      make: () => new Queue({}, () => ({ storage })),
    });
    const [first, second] = await addAll(queue, "a", "b");
    await queue.resume(resume);
    await take(queue);
    storage.isBroken = true;
    queue.acknowledge(1);
    expect(await codeOf(first!.acknowledged), "the server has it, whatever the disk does").toBe("none");
    await until(() => reports.length > 0, "it is reported");
    queue.acknowledge(2);
    expect(await codeOf(second!.acknowledged)).toBe("none");
    expect(await codeOf(addAll(queue, "c"))).toBe("QUEUE_FAILED");
    expect(reports).toMatchObject([
      { type: "queue_failed", error: { message: expect.stringContaining("disk is full") } },
    ]);
    storage.isBroken = false;
    await until(() => queue.depth === 0, "both are gone from the store");
    await addAll(queue, "d");
    expect(await take(queue)).toEqual(["3d"]);
    await queue.close();
  });

  test("a take that cannot number gives out nothing, and wakes when to try again", async () => {
    const storage = new BrokenStorage();
    const { queue, wakes } = await open({
      isPersistent: true,
      make: () => new Queue({}, () => ({ storage })),
    });
    await addAll(queue, "a");
    await queue.resume(resume);
    storage.isBroken = true;
    const before = wakes();
    expect(await take(queue)).toEqual([]);
    await until(() => wakes() > before, "it wakes");
    storage.isBroken = false;
    expect(await take(queue)).toEqual(["1a"]);
    await queue.close();
  });

  test("a resume waits for the store, the latest counts, and a close does not wait", async () => {
    const storage = new BrokenStorage();
    const { queue } = await open({ isPersistent: true, make: () => new Queue({}, () => ({ storage })) });
    await addAll(queue, "a", "b");
    storage.isBroken = true;
    const first = queue.resume(resume);
    const second = queue.resume({ ...resume, last: 7 });
    storage.isBroken = false;
    await Promise.all([first, second]);
    expect(await take(queue)).toEqual(["8a", "9b"]);
    storage.isBroken = true;
    queue.acknowledge(9);
    await queue.close();
  });

  test("a storage that cannot be opened is an error, or memory that says so", async () => {
    class Unopened extends MemoryStorage {
      override async open(): Promise<never> {
        throw new Error("no permission");
      }
    }
    const make = () => new Queue({}, () => ({ storage: new Unopened() }));
    await expect(open({ isPersistent: true, make })).rejects.toMatchObject({
      code: "QUEUE_FAILED",
      message: expect.stringContaining("no permission"),
    });
    const fallback = () =>
      new Queue({}, (notWorking) =>
        notWorking
          ? { storage: new MemoryStorage(), inMemoryBecause: notWorking }
          : { storage: new Unopened() },
      );
    const { queue, reports } = await open({ isPersistent: false, make: fallback });
    expect(reports).toMatchObject([
      { type: "queue_in_memory", reason: expect.stringContaining("no permission") },
    ]);
    expect(await codeOf(addAll(queue, "a"))).toBe("none");
    await queue.close();
  });
});
