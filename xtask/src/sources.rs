//! Rules for Rust sources: the size of functions, `unsafe`, forgotten `dbg!`, and what the protocol crate
//! may use of the standard library.

use std::path::Path;

use crate::lexer::{Kind, Token, tokens};
use crate::tidy::Finding;
use crate::tree::has_extension;

/// The findings in one file; none if it is not Rust.
pub(crate) fn check(path: &Path, text: &str) -> Vec<Finding> {
    if !has_extension(path, &["rs"]) {
        return Vec::new();
    }
    let tokens = tokens(text);
    let mut findings = long_functions(path, &tokens);
    findings.extend(forbidden_words(path, &tokens));
    if path.starts_with(SANS_IO_SOURCES) {
        findings.extend(ambient_paths(path, &tokens));
    }
    findings
}

fn long_functions(path: &Path, tokens: &[Token<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        // A function pointer type, `fn(u8)`, has no name and no body.
        let (Kind::Word("fn"), Kind::Word(name)) = (pair[0].kind, pair[1].kind) else {
            continue;
        };
        let Some(last_line) = body_end(&tokens[index + 2..]) else {
            continue;
        };
        let lines = last_line - pair[0].line + 1;
        if lines > FUNCTION_LINES_MAX {
            let message = format!(
                "fn {name} has {lines} lines, split it: the budget is {FUNCTION_LINES_MAX}"
            );
            findings.push(Finding::new(path, pair[0].line, message));
        }
    }
    findings
}

