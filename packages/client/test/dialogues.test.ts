import { describe, expect, test } from "vitest";
import { play } from "./dialogue-runner.js";
import { DIALOGUES, dialoguesOf } from "./vectors.js";

describe.each(DIALOGUES)("%s", (file) => {
  test.each(dialoguesOf(file))("$name", (dialogue) => {
    expect(play(dialogue, "json")).toEqual([]);
    expect(play(dialogue, "msgpack")).toEqual([]);
  });
});
