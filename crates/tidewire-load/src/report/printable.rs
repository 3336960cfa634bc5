//! Text of others for a terminal or a page: what cannot be seen is written as an escape.
//!
//! A file or a peer chooses such text: control characters move a terminal's cursor and change its colours, characters
//! of bidirectional writing show text in another order, and invisible ones make two names look the same.
//! `packages/dashboard/src/printable.ts` escapes the same characters; a test of the dashboard compares both.

use std::borrow::Cow;

/// The text with `\u{1b}` in place of each character that cannot be seen, and of each control character but line
/// feeds and tabs.
///
/// ```
/// use tidewire_load::report::printable::printable;
///
/// assert_eq!(printable("a\u{1b}[2J\n"), "a\\u{1b}[2J\n");
/// assert_eq!(printable("абв €"), "абв €");
/// ```
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |character| matches!(character, '\n' | '\t'))
}

/// The same for a part of a line: line feeds are escaped, too.
#[must_use]
pub fn printable_line(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// JSON with an escape of JSON in place of each such character. Outside of its texts JSON has line feeds only.
#[must_use]
pub fn printable_json(json: &str) -> Cow<'_, str> {
    if !json
        .chars()
        .any(|letter| letter != '\n' && is_hidden(letter))
    {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len() + 64);
    for character in json.chars() {
        if character == '\n' || !is_hidden(character) {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    Cow::Owned(out)
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_bad = |character: char| is_hidden(character) && !is_kept(character);
    if !text.chars().any(is_bad) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_bad(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// Whether a character has no picture of its own: control characters, and the default ignorable and bidirectional ones
/// of Unicode. White space has none either, but a width.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || HIDDEN
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&character))
}

const HIDDEN: &[(char, char)] = &[
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{200b}', '\u{200f}'),
    ('\u{2028}', '\u{202e}'),
    ('\u{2060}', '\u{206f}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e0fff}'),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped() {
        for (text, shown) in [
            ("a\u{1b}[31mb", "a\\u{1b}[31mb"),
            ("a\rb\tc\u{9b}", "a\\u{d}b\tc\\u{9b}"),
            ("user.\u{202e}nimda", "user.\\u{202e}nimda"),
            (
                "a\u{200b}b\u{feff}\u{e0041}",
                "a\\u{200b}b\\u{feff}\\u{e0041}",
            ),
            ("цены.€ 日本 \\u{1b}", "цены.€ 日本 \\u{1b}"),
        ] {
            assert_eq!(printable(text), shown);
        }
        assert_eq!(printable("a\nb"), "a\nb");
        assert_eq!(printable_line("a\nb"), "a\\u{a}b");
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a": "\u{9b}\u{202e}\u{e0041} é\u{1b}\n"});
        let json = serde_json::to_string_pretty(&value).unwrap();
        let shown = printable_json(&json);
        assert!(
            shown
                .chars()
                .all(|letter| letter == '\n' || !is_hidden(letter)),
            "{shown}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&shown).unwrap(),
            value
        );
    }
}
