/** Messages that are encoded once and sent many times. */

import { PreparedFrame } from "../transport/prepared.js";
import type { EncodedPayload, EnvelopeFields, Format } from "./layers.js";

/** A message of the application that `client.prepare` has encoded, for `client.send`. */
export class PreparedMessage implements EnvelopeFields {
  /** The type. */
  readonly t: string;
  readonly #payload: EncodedPayload | undefined;
  readonly #frame: PreparedFrame;

  /** @internal */
  constructor(format: Format, type: string, payload: unknown) {
    this.t = type;
    this.#payload = payload === undefined ? undefined : format.payload(payload);
    this.#frame = new PreparedFrame(format.envelope({ t: type }, this.#payload));
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
