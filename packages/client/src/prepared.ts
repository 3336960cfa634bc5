/** Messages that are encoded once and sent many times. */

import type { Client } from "./client.js";
import type { EncodedPayload, EnvelopeFields, Format } from "./core/layers.js";
import { encode } from "./core/payload.js";
import { checkType } from "./core/types.js";
import { PreparedFrame } from "./transport/prepared.js";

/** A message of the application that {@link prepare} has encoded, for `client.send`. */
export class PreparedMessage implements EnvelopeFields {
  /** The type. */
  readonly t: string;
  /** The payload is binary. */
  declare readonly b?: true;
  readonly #payload: EncodedPayload | undefined;
  readonly #frame: PreparedFrame;

  /** @internal */
  constructor(format: Format, type: string, payload: unknown) {
    checkType(type);
    this.t = type;
    const fields: EnvelopeFields = { t: type };
    this.#payload = encode(format, payload, fields);
    if (fields.b) this.b = fields.b;
    this.#frame = new PreparedFrame(format.envelope(fields, this.#payload));
  }

  /** @internal */
  get payload(): EncodedPayload | undefined {
    return this.#payload;
  }

  /** The whole message, for a connection without layers. @internal */
  get frame(): PreparedFrame {
    return this.#frame;
  }
}

/** Encodes a message once, for `send` of this client to send it many times. */
export function prepare(client: Client, type: string, payload?: unknown): PreparedMessage {
  return new PreparedMessage(client.driver.session.format, type, payload);
}