/// The line of the brace that closes the body, from the tokens after the function's name; `None` for a
/// declaration, which ends in a semicolon.
fn body_end(tokens: &[Token<'_>]) -> Option<usize> {
    let mut open = Vec::new();
    let mut in_body = false;
    let mut before = None;
    for token in tokens {
        if let Kind::Mark(mark) = token.kind {
            match mark {
                b';' if open.is_empty() => return None,
                b'(' | b'[' => open.push(mark),
                b'{' => {
                    // After `<` it is a const argument, as in `Buffer<{ N }>`.
                    in_body |= open.is_empty() && before != Some(b'<');
                    open.push(mark);
                }
                b')' | b']' | b'}' => {
                    open.pop()?;
                    if in_body && open.is_empty() {
                        return Some(token.line);
                    }
                }
                _ => {}
            }
            before = Some(mark);
        } else {
            before = None;
        }
    }
    None
}

fn forbidden_words(path: &Path, tokens: &[Token<'_>]) -> Vec<Finding> {
    let may_be_unsafe = UNSAFE_FILES.iter().any(|file| path == Path::new(file));
    let mut findings = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        let is_macro = tokens
            .get(index + 1)
            .is_some_and(|next| next.kind == Kind::Mark(b'!'));
        let message = match token.kind {
            Kind::Word("unsafe") if !may_be_unsafe => {
                "unsafe, write it without or add the file to UNSAFE_FILES in xtask/src/sources.rs"
            }
            Kind::Word("dbg") if is_macro => "dbg!, remove it",
            _ => continue,
        };
        findings.push(Finding::new(path, token.line, message));
    }
    findings
}

fn ambient_paths(path: &Path, tokens: &[Token<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        // The tests of a module stand at its end, and may read files.
        if words(&tokens[index..], &["cfg", "(", "test", ")"]) {
            break;
        }
        let Kind::Word(word) = token.kind else {
            continue;
        };
        let is_ambient = AMBIENT_TYPES.contains(&word)
            || AMBIENT_MODULES
                .iter()
                .any(|module| words(&tokens[index..], &["std", ":", ":", module]));
        if is_ambient {
            let message = "the protocol crate reaches for its environment, \
                 pass the bytes, the time or the randomness in as arguments";
            findings.push(Finding::new(path, token.line, message));
        }
    }
    findings
}

/// Whether the tokens begin with these words and marks.
fn words(tokens: &[Token<'_>], expected: &[&str]) -> bool {
    let matches = |(token, expected): (&Token<'_>, &&str)| match token.kind {
        Kind::Word(word) => word == *expected,
        Kind::Mark(mark) => expected.as_bytes() == [mark],
        Kind::Text(_) => false,
    };
    tokens.len() >= expected.len() && tokens.iter().zip(expected).all(matches)
}

/// What fits on a screen.
const FUNCTION_LINES_MAX: usize = 70;

/// The files that may hold `unsafe`, each audited and measured to need it. There is none.
const UNSAFE_FILES: &[&str] = &[];

/// The crate that takes bytes, time and randomness as arguments.
const SANS_IO_SOURCES: &str = "crates/tidewire-wire/src";

const AMBIENT_TYPES: &[&str] = &["Instant", "SystemTime", "RandomState"];
const AMBIENT_MODULES: &[&str] = &["env", "fs", "net", "process", "thread"];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let findings = check(Path::new(path), text);
        findings
            .into_iter()
            .map(|finding| (finding.line, finding.message))
            .collect()
    }

    fn function(head: &str, lines: usize) -> String {
        format!(
            "\n{head} {{\n{}}}\n",
            "    let s = \"}\"; // }\n".repeat(lines - 2)
        )
    }

    #[test]
    fn a_function_is_counted_from_its_head_to_its_closing_brace() {
        for head in [
            "fn f()",
            "pub(crate) async fn f<'a>(a: &'a [u8; 3], g: fn(u8) -> u8) -> Result<(), [u8; { 1 + 1 }]>",
            "const fn f(a: Buffer<{ 1 }>) -> Buffer<{ 2 }> where T: Into<Buffer<{ 3 }>>,",
        ] {
            assert_eq!(
                found("a.rs", &function(head, FUNCTION_LINES_MAX)),
                [],
                "{head}"
            );
            let long = found("a.rs", &function(head, FUNCTION_LINES_MAX + 1));
            assert_eq!(long.len(), 1, "{head}");
            assert_eq!(long[0].0, 2);
            assert!(
                long[0].1.starts_with("fn f has 71 lines, "),
                "{}",
                long[0].1
            );
        }
    }

    #[test]
    fn declarations_and_function_types_have_no_size() {
        let gap = "\n".repeat(FUNCTION_LINES_MAX + 1);
        assert_eq!(
            found("a.rs", &format!("trait T {{ fn f(a: [u8; 2]); {gap} }}")),
            []
        );
        assert_eq!(
            found("a.rs", &format!("type F = fn(u8); {gap} struct S {{}}")),
            []
        );
        assert_eq!(found("a.py", &function("fn f()", 200)), []);
    }

    #[test]
    fn an_inner_function_is_counted_with_its_outer_one_and_by_itself() {
        let inner = function("fn inner()", FUNCTION_LINES_MAX + 1);
        let names: Vec<_> = found("a.rs", &format!("fn outer() {{{inner}}}"))
            .into_iter()
            .map(|(_, message)| message.split(' ').nth(1).unwrap().to_owned())
            .collect();
        assert_eq!(names, ["outer", "inner"]);
    }

    #[test]
    fn unsafe_and_dbg_are_found_where_they_are_code() {
        let keyword = "unsafe";
        let text = format!(
            "// {keyword}\nlet a = \"{keyword} dbg!\";\n{keyword} {{ }}\ndbg!(a);\ndbg(a);"
        );
        let lines: Vec<usize> = found("a.rs", &text).iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [3, 4]);
    }

    #[test]
    fn the_protocol_crate_reads_no_clock_and_no_file_outside_its_tests() {
        let text = "use std::time::Duration;\nuse std::time::Instant;\nfn f() { std::fs::read(p); }\n\
             fn g(a: std::net::IpAddr) {}\n#[cfg(test)]\nmod tests { use std::fs; }\n";
        let lines: Vec<usize> = found("crates/tidewire-wire/src/a.rs", text)
            .iter()
            .map(|(line, _)| *line)
            .collect();
        assert_eq!(lines, [2, 3, 4]);
        assert_eq!(found("crates/tidewire-net/src/a.rs", text), []);
    }
}
