//! Escaping of text for HTML, SVG and XML, and the code in sentences.

/// Text in the form of HTML and XML, also inside quoted attributes. Control characters and others that XML
/// does not allow become spaces.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push(' '),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The parts of a sentence, and whether each is code, which stands between backticks. A backtick without a second one is text.
pub(super) fn parts(text: &str) -> Vec<(&str, bool)> {
    let parts: Vec<&str> = text.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return vec![(text, false)];
    }
    let numbered = parts.into_iter().enumerate();
    numbered
        .map(|(index, part)| (part, index % 2 == 1))
        .collect()
}
