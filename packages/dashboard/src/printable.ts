/**
 * Text of others: what cannot be seen is written as an escape, so that no two names look the same and none shows text in
 * another order. `crates/tidewire-load/src/report/printable.rs` escapes the same characters for terminals.
 */

const HIDDEN = /(?![\n\t])[\p{Cc}\p{Default_Ignorable_Code_Point}\p{Zl}\p{Zp}\u{fff9}-\u{fffb}]/gu;

/** The text with `\u{202e}` in place of each character that cannot be seen, but for line feeds and tabs. */
export function printable(text: string): string {
  return text.replace(HIDDEN, (letter) => `\\u{${letter.codePointAt(0)!.toString(16)}}`);
}
