/** The JSON format, and a fast reader of publications that leaves payloads undecoded. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import { Message, type Position } from "../message.js";
import { isObject, unreadable } from "./envelope.js";
import type { EncodedPayload, Envelope, EnvelopeFields, Format } from "./layers.js";

/** Encodes a payload as JSON text. */
function encodeJson(value: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    throw new TidewireError("INVALID_ARGUMENT", DEVELOPMENT && `the payload is not JSON: ${String(cause)}`, {
      cause,
    });
  }
  return text ?? "null";
}

/** Types of which the text is remembered. */
const HEADS_MAX = 1_000;
const heads = new Map<string, string>();

/** An envelope up to its payload. Most messages of an application have a type and nothing else. */
function headOf(fields: EnvelopeFields): string {
  const { t } = fields;
  let onlyType = true;
  for (const name in fields) if (name !== "t") onlyType = false;
  if (!onlyType) return JSON.stringify(fields).slice(0, -1);
  let head = heads.get(t);
  if (head === undefined) {
    if (heads.size >= HEADS_MAX) heads.clear();
    heads.set(t, (head = `{"t":${JSON.stringify(t)}`));
  }
  return head;
}

export const json: Format = {
  query: "",
  payload: encodeJson,
  envelope(fields: EnvelopeFields, payload: EncodedPayload | undefined): string {
    const head = headOf(fields);
    return payload === undefined ? `${head}}` : `${head},"p":${payload as string}}`;
  },
  read(): Envelope {
    throw new TidewireError(
      "NOT_SUPPORTED",
      DEVELOPMENT && "the server sent MessagePack; import it from @tidewire/client/msgpack",
      {
        fault: "server",
      },
    );
  },
};

/** Reads a JSON message. Older peers write the category before the object (PROTOCOL 4.3). */
export function readJson(text: string): Envelope {
  let start = 0;
  let category: string | undefined;
  if (text.charCodeAt(0) !== 123) {
    const prefix = /^(?:WSE|S|U)(?=\{)/.exec(text)?.[0];
    if (prefix) [start, category] = [prefix.length, prefix];
  }
  let value: unknown;
  try {
    value = JSON.parse(start ? text.slice(start) : text);
  } catch (cause) {
    throw unreadable(DEVELOPMENT && "it is not JSON", cause);
  }
  if (!isObject(value)) throw unreadable(DEVELOPMENT && "it is not an object");
  if (category && value.c == null) value.c = category;
  return value;
}

const HEAD = '{"c":"U","t":"';
const [QUOTE, COMMA, BRACE, E, I, P, R] = [34, 44, 125, 101, 105, 112, 114];
/** The last publication up to the quote behind its topic, and what that says. */
let last = { text: "\0", type: "", topic: "" };

/**
 * Finds the fields of a publication in the order in which this project's server writes them (PROTOCOL 19.2), without
 * decoding the payload. `undefined` for any other message, which {@link readJson} reads.
 */
export function scanPublication(text: string): Message | undefined {
  if (text.charCodeAt(text.length - 1) !== BRACE) return undefined;
  // Publications of one topic follow one another: their names are read once.
  if (!text.startsWith(last.text)) {
    const found = scanNames(text);
    if (!found) return undefined;
    last = found;
  }
  const { type, topic } = last;
  // Behind the topic's closing quote: a comma, a quote and the name of the next field.
  let at = last.text.length;
  let position: Position | undefined;
  if (text.charCodeAt(at + 2) === E) {
    if (!text.startsWith(',"e":"', at) || !text.startsWith('","o":', at + 14)) return undefined;
    const epoch = text.slice(at + 6, at + 14);
    let offset = 0;
    at += 20;
    for (let digit = text.charCodeAt(at); digit > 47 && digit < 58; digit = text.charCodeAt(++at)) {
      offset = offset * 10 + digit - 48;
    }
    position = { epoch, offset };
  }
  let id: string | undefined;
  if (text.charCodeAt(at + 2) === I) {
    const end = text.indexOf('"', at + 7);
    id = text.slice(at + 7, end);
    if (!text.startsWith(',"id":"', at) || id.includes("\\")) return undefined;
    at = end + 1;
  }
  let priority = 5;
  if (text.charCodeAt(at + 3) === R) {
    const end = text.indexOf(",", at + 7);
    if (!text.startsWith(',"pri":', at)) return undefined;
    priority = Number(text.slice(at + 7, end));
    at = end;
  }
  // Further fields and another order are for the reader of JSON: this must be `,"p":`.
  const isPayload =
    text.charCodeAt(at + 2) === P && text.charCodeAt(at + 3) === QUOTE && text.charCodeAt(at) === COMMA;
  return isPayload
    ? Message.undecoded(type, topic, position, id, priority, text.slice(at + 5, -1))
    : undefined;
}

/** The type and the topic at the beginning of a publication; none if they hold escapes. */
function scanNames(text: string): typeof last | undefined {
  if (!text.startsWith(HEAD)) return undefined;
  let at = text.indexOf('"', HEAD.length);
  const type = text.slice(HEAD.length, at);
  if (!text.startsWith('","tp":"', at)) return undefined;
  const topicAt = at + 8;
  at = text.indexOf('"', topicAt);
  const topic = text.slice(topicAt, at);
  if (type.includes("\\") || topic.includes("\\")) return undefined;
  return { text: text.slice(0, at + 1), type, topic };
}
