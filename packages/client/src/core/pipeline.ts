/** The pipeline of one connection: from messages to frames and back. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import type { Message } from "../message.js";
import type { Frame, OutgoingFrame } from "../transport.js";
import { unreadable } from "./envelope.js";
import { readJson, scanPublication } from "./json.js";
import type {
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

/** The connection that a pipeline serves. */
export interface Wire {
  /** The connection is over: nothing more is read or sent. */
  isOver(): boolean;
  send(frame: OutgoingFrame): void;
  /**
   * Receives a message, and the frame if that holds the message as it is. A promise if the next message has to wait for
   * it. Throws what {@link fail} gets.
   */
  receive(message: Message | Envelope, frame: Frame | undefined): Promise<unknown> | undefined;
  /** A message could not be read or written. */
  fail(error: unknown): void;
  /** This side refuses what the server sent, and ends the connection. */
  refuse(error: unknown): void;
  /** Sends a message of the protocol; `after` runs when it has been sealed. */
  notify(t: string, payload: object, after: () => unknown): void;
  /** Many frames wait: the socket is not read further, if it can be stopped. */
  hold(): void;
  /** Reading goes on after a wait, and that of the socket too where few frames wait. */
  proceed(hasRoom: boolean): void;
}

export interface Pipeline {
  /** Whether messages are still being encoded. */
  readonly isBusy: boolean;
  /** Encodes and sends a message, after those before it. `after` runs when it has been sealed. */
  write(fields: EnvelopeFields, payload: EncodedPayload | undefined, after?: () => unknown): void;
  /** Reads frames, in their order. Views that are read later are copied. */
  read(frames: readonly Frame[]): void;
}

/** Makes the pipeline of a connection. Layers bring the one that knows them. */
export type PipelineFactory = (layers: Layers, wire: Wire) => Pipeline;

/** The pipeline without layers: a format alone. Nothing has to wait. */
export const direct: PipelineFactory = ({ format }, wire) => ({
  isBusy: false,
  write: (fields, payload) => wire.send(fields.frame ?? format.envelope(fields, payload)),
  read(frames) {
    for (const frame of frames) {
      if (wire.isOver()) return;
      try {
        wire.receive(typeof frame === "string" ? readText(frame) : readPlain(frame, format), frame);
      } catch (error) {
        wire.fail(error);
      }
    }
  },
});

/** Made for the first binary message, which a connection without layers never has: not everywhere is a `TextDecoder`. */
let decoder: TextDecoder | undefined;

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
    decoder ??= new TextDecoder("utf-8", { fatal: true });
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

/** A frame that stays valid. A `Buffer` of Node shares its memory with its slices. */
export function copy(frame: Frame): Frame {
  return typeof frame === "string" ? frame : new Uint8Array(frame);
}
