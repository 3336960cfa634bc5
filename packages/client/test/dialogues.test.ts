import { describe, expect, test } from "vitest";
import { type Dialogue, play } from "./dialogue-runner.js";
import { vectors } from "./vectors.js";

const FILES = ["client-dialogues", "topics", "recovery", "history"];

describe.each(FILES)("%s", (file) => {
  const dialogues = vectors<Dialogue>(file).filter(({ side }) => side === "client");
  test.each(dialogues)("$name", (dialogue) => {
    expect(play(dialogue, "json")).toEqual([]);
    expect(play(dialogue, "msgpack")).toEqual([]);
  });
});
