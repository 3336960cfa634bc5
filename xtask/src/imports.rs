//! Imports inside a crate: the modules of the same crate that a file uses.

use crate::lexer::{Kind, Token, tokens};

/// One use of something in the same crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Import {
    /// The names from the root of the crate on: modules first, then the item.
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// Whether the tests in a file are read, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InlineTests {
    Read,
    Skipped,
}

/// Each path in `text` that begins with `crate`, `super` or `self`. `module` is the path of the
/// file's own module.
pub(crate) fn imports(text: &str, module: &[String], tests: InlineTests) -> Vec<Import> {
    let tokens = tokens(text);
    let mut reader = Reader {
        tokens: &tokens,
        at: 0,
        module: module.to_vec(),
        tests,
        depth: 0,
        inline: Vec::new(),
        imports: Vec::new(),
    };
    while reader.at < tokens.len() {
        reader.step();
    }
    reader.imports
}

struct Reader<'a> {
    tokens: &'a [Token<'a>],
    at: usize,
    /// The path of the module at hand, inline ones included.
    module: Vec<String>,
    tests: InlineTests,
    /// Open braces.
    depth: usize,
    /// The depth of each inline module around the token at hand.
    inline: Vec<usize>,
    imports: Vec<Import>,
}

impl<'a> Reader<'a> {
    fn step(&mut self) {
        match self.kind(0) {
            Some(Kind::Word("mod")) if self.kind(2) == Some(Kind::Mark(b'{')) => self.enter(),
            Some(Kind::Mark(b'{')) => {
                self.depth += 1;
                self.at += 1;
            }
            Some(Kind::Mark(b'}')) => {
                if self.inline.pop_if(|depth| *depth == self.depth).is_some() {
                    self.module.pop();
                }
                self.depth = self.depth.saturating_sub(1);
                self.at += 1;
            }
            Some(Kind::Word(word)) if self.is_separator(1) && !self.is_inside_path() => {
                self.path(word);
            }
            _ => self.at += 1,
        }
    }

    /// Enters an inline module, or passes over one that holds tests.
    fn enter(&mut self) {
        let Some(Kind::Word(name)) = self.kind(1) else {
            self.at += 1;
            return;
        };
        self.at += 3;
        self.depth += 1;
        if name.ends_with("tests") && self.tests == InlineTests::Skipped {
            let inside = self.depth;
            while self.depth >= inside && self.at < self.tokens.len() {
                match self.kind(0) {
                    Some(Kind::Mark(b'{')) => self.depth += 1,
                    Some(Kind::Mark(b'}')) => self.depth -= 1,
                    _ => {}
                }
                self.at += 1;
            }
            return;
        }
        self.inline.push(self.depth);
        self.module.push(name.to_owned());
    }

    /// Reads a path that starts at the token at hand.
    fn path(&mut self, first: &str) {
        let mut base = match first {
            "crate" => Vec::new(),
            "self" => self.module.clone(),
            "super" => self.parent(&self.module),
            _ => {
                self.at += 1;
                return;
            }
        };
        self.at += 3;
        while self.kind(0) == Some(Kind::Word("super")) && self.is_separator(1) {
            base = self.parent(&base);
            self.at += 3;
        }
        self.branch(base);
    }

    /// Reads what follows `::`: names, or a group of paths.
    fn branch(&mut self, mut path: Vec<String>) {
        let line = self.tokens.get(self.at).map_or(1, |token| token.line);
        loop {
            match self.kind(0) {
                Some(Kind::Word(name)) => {
                    path.push(name.to_owned());
                    self.at += 1;
                    if !self.is_separator(0) {
                        break;
                    }
                    self.at += 2;
                }
                Some(Kind::Mark(b'{')) => {
                    self.at += 1;
                    return self.group(&path);
                }
                _ => break,
            }
        }
        self.imports.push(Import { path, line });
    }

    fn group(&mut self, prefix: &[String]) {
        while let Some(kind) = self.kind(0) {
            match kind {
                Kind::Mark(b'}') => {
                    self.at += 1;
                    return;
                }
                Kind::Word("self") => {
                    let line = self.tokens[self.at].line;
                    let path = prefix.to_vec();
                    self.imports.push(Import { path, line });
                    self.at += 1;
                }
                Kind::Word("as") => self.at += 2,
                Kind::Word(_) => self.branch(prefix.to_vec()),
                _ => self.at += 1,
            }
        }
    }

    fn parent(&self, module: &[String]) -> Vec<String> {
        module[..module.len().saturating_sub(1)].to_vec()
    }

    fn kind(&self, ahead: usize) -> Option<Kind<'a>> {
        self.tokens.get(self.at + ahead).map(|token| token.kind)
    }

    /// Whether `::` stands there.
    fn is_separator(&self, ahead: usize) -> bool {
        let colon = Some(Kind::Mark(b':'));
        self.kind(ahead) == colon && self.kind(ahead + 1) == colon
    }

    /// Whether `::` stands before the token at hand.
    fn is_inside_path(&self) -> bool {
        self.at > 0
            && self.tokens[self.at - 1].kind == Kind::Mark(b':')
            && self.at > 1
            && self.tokens[self.at - 2].kind == Kind::Mark(b':')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let module = ["topics", "hub"].map(str::to_owned);
        imports(text, &module, InlineTests::Skipped)
            .into_iter()
            .map(|import| format!("{}: {}", import.line, import.path.join("::")))
            .collect()
    }

    #[test]
    fn paths_are_counted_from_the_root_of_the_crate() {
        let text = "use crate::model::Position;\nuse super::outlet::{Outlet, Target as T};\n\
                    use self::ring::{self, Ring};\nfn f() { crate::work::spend(); std::mem::take(x) }\n\
                    use super::super::state::*;\n// use crate::lost::X;\n";
        assert_eq!(
            found(text),
            [
                "1: model::Position",
                "2: topics::outlet::Outlet",
                "2: topics::outlet::Target",
                "3: topics::hub::ring",
                "3: topics::hub::ring::Ring",
                "4: work::spend",
                "5: state",
            ]
        );
    }

    #[test]
    fn groups_at_the_root_and_inside_groups_are_read() {
        assert_eq!(
            found("use crate::{model::{A, calls::B}, state};\nuse crate::clock::now;"),
            [
                "1: model::A",
                "1: model::calls::B",
                "1: state",
                "2: clock::now",
            ]
        );
    }

    #[test]
    fn tests_may_use_what_they_want_and_other_inline_modules_have_a_parent_of_their_own() {
        let text = "pub mod cost { use super::Meter; }\n#[cfg(test)]\nmod tests { fn f() { {} } \
                    use crate::server::Server; }\nuse super::name;";
        assert_eq!(found(text), ["1: topics::hub::Meter", "4: topics::name"]);
    }
}
