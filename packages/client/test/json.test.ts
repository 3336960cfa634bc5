import { describe, expect, test } from "vitest";
import { payloadOf, typeOf } from "../src/core/envelope.js";
import { json } from "../src/core/json.js";
import { readPlain, readText } from "../src/core/pipeline.js";
import { TidewireError } from "../src/errors.js";
import { Message } from "../src/message.js";
import { type MessageCase, vectors } from "./vectors.js";

/** `JSON.parse` keeps the last of equal names, has no limit of levels, reads messages whole, and rounds past 2^53. */
const BEYOND =
  /twice|duplicate|levels|nested|depth|what stands behind the type|behind a system|largest position/i;

const cases = ["envelopes", "malformed", "publications"].flatMap((file) => vectors<MessageCase>(file));

function read(frame: MessageCase["frames"][number]): Message | Record<string, unknown> {
  if ("text" in frame) return readText(frame.text);
  return readPlain(Buffer.from(frame.binary, "hex"), json) as Message;
}

describe("JSON messages", () => {
  const texts = cases.filter(({ name }) => !BEYOND.test(name));
  test.each(texts)("$name", ({ frames, kind, envelope }) => {
    for (const frame of frames) {
      if ("binary" in frame && /^(4d3a|433a|78|453a)/.test(frame.binary)) continue;
      let message: Message | Record<string, unknown>;
      try {
        message = read(frame);
        if (!(message instanceof Message) && typeof typeOf(message) !== "string")
          throw new TidewireError("INVALID_MESSAGE", "");
      } catch (error) {
        expect(error).toBeInstanceOf(TidewireError);
        expect(kind).toBe("refused");
        continue;
      }
      if (!envelope) continue;
      if (message instanceof Message) {
        const { type, topic, payload, position } = message;
        expect({ type, topic, payload }).toEqual({
          type: envelope.t,
          topic: envelope.tp,
          payload: envelope.p,
        });
        expect(position).toEqual(envelope.e && { epoch: envelope.e, offset: envelope.o });
      } else {
        expect([typeOf(message), message.tp ?? null]).toEqual([envelope.t, envelope.tp ?? null]);
        expect(payloadOf(message) ?? null).toEqual(envelope.p ?? null);
      }
    }
  });
});

test("publications that follow one another keep their own names", () => {
  const text = (type: string, topic: string) => `{"c":"U","t":"${type}","tp":"${topic}","p":1}`;
  const names = [
    ["t", "a"],
    ["t", "ab"],
    ["t", "a"],
    ["tt", "a"],
    ["t", "a"],
    ["t", "a"],
  ] as const;
  for (const [type, topic] of names) {
    expect(readText(text(type, topic))).toMatchObject({ type, topic, payload: 1 });
  }
});
