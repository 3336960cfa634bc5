//! The Rust files of the packages: the modules that each declares, and the paths that it uses. Read with `syn`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::finding::Finding;
use crate::tree::Tree;

/// The files that were read, by their path from the root of the repository.
pub(crate) type Sources = BTreeMap<PathBuf, Source>;

/// One file.
#[derive(Default)]
pub(crate) struct Source {
    /// The paths that it uses.
    pub(crate) uses: Vec<Use>,
    /// The modules that it declares in files of their own.
    pub(crate) files: Vec<Declaration>,
}

/// One path of at least two names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Use {
    /// The names. A path inside the crate begins with `crate`, also where the file wrote `super` or `self`.
    pub(crate) path: Vec<String>,
    /// The name that a `use` makes of it for this file's module and those below; `None` for any other path.
    pub(crate) name: Option<String>,
    /// Whether it only passes the name on, as `pub use` does.
    pub(crate) is_export: bool,
    /// Whether only tests see it.
    pub(crate) is_test: bool,
    pub(crate) line: usize,
}

/// A file that another one names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Declaration {
    /// `mod name;`: the inline modules around it, then its name.
    Module(Vec<String>),
    /// `#[path = "…"] mod name;` or `include!("…")`: a path from the folder of the file.
    Path(String),
}

/// Reads every Rust file of the repository below one of these folders; a finding for each that is no Rust.
pub(crate) fn read(tree: &Tree, folders: &[&Path]) -> (Sources, Vec<Finding>) {
    let is_inside = |path: &&PathBuf| folders.iter().any(|folder| path.starts_with(folder));
    let is_rust = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "rs");
    let (mut sources, mut findings) = (Sources::new(), Vec::new());
    for path in tree.paths.iter().filter(is_rust).filter(is_inside) {
        match parse(&tree.text(path).unwrap_or_default(), &module_path(path)) {
            Ok(source) => _ = sources.insert(path.clone(), source),
            Err(error) => findings.push(Finding::new(
                path,
                error.span().start().line,
                error.to_string(),
            )),
        }
    }
    (sources, findings)
}

/// The path of a file's module from the root of its crate; empty for a root.
pub(crate) fn module_path(path: &Path) -> Vec<String> {
    let stem = path.with_extension("");
    let names = stem.iter().map(|part| part.to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    let start = names
        .iter()
        .position(|name| SOURCE_FOLDERS.contains(&name.as_str()));
    let mut inside = names[start.map_or(0, |start| start + 1)..].to_vec();
    let is_root = inside.len() == 1 && ["lib", "main"].contains(&inside[0].as_str());
    if is_root || inside.last().is_some_and(|last| last == "mod") {
        inside.pop();
    }
    inside
}

/// Reads the text of a file whose module has this path.
pub(crate) fn parse(text: &str, module: &[String]) -> syn::Result<Source> {
    let mut reader = Reader {
        module: module.to_vec(),
        depth: module.len(),
        is_test: module.iter().any(|name| name.ends_with("tests")),
        source: Source::default(),
    };
    reader.visit_file(&syn::parse_file(text)?);
    let Source { uses, files } = &mut reader.source;
    // A path may also begin with a module of the file itself.
    let is_own = |name: &String| files.contains(&Declaration::Module(vec![name.clone()]));
    for used in uses.iter_mut().filter(|used| is_own(&used.path[0])) {
        let root = ["crate".to_owned()].into_iter().chain(module.to_vec());
        used.path.splice(..0, root);
    }
    Ok(reader.source)
}

struct Reader {
    /// The path of the module at hand, inline ones included.
    module: Vec<String>,
    /// How much of it is the file's own path.
    depth: usize,
    is_test: bool,
    source: Source,
}

impl Reader {
    fn used(&mut self, path: &[(String, Span)], name: Option<String>, is_export: bool) {
        let [(first, _), .., (_, last)] = path else {
            return;
        };
        let mut names = vec!["crate".to_owned()];
        match first.as_str() {
            "self" | "super" => names.extend_from_slice(&self.module),
            "crate" => {}
            _ => names.clear(),
        }
        for (name, _) in path {
            match name.as_str() {
                "super" => drop(names.pop()),
                "self" => {}
                "crate" if !names.is_empty() => {}
                name => names.push(name.to_owned()),
            }
        }
        self.source.uses.push(Use {
            path: names,
            name: name.filter(|_| self.module.len() == self.depth),
            is_export,
            is_test: self.is_test,
            line: last.start().line,
        });
    }

    fn tree(&mut self, tree: &syn::UseTree, path: &mut Vec<(String, Span)>, is_export: bool) {
        let before = path.len();
        let mut add = |ident: &syn::Ident| path.push((ident.to_string(), ident.span()));
        match tree {
            syn::UseTree::Path(part) => {
                add(&part.ident);
                self.tree(&part.tree, path, is_export);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.tree(tree, path, is_export);
                }
            }
            syn::UseTree::Name(name) => {
                add(&name.ident);
                let own = path.iter().rev().find(|(name, _)| name != "self");
                let own = own.map(|(name, _)| name.clone());
                self.used(path, own, is_export);
            }
            syn::UseTree::Rename(rename) => {
                add(&rename.ident);
                self.used(path, Some(rename.rename.to_string()), is_export);
            }
            syn::UseTree::Glob(_) => self.used(path, None, is_export),
        }
        path.truncate(before);
    }

    /// The paths inside a macro's arguments, which have no grammar: `crate`, `super` or `self`, and what follows.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<(String, Span)> = Vec::new();
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    let name = ident.to_string();
                    if path.pop_if(|(last, _)| last == "::").is_none() {
                        self.used(&std::mem::take(&mut path), None, false);
                    }
                    let is_start = ["crate", "super", "self"].contains(&name.as_str());
                    if is_start || !path.is_empty() {
                        path.push((name, ident.span()));
                    }
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' && !path.is_empty() => {
                    if path.last().is_none_or(|(last, _)| last != "::") {
                        path.push(("::".to_owned(), mark.span()));
                    }
                }
                other => {
                    path.pop_if(|(last, _)| last == "::");
                    self.used(&std::mem::take(&mut path), None, false);
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.used(&path, None, false);
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let before = self.is_test;
        self.is_test |= attributes(item).iter().any(is_cfg_test);
        visit::visit_item(self, item);
        self.is_test = before;
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let name = module.ident.to_string();
        let name = name.strip_prefix("r#").unwrap_or(&name).to_owned();
        let before = self.is_test;
        self.is_test |= name.ends_with("tests");
        self.module.push(name);
        if module.content.is_none() {
            self.source
                .files
                .push(match module.attrs.iter().find_map(path_of) {
                    Some(path) => Declaration::Path(path),
                    None => Declaration::Module(self.module[self.depth..].to_vec()),
                });
        }
        visit::visit_item_mod(self, module);
        self.module.pop();
        self.is_test = before;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let is_export = !matches!(item.vis, syn::Visibility::Inherited);
        self.tree(&item.tree, &mut Vec::new(), is_export);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|segment| &segment.ident);
        let names: Vec<_> = segments
            .map(|ident| (ident.to_string(), ident.span()))
            .collect();
        self.used(&names, None, false);
        visit::visit_path(self, path);
    }

    /// `pub(in crate::…)` uses nothing.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        visit::visit_macro(self, call);
        if call.path.is_ident("include")
            && let Ok(file) = call.parse_body::<syn::LitStr>()
        {
            self.source.files.push(Declaration::Path(file.value()));
        }
        self.tokens(call.tokens.clone());
    }
}

