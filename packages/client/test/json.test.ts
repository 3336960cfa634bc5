import { describe, expect, test } from "vitest";
import { readText } from "../src/core/pipeline.js";
import { TidewireError } from "../src/errors.js";
import { Message } from "../src/message.js";
import { judgeJson, ofJson } from "./json-cases.js";
import { type MessageCase, vectors } from "./vectors.js";

const cases = ["envelopes", "malformed", "publications"].flatMap((file) => vectors<MessageCase>(file));

describe("JSON messages", () => {
  test.each(ofJson(cases))("$name", (one) => expect(judgeJson(one)).toEqual([]));
});

/** A publication that the fast reader has read, as the application gets it. */
function publication(text: string): Message {
  const message = readText(text);
  if (!(message instanceof Message)) throw new Error("the fast reader has not read it");
  return message.decoded();
}

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
    expect(publication(text(type, topic))).toMatchObject({ type, topic, payload: 1 });
  }
});

describe("publications whose payload is left undecoded", () => {
  const head = '{"c":"U","t":"trade","tp":"orders.eu","e":"0badcafe","o":17,"p":';
  const payloads = [
    "1",
    "-1.5e3",
    "null",
    "true",
    '""',
    '"a, b"',
    "{}",
    "[]",
    '{"a":1,"b":"x, y"}',
    '[1,2,"]"]',
    '{"a":{"b":{}},"c":[{"d":1},[]]}',
    '[{"pri":1},{"d":2}]',
    '{"note":"}","d":{"v":"{"},"pri":3}',
  ];

  test.each(payloads)("%s", (payload) => {
    const message = publication(`${head}${payload}}`);
    expect(message).toMatchObject({
      type: "trade",
      topic: "orders.eu",
      position: { epoch: "0badcafe", offset: 17 },
      payload: JSON.parse(payload),
    });
  });

  const further = [
    '"pri":8',
    '"d":5,"rd":true',
    '"sig":"a"',
    '"v":1',
    '"x":{"y":[1]}',
    '"x":[1]',
    '"d":5,"x":{}',
    '"sig":"a","x":"b"',
    ' "pri" : 8 ',
  ];

  test.each(payloads.flatMap((payload) => [...further, ' "pri":8'].map((fields) => [payload, fields])))(
    "%s with %s behind it",
    (payload, fields) => {
      const text = `${head}${payload},${fields}}`;
      const message = Message.read(readText(text) as Record<string, unknown>);
      const plain = JSON.parse(text);
      expect(message.payload ?? null).toEqual(plain.p);
      expect(message.priority).toBe(plain.pri ?? 5);
      expect(message.delivery?.number).toBe(plain.d);
      expect(message.isRedelivered).toBe(plain.rd ?? false);
    },
  );

  test("texts with escapes are read, and what looks like the end of a text is none", () => {
    for (const payload of [{ a: { b: 'a "quoted" }' } }, { a: {}, b: "\\" }, ['"', ['\\"']], 'a"', "\\"]) {
      const message = readText(`${head}${JSON.stringify(payload)}}`);
      const read = message instanceof Message ? message.decoded().payload : message.p;
      expect(read).toEqual(payload);
    }
    const text = `${head}{"a":{"b":"\\\\"},"c":"},"},"pri":8}`;
    expect(readText(text)).toEqual(JSON.parse(text));
  });

  test.each(["1}", "{}}", "[1]]", "[1}", '"a"b"', "{", "1,", "{},", '{"a":1}{"b":2}', "1 2", ""])(
    "%s is no payload, which shows when it is looked at",
    (payload) => {
      const look = () => {
        const message = readText(`${head}${payload}}`);
        if (!(message instanceof Message)) throw new Error("it must not be JSON");
        return message.decoded().payload;
      };
      let error: unknown;
      try {
        look();
      } catch (caught) {
        error = caught;
      }
      const isRefused = error instanceof TidewireError || error instanceof SyntaxError;
      expect(isRefused, String(error)).toBe(true);
    },
  );

  test("an empty type and an epoch that is none are left to the other reader", () => {
    for (const text of [
      '{"c":"U","t":"","tp":"a","p":1}',
      head.replace("0badcafe", "0BADCAFE"),
      head.replace("0badcafe", "0badcafx"),
    ]) {
      expect(readText(text.endsWith("}") ? text : `${text}1}`)).not.toBeInstanceOf(Message);
    }
  });
});
