/** The JSON format, and a fast reader of publications that leaves payloads undecoded. */

import { DEVELOPMENT } from "#development";
import { TidewireError } from "../errors.js";
import { Message } from "../message.js";
import { isObject, unreadable } from "./envelope.js";
import type { EncodedPayload, Envelope, EnvelopeFields, Format } from "./layers.js";
import { isLeaf, isSendable, levelsAround, unsendable } from "./payload.js";

/** Longer texts are left to the engine. */
const SHORT = 128;
/** What a text of JSON escapes, and half a surrogate pair. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: JSON escapes them
const ESCAPED = /["\\\0-\x1f\ud800-\udfff]/;
/** Half a surrogate pair, as JSON writes it: behind an even number of backslashes. */
const HALF = /(?:^|[^\\])(?:\\\\)*\\ud/;
/** Names of fields as they are written; empty for those that need a closer look. */
const names = new Map<string, string>();

function nameOf(key: string): string {
  let name = names.get(key);
  if (name === undefined) {
    if (key.length > SHORT) return "";
    if (names.size >= HEADS_MAX) names.clear();
    names.set(key, (name = ESCAPED.test(key) ? "" : `"${key}":`));
  }
  return name;
}

/** Writes an object of short fields, as most messages have, faster than `JSON.stringify`; nothing for any other. */
function writeFlat(value: Envelope): string | undefined {
  let text = "";
  for (const key in value) {
    const field = value[key];
    const name = nameOf(key);
    const type = typeof field;
    if (!name) return undefined;
    if (text) text += ",";
    if (type === "string") {
      if ((field as string).length > SHORT || ESCAPED.test(field as string)) return undefined;
      text += `${name}"${field}"`;
    } else if (isLeaf(field)) text += name + field;
    else return undefined;
  }
  return `{${text}}`;
}

/** Encodes a payload as JSON text. */
function encodeJson(value: unknown, name = "payload"): string {
  const isPlain = typeof value === "object" && value && Object.getPrototypeOf(value) === Object.prototype;
  const flat = isPlain && writeFlat(value as Envelope);
  if (flat) return flat;
  const text = isSendable(value, levelsAround(name)) && JSON.stringify(value);
  if (!text || (text.indexOf("\\") >= 0 && HALF.test(text))) throw unsendable(name, value);
  return text;
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

/** A publication as this project's server writes it (PROTOCOL 19.2): first its names, and then what stands before the payload. */
const NAMES = /^{"c":"U","t":"([^"\\]+)","tp":"([^"\\]*)"/;
const REST = /(?:,"e":"([0-9a-f]{8})","o":(\d+))?(?:,"id":"([^"\\]*)")?(?:,"pri":(\d+))?,"p":/y;
const QUOTE = 34;
const BACKSLASH = 92;
const OPEN_BRACE = 123;
const CLOSE_BRACE = 125;
/** Makes a brace of a bracket, and of nothing else. */
const AS_BRACE = 32;
/** The start of the last publication, up to the quote behind its topic, and the type and topic in it. */
let last = { text: "\0", type: "", topic: "" };

/**
 * Whether the value at `start` reaches to the brace that ends the text, so that no field follows it. Also `false`
 * where the check would cost more than it saves. A value that is no JSON may pass.
 */
function isLastValue(text: string, start: number): boolean {
  const end = text.length - 2;
  const first = text.charCodeAt(start);
  if (first === QUOTE) return text.indexOf('"', start + 1) === end;
  if ((first | AS_BRACE) !== OPEN_BRACE) return !text.includes(",", start);
  // Most payloads hold no further object.
  if (text.indexOf(first === OPEN_BRACE ? "}" : "]", start) === end) return true;
  let depth = 0;
  for (let at = start; at <= end; at++) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      at = text.indexOf('"', at + 1);
      if (at < 0 || text.charCodeAt(at - 1) === BACKSLASH) return false;
    } else if ((code | AS_BRACE) === OPEN_BRACE) depth++;
    else if ((code | AS_BRACE) === CLOSE_BRACE && --depth === 0) return at === end;
  }
  return false;
}

/**
 * Finds the fields of a publication without decoding its payload. `undefined` for any other message, for one with
 * further fields, with another order of them or with escapes in them: {@link readJson} reads it.
 */
export function scanPublication(text: string): Message | undefined {
  if (text.charCodeAt(text.length - 1) !== CLOSE_BRACE) return undefined;
  // Publications of one topic follow one another: their names are read once.
  if (!text.startsWith(last.text)) {
    const names = NAMES.exec(text);
    if (!names) return undefined;
    last = { text: names[0], type: names[1]!, topic: names[2]! };
  }
  REST.lastIndex = last.text.length;
  const rest = REST.exec(text);
  if (!rest || !isLastValue(text, REST.lastIndex)) return undefined;
  const [, epoch, offset, id, priority = 5] = rest;
  const position = epoch === undefined ? undefined : { epoch, offset: Number(offset) };
  const payload = text.slice(REST.lastIndex, -1);
  return Message.undecoded(last.type, last.topic, position, id, Number(priority), payload);
}
