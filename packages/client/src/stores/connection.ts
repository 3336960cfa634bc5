/** The state of the connection. */

import type { Client } from "../client.js";
import type { ConnectionStatus } from "../events.js";
import type { Plan } from "./plan.js";
import type { ClientSlot } from "./slot.js";
import { Store } from "./store.js";

const CONNECTING: ConnectionStatus = {
  state: "connecting",
  reason: undefined,
  code: undefined,
  retryInMs: undefined,
};

class ConnectionStore extends Store<ConnectionStatus> {
  #status = CONNECTING;

  constructor(slot: ClientSlot) {
    super(slot, CONNECTING, slot.client?.status.get());
  }

  protected override start(client: Client): () => void {
    const read = () => {
      this.#status = client.status.get();
      this.changed();
    };
    read();
    return client.status.subscribe(read);
  }

  protected override build(): ConnectionStatus {
    return this.#status;
  }
}

/** The state of the connection, and its reason. A server renders `connecting`. */
export const connectionPlan: Plan<ConnectionStatus, Store<ConnectionStatus>> = {
  keys: [],
  open: (slot) => slot.shared.get("connection", () => new ConnectionStore(slot)),
};