fn attributes(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_cfg_test(attribute: &syn::Attribute) -> bool {
    let is_test =
        |list: &syn::MetaList| list.path.is_ident("cfg") && list.tokens.to_string() == "test";
    attribute.meta.require_list().is_ok_and(is_test)
}

/// The value of `#[path = "…"]`.
fn path_of(attribute: &syn::Attribute) -> Option<String> {
    let pair = attribute.meta.require_name_value().ok()?;
    match &pair.value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(file),
            ..
        }) if pair.path.is_ident("path") => Some(file.value()),
        _ => None,
    }
}

/// The folders of a package whose files cargo compiles.
pub(crate) const SOURCE_FOLDERS: &[&str] = &["src", "tests", "benches", "examples"];

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        let source = parse(text, &["topics", "hub"].map(str::to_owned)).unwrap();
        let uses = source
            .uses
            .iter()
            .filter(|used| !used.is_test && used.path[0] != "std");
        uses.map(|used| format!("{}: {}", used.line, used.path[1..].join("::")))
            .collect()
    }

    #[test]
    fn paths_are_counted_from_the_root_of_the_crate() {
        let text = "use crate::model::Position;\nuse super::outlet::{Outlet, Target as T};\n\
                    use self::ring::{self, Ring};\nfn f() { crate::work::spend(); std::mem::take(x) }\n\
                    use super::super::state::*;\n// use crate::lost::X;\n\
                    pub mod cost { use super::Meter; }\npub(in crate::a) fn g(a: \"crate::b\") {}";
        let text = text.replace("(a: \"crate::b\")", "()");
        let expected = [
            "1: model::Position",
            "2: topics::outlet::Outlet",
            "2: topics::outlet::Target",
            "3: topics::hub::ring",
            "3: topics::hub::ring::Ring",
            "4: work::spend",
            "5: state",
            "7: topics::hub::Meter",
        ];
        assert_eq!(found(&text), expected);
    }

    #[test]
    fn macros_are_read_and_tests_are_told_apart() {
        let text = "fn f() { info!(a = crate::x::y(), \"crate::z\", [super::b::C { d: self.e }]); }\n\
                    mod ring; fn g() { ring::h(); }\n\
                    #[cfg(test)] mod checks { fn f() { crate::server::f(); } }\n\
                    #[cfg(test)] use crate::fs;\n#[cfg(not(test))] use crate::env;";
        assert_eq!(
            found(text),
            [
                "1: x::y",
                "1: topics::b::C",
                "2: topics::hub::ring::h",
                "5: env"
            ]
        );
    }

    #[test]
    fn files_are_named_in_three_ways() {
        let text =
            "mod a; mod b { mod r#c; } #[path = \"d.rs\"] mod e; mod f {} include!(\"g.in\");";
        let module =
            |names: &[&str]| Declaration::Module(names.iter().map(ToString::to_string).collect());
        let path = |path: &str| Declaration::Path(path.to_owned());
        let expected = [
            module(&["a"]),
            module(&["b", "c"]),
            path("d.rs"),
            path("g.in"),
        ];
        assert_eq!(parse(text, &[]).unwrap().files, expected);
    }
}
