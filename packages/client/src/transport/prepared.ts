/** Messages that are encoded once and sent many times. */

import { utf8 } from "../core/bytes.js";

/**
 * A message whose bytes are computed once. A transport that writes frames itself copies and masks them; any other
 * sends {@link PreparedFrame.data}.
 */
export class PreparedFrame {
  /** The message as a plain frame: a string is sent as text, bytes as binary. */
  readonly data: string | Uint8Array;
  /** Whether the message is text. */
  readonly isText: boolean;
  /** The payload: UTF-8 for text. Must not be changed. */
  readonly bytes: Uint8Array;

  constructor(data: string | Uint8Array) {
    this.data = data;
    this.isText = typeof data === "string";
    this.bytes = typeof data === "string" ? utf8(data) : data;
  }
}
