//! Just enough of Rust's lexical grammar to see its words and marks without being misled by comments,
//! strings, characters and lifetimes.

/// One token and the line it begins on, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) line: usize,
    pub(crate) kind: Kind<'a>,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    /// An identifier, a keyword or a number. A raw identifier keeps its `r#`.
    Word(&'a str),
    /// The inside of a string literal of any kind, escapes as written.
    Text(&'a str),
    /// Any other visible ASCII character, one at a time.
    Mark(u8),
}

/// The tokens of a source file. Text that is not valid Rust gives some tokens, never a panic.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut lexer = Lexer {
        source,
        bytes: source.as_bytes(),
        at: 0,
        line: 1,
        tokens: Vec::new(),
    };
    while let Some(byte) = lexer.peek(0) {
        lexer.step(byte);
    }
    lexer.tokens
}

struct Lexer<'a> {
    source: &'a str,
    bytes: &'a [u8],
    at: usize,
    line: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Lexer<'a> {
    fn step(&mut self, byte: u8) {
        match byte {
            b'/' if self.peek(1) == Some(b'/') => self.skip_line(),
            b'/' if self.peek(1) == Some(b'*') => self.skip_block_comment(),
            b'"' => self.take_string(),
            b'\'' => self.skip_character_or_lifetime(),
            _ if is_word_byte(byte) => self.take_word(),
            _ => {
                if byte.is_ascii_graphic() {
                    self.push(Kind::Mark(byte));
                }
                self.advance(1);
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    /// Moves on and keeps the line number; everything that consumes bytes comes through here.
    fn advance(&mut self, count: usize) {
        let end = (self.at + count).min(self.bytes.len());
        self.line += self.bytes[self.at..end]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        self.at = end;
    }

    fn push(&mut self, kind: Kind<'a>) {
        self.tokens.push(Token {
            line: self.line,
            kind,
        });
    }

    fn skip_line(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n') {
            self.advance(1);
        }
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0_usize;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    self.advance(2);
                }
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    self.advance(2);
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.advance(1),
            }
        }
    }

    fn take_string(&mut self) {
        let start = self.at + 1;
        let mut end = start;
        while let Some(&byte) = self.bytes.get(end) {
            match byte {
                b'"' => break,
                b'\\' => end += 2,
                _ => end += 1,
            }
        }
        self.take_text(start, end, 1);
    }

    /// A raw string whose opening quote stands `hashes` bytes ahead.
    fn take_raw_string(&mut self, hashes: usize) {
        let start = self.at + hashes + 1;
        let close = format!("\"{}", "#".repeat(hashes));
        let length = self.source.get(start..).and_then(|rest| rest.find(&close));
        let end = length.map_or(self.bytes.len(), |length| start + length);
        self.take_text(start, end, close.len());
    }

    fn take_text(&mut self, start: usize, end: usize, close: usize) {
        let end = end.min(self.bytes.len());
        self.push(Kind::Text(self.source.get(start..end).unwrap_or_default()));
        self.advance(end + close - self.at);
    }

    fn skip_character_or_lifetime(&mut self) {
        let inside = self
            .source
            .get(self.at + 1..)
            .and_then(|rest| rest.chars().next());
        let width = inside.map_or(0, char::len_utf8);
        if inside == Some('\\') {
            // The escaped character itself may be a quote; the closing quote comes after it.
            self.advance(3);
            while self
                .peek(0)
                .is_some_and(|byte| byte != b'\'' && byte != b'\n')
            {
                self.advance(1);
            }
            self.advance(1);
        } else if self.peek(1 + width) == Some(b'\'') {
            self.advance(width + 2);
        } else {
            self.advance(1);
            while self.peek(0).is_some_and(is_word_byte) {
                self.advance(1);
            }
        }
    }

    fn take_word(&mut self) {
        let length = self.bytes[self.at..]
            .iter()
            .take_while(|&&byte| is_word_byte(byte))
            .count();
        let word = &self.source[self.at..self.at + length];
        let after = &self.bytes[self.at + length..];
        let hashes = after.iter().take_while(|&&byte| byte == b'#').count();
        let is_string = after.get(hashes) == Some(&b'"');
        match word {
            "r" | "br" | "cr" if is_string => {
                self.advance(length);
                self.take_raw_string(hashes);
            }
            "b" | "c" if is_string && hashes == 0 => {
                self.advance(length);
                self.take_string();
            }
            "b" if after.first() == Some(&b'\'') => {
                self.advance(length);
                self.skip_character_or_lifetime();
            }
            "r" if hashes == 1 && after.get(1).copied().is_some_and(is_word_byte) => {
                let name = after[1..]
                    .iter()
                    .take_while(|&&byte| is_word_byte(byte))
                    .count();
                self.push(Kind::Word(
                    &self.source[self.at..self.at + length + 1 + name],
                ));
                self.advance(length + 1 + name);
            }
            _ => {
                self.push(Kind::Word(word));
                self.advance(length);
            }
        }
    }
}

/// Letters beyond ASCII count as parts of words: no mark that matters here is one of them.
fn is_word_byte(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric() || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(source: &str) -> String {
        let show = |token: &Token<'_>| match token.kind {
            Kind::Word(word) => word.to_owned(),
            Kind::Text(text) => format!("\"{text}\""),
            Kind::Mark(mark) => char::from(mark).to_string(),
        };
        tokens(source)
            .iter()
            .map(show)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn comments_are_skipped_and_block_comments_nest() {
        assert_eq!(
            shown("a // { fn\nb /* { /* } */ fn */ c /// {\nd"),
            "a b c d"
        );
    }

    #[test]
    fn strings_keep_their_text_and_hide_their_braces() {
        assert_eq!(
            shown(r#"a("{ \" }", b"\\", c"x") z"#),
            r#"a ( "{ \" }" , "\\" , "x" ) z"#
        );
        assert_eq!(
            shown("r\"\\\" + r#\"a\"b\"# br##\"}\"#\"## z"),
            "\"\\\" + \"a\"b\" \"}\"#\" z"
        );
    }

    #[test]
    fn characters_are_told_from_lifetimes() {
        assert_eq!(shown(r"'{' '\'' '\\' b'}' b'\'' '\u{7b}' 'é' x"), "x");
        assert_eq!(
            shown("&'a str, 'outer: loop {} <'_>"),
            "& str , : loop { } < >"
        );
    }

    #[test]
    fn raw_identifiers_are_no_keywords() {
        assert_eq!(shown("r#fn r#mod fn"), "r#fn r#mod fn");
    }

    #[test]
    fn lines_count_through_every_kind_of_token() {
        let source = "a\n/* \n */ \"x\ny\" b\nr#\"\n\n\"# '\\n' c";
        let lines: Vec<usize> = tokens(source).iter().map(|token| token.line).collect();
        assert_eq!(lines, [1, 3, 4, 5, 7]);
    }

    #[test]
    fn unfinished_text_hides_the_rest_alone() {
        for source in [
            "\"a", "\"a\\", "r#\"a", "/* a", "'", "'\\", "b'", "r#", "'\\é", "\"\\é", "é'é",
        ] {
            let text = format!("fn {source}");
            assert_eq!(tokens(&text)[0].kind, Kind::Word("fn"), "{source}");
        }
        for open in ["\"a", "\"a\\", "r#\"a", "/* a"] {
            let text = format!("{open} lost");
            let is_lost = |token: &Token<'_>| token.kind == Kind::Word("lost");
            assert!(!tokens(&text).iter().any(is_lost), "{open} hides the rest");
        }
    }
}
