/** The runners of the vectors in a page, which gets the vectors from the test. */

import { type Dialogue, play } from "../dialogue-runner.js";
import { judgeJson } from "../json-cases.js";
import type { MessageCase } from "../vectors.js";

const vectors = {
  /** What is wrong with dialogues, in both formats. */
  play: (dialogues: Dialogue[]) =>
    dialogues.flatMap((one) => [...play(one, "json"), ...play(one, "msgpack")]),
  /** What is wrong with messages of JSON. */
  readJson: (cases: MessageCase[]) => cases.flatMap((one) => judgeJson(one)),
};

export type Vectors = typeof vectors;

Object.assign(globalThis, { vectors });
