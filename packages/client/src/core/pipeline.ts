/** The pipeline of one connection: from messages to frames and back. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import type { Message } from "../message.js";
import type { Frame, OutgoingFrame } from "../transport.js";
import { unreadable } from "./envelope.js";
import { readJson, scanPublication } from "./json.js";
import type {
  Awaitable,
  Compression,
  EncodedPayload,
  Envelope,
  EnvelopeFields,
  Format,
  KeyExchange,
  Signing,
} from "./layers.js";

/** What lies between the messages of a connection and its frames. */
export interface Layers {
  format: Format;
  compression: Compression | undefined;
  signing: Signing | undefined;
  exchange: KeyExchange | undefined;
  messageBytesMax: number;
}

export interface Pipeline {
  /** Whether messages are still being encoded. */
  readonly isBusy: boolean;
  /** The key exchange is done: everything is sealed from here on. */
  isSealed: boolean;
  /** Encodes and sends a message, after those before it. `after` runs when it has been sealed. */
  write(fields: EnvelopeFields, payload: EncodedPayload | undefined, after?: () => unknown): void;
  /** Reads a frame. A view that is read later is copied. */
  read(frame: Frame): Awaitable<Message | Envelope>;
}

/** Makes the pipeline of a connection. Layers bring the one that knows them. */
export type PipelineFactory = (
  layers: Layers,
  send: (frame: OutgoingFrame) => void,
  fail: (error: unknown) => void,
) => Pipeline;

/** The pipeline without layers: a format alone. */
export const direct: PipelineFactory = ({ format }, send) => ({
  isBusy: false,
  isSealed: false,
  write: (fields, payload) => send(fields.frame ?? format.envelope(fields, payload)),
  read: (frame) => (typeof frame === "string" ? readText(frame) : readPlain(frame, format)),
});

const decoder = new TextDecoder("utf-8", { fatal: true });

/** Reads a binary message that is neither encrypted nor compressed. */
export function readPlain(bytes: Uint8Array, format: Format): Message | Envelope {
  const [first, second] = bytes;
  if (second === 0x3a && first === 0x4d) return format.read(bytes.subarray(2));
  if (first === 0x78 || (second === 0x3a && (first === 0x43 || first === 0x45))) {
    const option = first === 0x45 ? "encrypt" : "compress";
    throw new TidewireError(
      "NOT_SUPPORTED",
      DEVELOPMENT && `the server's message needs ${option}() of @tidewire/client/${option}`,
      {
        fault: "server",
      },
    );
  }
  let text: string;
  try {
    text = decoder.decode(bytes);
  } catch (cause) {
    throw unreadable(DEVELOPMENT && "it is not UTF-8", cause);
  }
  return readText(text);
}

/** Reads a JSON message. */
export function readText(text: string): Message | Envelope {
  return scanPublication(text) ?? readJson(text);
}

/** What the client refuses so that it ends the connection, with 1008 or what stands for it. */
export class Refused extends TidewireError {
  constructor(what: string) {
    super("PROTOCOL_ERROR", `the server sent ${what}`, { fault: "server" });
  }
}
