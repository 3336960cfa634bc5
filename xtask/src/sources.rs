//! Rules for Rust sources: `unsafe`, forgotten `dbg!`, and the parts of the standard library that the protocol
//! crates may use. Clippy limits the length of functions (`clippy.toml`).

use std::path::Path;

use crate::finding::Finding;
use crate::lexer::{Kind, Token, tokens};
use crate::tree::has_extension;

/// The findings in one file; none if it is not Rust.
pub(crate) fn check(path: &Path, text: &str) -> Vec<Finding> {
    if !has_extension(path, &["rs"]) {
        return Vec::new();
    }
    let tokens = tokens(text);
    let mut findings = forbidden_words(path, &tokens);
    if SANS_IO_SOURCES
        .iter()
        .any(|sources| path.starts_with(sources))
    {
        findings.extend(ambient_paths(path, &tokens));
    }
    findings
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
    let mut at = 0;
    while at < tokens.len() {
        // Tests may read files.
        if words(&tokens[at..], CFG_TEST) {
            at += CFG_TEST.len();
            at += item_length(&tokens[at..]);
            continue;
        }
        let modules = modules_of_std(&tokens[at..]);
        let ambient_modules = modules
            .into_iter()
            .filter(|token| is_one_of(token, AMBIENT_MODULES));
        let ambient_type = Some(&tokens[at]).filter(|token| is_one_of(token, AMBIENT_TYPES));
        for token in ambient_modules.chain(ambient_type) {
            let message = "a protocol crate reaches for its environment, \
                 pass the bytes, the time or the randomness in as arguments";
            findings.push(Finding::new(path, token.line, message));
        }
        at += 1;
    }
    findings
}

fn is_one_of(token: &Token<'_>, known: &[&str]) -> bool {
    matches!(token.kind, Kind::Word(word) if known.contains(&word))
}

/// The names after `std::` if the tokens begin with it: one name, or the first name of each path in braces.
fn modules_of_std<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<&'t Token<'a>> {
    if !words(tokens, &["std", ":", ":"]) {
        return Vec::new();
    }
    let mut modules = Vec::new();
    let mut depth = 0_usize;
    let mut begins_path = true;
    for token in &tokens[3..] {
        if begins_path && depth <= 1 {
            modules.push(token);
        }
        match token.kind {
            Kind::Mark(b'{') => depth += 1,
            Kind::Mark(b'}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            break;
        }
        begins_path = matches!(token.kind, Kind::Mark(b'{' | b','));
    }
    modules
}

/// How many tokens an item has, further attributes before it included: to its semicolon, or to the brace
/// that closes its body.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.kind {
            Kind::Mark(b'(' | b'[' | b'{') => depth += 1,
            Kind::Mark(b')' | b']') => depth = depth.saturating_sub(1),
            Kind::Mark(b'}') if depth > 1 => depth -= 1,
            Kind::Mark(b'}') => return index + 1,
            Kind::Mark(b';') if depth == 0 => return index + 1,
            _ => {}
        }
    }
    tokens.len()
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

/// The files that may hold `unsafe`, each audited and measured to need it. There is none.
const UNSAFE_FILES: &[&str] = &[];

const CFG_TEST: &[&str] = &["#", "[", "cfg", "(", "test", ")", "]"];

/// The crates that take bytes, time and randomness as arguments.
const SANS_IO_SOURCES: &[&str] = &[
    "crates/tidewire-wire/src",
    "crates/tidewire-http/src",
    "crates/tidewire-redis/src",
];

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

    #[test]
    fn modules_of_the_environment_are_found_in_groups() {
        let text = "use std::{\n fmt,\n fs::{self, File},\n io::{Read, env},\n thread,\n};\n\
             use std::collections::{BTreeMap, fs};\nuse crate::{net, process};\n";
        let lines: Vec<usize> = found("crates/tidewire-wire/src/a.rs", text)
            .iter()
            .map(|(line, _)| *line)
            .collect();
        assert_eq!(lines, [3, 5]);
    }

    #[test]
    fn what_follows_a_test_item_is_looked_at_again() {
        let text = "#[cfg(test)]\n#[allow(a)]\nuse std::{fs, net};\n\
             #[cfg(test)]\nfn f(a: [u8; 2]) { std::fs::read(p); { }\nstd::env::var(n); }\n\
             #[cfg(not(test))]\nuse std::fs;\n\
             #[cfg(test)]\nmod tests { use std::fs; }\nuse std::thread;\n";
        let lines: Vec<usize> = found("crates/tidewire-wire/src/a.rs", text)
            .iter()
            .map(|(line, _)| *line)
            .collect();
        assert_eq!(lines, [8, 11]);
    }
}
