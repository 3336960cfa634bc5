/** Messages as the application receives them. */

import { payloadOf, typeOf } from "./core/envelope.js";
import type { Envelope } from "./core/layers.js";
import { readPayload } from "./core/payload.js";

/** Where a publication stands in the history of its topic. */
export interface Position {
  /** Which history: 8 hex digits. Another epoch means that counting began anew. */
  readonly epoch: string;
  /** Which publication of it, from 1; 0 is the place before the first. */
  readonly offset: number;
}

/** What few messages have. */
interface Rest {
  isSnapshot: boolean;
  isRedelivered: boolean;
  delivery: { number: number; connectionId: string } | undefined;
}

const CHANGE: Rest = { isSnapshot: false, isRedelivered: false, delivery: undefined };

/** A publication or another message of the server's application: plain data, which can be copied, cloned and printed. */
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
  /** The content: a value of JSON, or a `Uint8Array`. */
  readonly payload: T;
  /** The payload as JSON text until the application gets the message, which then is plain data. @internal */
  #text: string | undefined;

  private constructor(
    type: string,
    topic: string | undefined,
    position: Position | undefined,
    id: string | undefined,
    priority: number,
    payload: T,
    rest: Rest,
    text?: string,
  ) {
    this.type = type;
    this.topic = topic;
    this.position = position;
    this.id = id;
    this.priority = priority;
    this.isSnapshot = rest.isSnapshot;
    this.isRedelivered = rest.isRedelivered;
    this.delivery = rest.delivery;
    this.payload = payload;
    this.#text = text;
  }

  /** Decodes the payload, which has to be done before the application sees it. Throws a `SyntaxError`. @internal */
  decoded(): this {
    if (this.#text !== undefined) {
      (this as { payload: unknown }).payload = JSON.parse(this.#text);
      this.#text = undefined;
    }
    return this;
  }

  /** A publication whose payload is decoded when somebody receives it. @internal */
  static undecoded(
    type: string,
    topic: string,
    position: Position | undefined,
    id: string | undefined,
    priority: number,
    text: string,
  ): Message {
    return new Message(type, topic, position, id, priority, undefined, CHANGE, text);
  }

  /** @internal */
  static read(envelope: Envelope, connectionId = ""): Message {
    const { e, o, tp, id, pri, d } = envelope;
    const hasPosition = typeof e === "string" && typeof o === "number";
    return new Message(
      String(typeOf(envelope)),
      typeof tp === "string" ? tp : undefined,
      hasPosition ? { epoch: e, offset: o } : undefined,
      typeof id === "string" ? id : undefined,
      typeof pri === "number" ? pri : 5,
      readPayload(payloadOf(envelope), envelope.b),
      {
        isSnapshot: envelope.c === "S",
        isRedelivered: envelope.rd === true,
        delivery: typeof d === "number" ? { number: d, connectionId } : undefined,
      },
    );
  }
}
