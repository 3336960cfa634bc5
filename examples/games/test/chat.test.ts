import { expect, test } from "vitest";
import { CHAT_LIMITS, Chat } from "../src/core/chat.js";
import { Refusal } from "../src/core/errors.js";

function code(action: () => unknown): string | undefined {
  try {
    action();
  } catch (error) {
    if (error instanceof Refusal) return error.code;
    throw error;
  }
  return undefined;
}

test("keeps the newest lines, without control characters", () => {
  const chat = new Chat();
  expect(chat.post("ada", "  hello\u0000\u001b[31m\nall ", 5).text).toBe("hello [31m all");
  for (let n = 0; n < CHAT_LIMITS.keptLines; n += 1) chat.post(`player ${n}`, `line ${n}`, 10);
  expect(chat.lines).toHaveLength(CHAT_LIMITS.keptLines);
  expect(chat.lines[0]?.text).toBe("line 0");
});

test("refuses empty lines and long ones, by characters and not by UTF-16 units", () => {
  const chat = new Chat();
  expect(code(() => chat.post("ada", " \n ", 0))).toBe("INVALID_ARGUMENT");
  expect(code(() => chat.post("ada", "♞".repeat(CHAT_LIMITS.lengthMax + 1), 0))).toBe("CHAT_TOO_LONG");
  expect(code(() => chat.post("ada", "🐴".repeat(CHAT_LIMITS.lengthMax), 0))).toBeUndefined();
});

test("limits the rate of each player", () => {
  const chat = new Chat();
  for (let n = 0; n < CHAT_LIMITS.linesPerWindow; n += 1) chat.post("ada", `${n}`, n * 100);
  expect(code(() => chat.post("ada", "more", 1_000))).toBe("CHAT_TOO_FAST");
  expect(code(() => chat.post("bob", "hi", 1_000))).toBeUndefined();
  expect(code(() => chat.post("ada", "later", CHAT_LIMITS.windowMs + 1))).toBeUndefined();
  expect(chat.lines.map(({ text }) => text)).not.toContain("more");
});

test("mutes who goes on in spite of the rate limit, for a time", () => {
  const chat = new Chat();
  for (let n = 0; n < CHAT_LIMITS.linesPerWindow; n += 1) chat.post("ada", `${n}`, 0);
  for (let n = 0; n < CHAT_LIMITS.strikesMax; n += 1)
    expect(code(() => chat.post("ada", "more", 0))).toBe("CHAT_TOO_FAST");
  expect(code(() => chat.post("ada", "more", CHAT_LIMITS.windowMs + 1))).toBe("MUTED");
  expect(chat.mutedUntilMs("ada", 0)).toBe(CHAT_LIMITS.muteMs);
  expect(code(() => chat.post("ada", "back", CHAT_LIMITS.muteMs))).toBeUndefined();
});

test("keeps mutes and lines over a restart", () => {
  const chat = new Chat();
  chat.post("bob", "hello", 1);
  chat.mute("ada", 5_000, 0);
  const again = Chat.restore(JSON.parse(JSON.stringify(chat.save())));
  expect(again.lines).toEqual(chat.lines);
  expect(code(() => again.post("ada", "hi", 4_999))).toBe("MUTED");
  again.unmute("ada");
  expect(code(() => again.post("ada", "hi", 4_999))).toBeUndefined();
});

test("remembers a bounded number of muted players", () => {
  const chat = new Chat();
  for (let n = 0; n < CHAT_LIMITS.mutedMax + 5; n += 1) chat.mute(`player ${n}`, 1_000 + n, 0);
  expect(Object.keys(chat.muted(0))).toHaveLength(CHAT_LIMITS.mutedMax);
  expect(chat.mutedUntilMs("player 0", 0)).toBeUndefined();
});
