/** Messages as the application receives them. */

import { payloadOf, type Scanned, typeOf } from "./core/json.js";
import type { Envelope } from "./core/layers.js";

/** Where a publication stands in the history of its topic. */
export interface Position {
  /** Which history: 8 hex digits. Another epoch means that counting began anew. */
  readonly epoch: string;
  /** Which publication of it, from 1; 0 is the place before the first. */
  readonly offset: number;
}

/** A publication or another message of the server's application. Its payload is decoded when it is first read. */
export class Message<T = unknown> {
  /** The type that the sender gave it. */
  readonly type: string;
  /** The topic; `undefined` for a message to this user, this connection or everyone. */
  readonly topic: string | undefined;
  /** The position, on a topic with history. */
  readonly position: Position | undefined;
  /** The id that the publisher gave it. */
  readonly id: string | undefined;
  /** 1 background, 3 low, 5 normal, 8 high, 10 critical. */
  readonly priority: number;
  /** Whether it is the state of something, in place of a change. */
  readonly isSnapshot: boolean;
  /** For members of a queue group: it was delivered before, perhaps to another member. */
  readonly isRedelivered: boolean;
  /** The number of the delivery, if it is to be acknowledged. @internal */
  readonly delivery: { number: number; connectionId: string } | undefined;
  #text: string | undefined;
  #payload: T | undefined;

  private constructor(fields: Omit<Message, "payload">, text: string | undefined, payload?: T) {
    this.type = fields.type;
    this.topic = fields.topic;
    this.position = fields.position;
    this.id = fields.id;
    this.priority = fields.priority;
    this.isSnapshot = fields.isSnapshot;
    this.isRedelivered = fields.isRedelivered;
    this.delivery = fields.delivery;
    this.#text = text;
    this.#payload = payload;
  }

  /** What it says. Throws a `SyntaxError` if the sender wrote no JSON. */
  get payload(): T {
    if (this.#text !== undefined) {
      this.#payload = JSON.parse(this.#text) as T;
      this.#text = undefined;
    }
    return this.#payload as T;
  }

  /** @internal */
  static scanned(found: Scanned): Message {
    const { epoch, offset } = found;
    return new Message(
      {
        type: found.type,
        topic: found.topic,
        position: epoch === undefined ? undefined : { epoch, offset },
        id: found.id,
        priority: found.priority,
        isSnapshot: false,
        isRedelivered: false,
        delivery: undefined,
      },
      found.payload,
    );
  }

  /** @internal */
  static read(envelope: Envelope, connectionId = ""): Message {
    const { e, o, tp, id, pri, d } = envelope;
    const hasPosition = typeof e === "string" && typeof o === "number";
    return new Message(
      {
        type: String(typeOf(envelope)),
        topic: typeof tp === "string" ? tp : undefined,
        position: hasPosition ? { epoch: e, offset: o } : undefined,
        id: typeof id === "string" ? id : undefined,
        priority: typeof pri === "number" ? pri : 5,
        isSnapshot: envelope.c === "S",
        isRedelivered: envelope.rd === true,
        delivery: typeof d === "number" ? { number: d, connectionId } : undefined,
      },
      undefined,
      payloadOf(envelope),
    );
  }
}
