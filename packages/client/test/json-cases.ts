/** Holds the readers of JSON messages against the vectors; runs in Node and in a page. */

import { payloadOf, typeOf } from "../src/core/envelope.js";
import { json } from "../src/core/json.js";
import { readPlain, readText } from "../src/core/pipeline.js";
import { TidewireError } from "../src/errors.js";
import { Message } from "../src/message.js";
import type { MessageCase } from "./vectors.js";

/** `JSON.parse` keeps the last of equal names, has no limit of levels, reads messages whole, and rounds past 2^53. */
const BEYOND =
  /twice|duplicate|levels|nested|depth|what stands behind the type|behind a system|largest position/i;

/** What the client accepts and others refuse: fields that it does not read, and half of a surrogate pair. */
const LENIENT = /field of a wrong type|ud800/;

/** The cases of `envelopes`, `malformed` and `publications` that a reader of JSON has to get right. */
export function ofJson(cases: readonly MessageCase[]): MessageCase[] {
  return cases.filter(({ name }) => !BEYOND.test(name));
}

/** The bytes of hex digits, where there is no `Buffer` as well. */
function unhex(digits: string): Uint8Array {
  return Uint8Array.from(digits.match(/../g) ?? [], (byte) => Number.parseInt(byte, 16));
}

/** What is wrong with the frames of a case that are JSON; nothing if they are read as it says. */
export function judgeJson({ name, frames, kind, envelope }: MessageCase): string[] {
  const failures: string[] = [];
  for (const frame of frames) {
    if ("binary" in frame && /^(4d3a|433a|78|453a)/.test(frame.binary)) continue;
    let message: Message | Record<string, unknown>;
    try {
      message = "text" in frame ? readText(frame.text) : readPlain(unhex(frame.binary), json);
      // As the session has it.
      const type = message instanceof Message ? message.type : typeOf(message);
      if (typeof type !== "string" || !type) throw new TidewireError("INVALID_MESSAGE", "");
    } catch (error) {
      if (!(error instanceof TidewireError)) failures.push(`${name}: a foreign error ${String(error)}`);
      if (kind !== "refused") failures.push(`${name}: was refused: ${String(error)}`);
      continue;
    }
    const words = JSON.stringify(frame);
    if (kind === "refused" && !LENIENT.test(name + words)) failures.push(`${name}: was accepted: ${words}`);
    if (!envelope) continue;
    const { t, tp = null, p = null, e, o } = envelope;
    const position = e == null ? null : { epoch: e, offset: o };
    const expected = message instanceof Message ? [t, tp, p, position] : [t, tp, p];
    const found =
      message instanceof Message
        ? [message.type, message.topic, message.decoded().payload, message.position ?? null]
        : [typeOf(message), message.tp ?? null, payloadOf(message) ?? null];
    if (textOf(found) !== textOf(expected))
      failures.push(`${name}: ${textOf(found)} is not ${textOf(expected)}`);
  }
  return failures;
}

/** A value as JSON, whatever the order of its names. */
function textOf(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );
}
