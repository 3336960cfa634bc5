/** A server for the tests of the hooks: it plays Tidewire's part over the fake transport. */

import { type FakeConnection, FakeTransport } from "@tidewire/client/testing";

interface Envelope {
  t: string;
  cid?: string;
  p: Record<string, unknown>;
}

/** The answer to a request: the type and the payload, or nothing. */
type Answer = [type: string, payload: object] | undefined;

export class FakeServer {
  readonly transport = new FakeTransport();
  /** Requests of all connections, in order. */
  readonly requests: Envelope[] = [];
  /** Members of each topic with presence. */
  readonly members: Record<string, Record<string, { connections: number; data?: unknown }>> = {};
  /** Topics that nobody may have. */
  readonly forbidden = new Set<string>();
  /** Answers calls; `undefined` leaves them open. */
  onCall: (type: string, payload: unknown) => unknown = () => undefined;
  /** Called for each request before it is answered. */
  onRequest: (type: string) => void = () => {};
  /** Users of each topic that its list does not name. */
  unnamed = 0;
  /** Whether requests are answered. */
  answers = true;

  constructor() {
    this.transport.onConnect = (connection) => {
      connection.onMessage = ((message: Envelope) => this.#receive(connection, message)) as never;
      connection.accept({
        features: { topics: true, presence: true, calls: true, publish: true, history: true },
      });
    };
  }

  /** The newest connection. */
  get connection(): FakeConnection {
    return this.transport.connections.at(-1)!;
  }

  /** Connections that are open. */
  get open(): number {
    return this.transport.connections.filter((connection) => !connection.closed).length;
  }

  /** Publishes to the newest connection. */
  publish(topic: string, payload: unknown, type = "message"): void {
    this.connection.send({ c: "U", t: type, tp: topic, p: payload });
  }

  presence(change: "join" | "leave" | "update", topic: string, user: string, data?: object): void {
    this.connection.send({
      c: "WSE",
      t: `presence_${change}`,
      p: { topic, user_id: user, ...(data && { data }) },
    });
  }

  /** Topics of the requests of an action. */
  topics(action: "subscribe" | "unsubscribe"): string[] {
    const all = this.requests.filter(({ t, p }) => t === "subscription_update" && p["action"] === action);
    return all.flatMap(({ p }) => p["topics"] as string[]);
  }

  of(type: string): Envelope[] {
    return this.requests.filter(({ t }) => t === type);
  }

  #receive(connection: FakeConnection, message: Envelope): void {
    this.requests.push(message);
    this.onRequest(message.t);
    if (!this.answers) return;
    const answer = this.#answer(message);
    if (answer) connection.send({ c: "WSE", t: answer[0], cid: message.cid, p: answer[1] });
  }

  #answer({ t, p }: Envelope): Answer {
    if (t === "subscription_update") {
      const topics = p["topics"] as string[];
      const failed = topics.filter((topic) => this.forbidden.has(topic));
      const done = topics.filter((topic) => !this.forbidden.has(topic));
      return [t, { action: p["action"], success_topics: done, failed_topics: failed, recovery: {} }];
    }
    if (t === "presence_request") {
      const entries = (p["topics"] as string[]).map((topic) => {
        const members = this.members[topic] ?? {};
        const users = Object.keys(members).length + this.unnamed;
        return [topic, { users, connections: users, truncated: this.unnamed > 0, members }];
      });
      return ["presence_response", { topics: Object.fromEntries(entries), failed_topics: [] }];
    }
    if (t === "publish_request") return ["publish_response", { topic: p["topic"], duplicate: false }];
    if (t === "call_request") {
      const payload = this.onCall(p["type"] as string, p["payload"]);
      return payload === undefined ? undefined : ["call_response", { payload }];
    }
    return undefined;
  }
}
