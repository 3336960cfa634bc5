/** A page with a client that has a queue, which a test drives from outside. */

import { type Client, connect } from "@tidewire/client";
import { type MessageQueue, queue } from "@tidewire/client/queue";

let client: Client;
let outbox: MessageQueue;

const tab = {
  acknowledged: [] as number[],
  errors: [] as string[],

  open(url: string, name: string): void {
    outbox = queue({ name });
    client = connect(url, { queue: outbox, reconnect: { baseMs: 20, maxMs: 100 } });
  },

  state: () => client.state,

  /** Publishes these numbers, and resolves when they are stored. */
  async publish(topic: string, numbers: number[]): Promise<void> {
    for (const number of numbers) {
      outbox.publish(topic, number).then(
        () => tab.acknowledged.push(number),
        ({ code }) => tab.errors.push(code),
      );
    }
    const { depth } = outbox;
    while (outbox.depth === depth && tab.acknowledged.length < numbers.length) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  },

  depth: () => outbox.depth,
};

export type ClientTab = typeof tab;

Object.assign(globalThis, { tab });
