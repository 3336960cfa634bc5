/** A page with a client that has a queue, which a test drives from outside. */

import { type Client, connect } from "@tidewire/client";
import { queue } from "@tidewire/client/queue";

let client: Client;

const tab = {
  acknowledged: [] as number[],
  errors: [] as string[],

  open(url: string, name: string): void {
    client = connect(url, { queue: queue({ name }), reconnect: { baseMs: 20, maxMs: 100 } });
  },

  state: () => client.state,

  /** Publishes these numbers, and resolves when they are stored. */
  async publish(topic: string, numbers: number[]): Promise<void> {
    for (const number of numbers) {
      client.publishAcknowledged(topic, number).then(
        () => tab.acknowledged.push(number),
        ({ code }) => tab.errors.push(code),
      );
    }
    const { queueDepth = 0 } = client;
    while ((client.queueDepth ?? 0) === queueDepth && tab.acknowledged.length < numbers.length) {
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  },

  depth: () => client.queueDepth,
};

export type ClientTab = typeof tab;

Object.assign(globalThis, { tab });
