import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { printable } from "../src/printable.js";

/** The terminal escapes the same characters; its list is in Rust. */
const TWIN = new URL("../../../crates/tidewire-load/src/report/printable.rs", import.meta.url);

test("the dashboard and the terminal escape the same characters", () => {
  const ranges = readFileSync(TWIN, "utf8").matchAll(/\('\\u\{([0-9a-f]+)\}', '\\u\{([0-9a-f]+)\}'\)/g);
  const hidden = new Set<number>();
  for (const [, first, last] of ranges) {
    for (let code = parseInt(first!, 16); code <= parseInt(last!, 16); code += 1) hidden.add(code);
  }
  expect(hidden.size).toBeGreaterThan(4_000);
  const differing: string[] = [];
  for (let code = 0; code <= 0x10ffff; code += 1) {
    // Half of a pair is no character in Rust.
    if (code >= 0xd800 && code <= 0xdfff) continue;
    const isControl = code < 0x20 || (code >= 0x7f && code < 0xa0);
    const isEscaped = (isControl && code !== 0x09 && code !== 0x0a) || hidden.has(code);
    const letter = String.fromCodePoint(code);
    const expected = isEscaped ? `\\u{${code.toString(16)}}` : letter;
    if (printable(letter) !== expected) differing.push(code.toString(16));
  }
  expect(differing).toEqual([]);
});
