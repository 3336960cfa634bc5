//! Repository chores.
//!
//! - `cargo xtask tidy`: the rules of the repository that no compiler checks, one line per finding.
//! - `cargo xtask wasm`: builds `tidewire-wire` for `wasm32-unknown-unknown` and fails if it imports anything.
//!
//! Exit codes: 0 nothing found, 1 findings or a failed build, 2 a wrong command line.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for people at a terminal"
)]

mod arrows;
mod dead_files;
mod lexer;
mod locks;
mod sources;
mod text;
mod tidy;
mod tree;
mod wasm;
mod workspace;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => run_tidy(),
        ["wasm"] => run_wasm(),
        _ => {
            eprintln!("usage: cargo xtask tidy | wasm");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_tidy() -> anyhow::Result<ExitCode> {
    let tree = tree::Tree::of_repository(repository_root()?)?;
    let workspace = workspace::Workspace::load(&tree.root)?;
    let findings = tidy::check(&tree, &workspace);
    for finding in &findings {
        println!("{finding}");
    }
    println!(
        "tidy: {} files, {} findings",
        tree.paths.len(),
        findings.len()
    );
    Ok(if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn run_wasm() -> anyhow::Result<ExitCode> {
    let module = wasm::build(repository_root()?)?;
    for import in &module.imports {
        println!(
            "tidewire-wire imports {import}, which ties it to an environment: remove what needs it"
        );
    }
    println!(
        "wasm: {} functions, {} imports",
        module.functions,
        module.imports.len()
    );
    Ok(if module.imports.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn repository_root() -> anyhow::Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask stands in no repository")
}
