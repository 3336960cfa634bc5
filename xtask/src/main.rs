//! Repository chores.
//!
//! - `cargo xtask codes [--check]`: writes the constants that `protocol/codes.toml` lists, or only says
//!   which files are not current.
//! - `cargo xtask options [--check]`: writes what is made from the tables in `options/`, or only says
//!   which files are not current.
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
mod circles;
mod codes;
mod comments;
mod dead_files;
mod finding;
mod generated;
mod imports;
mod lexer;
mod locks;
mod markdown;
mod options;
mod phrases;
mod rooms;
mod sources;
mod text;
mod tidy;
mod tree;
mod versions;
mod wasm;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["codes"] => run_codes(),
        ["codes", "--check"] => run_codes_check(),
        ["options"] => run_options(),
        ["options", "--check"] => run_options_check(),
        ["tidy"] => run_tidy(),
        ["wasm"] => run_wasm(),
        _ => {
            eprintln!("usage: cargo xtask codes [--check] | options [--check] | tidy | wasm");
            return ExitCode::from(2);
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run_codes() -> anyhow::Result<ExitCode> {
    Ok(report_written("codes", codes::write(repository_root()?)?))
}

fn run_codes_check() -> anyhow::Result<ExitCode> {
    let tree = tree::Tree::of_repository(repository_root()?)?;
    Ok(report_findings("codes", codes::check(&tree)))
}

fn run_options() -> anyhow::Result<ExitCode> {
    Ok(report_written(
        "options",
        options::write(repository_root()?)?,
    ))
}

fn run_options_check() -> anyhow::Result<ExitCode> {
    let tree = tree::Tree::of_repository(repository_root()?)?;
    Ok(report_findings("options", options::check(&tree)))
}

fn report_written(chore: &str, written: Vec<PathBuf>) -> ExitCode {
    for path in &written {
        println!("written: {}", path.display());
    }
    println!("{chore}: {} files written", written.len());
    ExitCode::SUCCESS
}

fn report_findings(chore: &str, findings: Vec<finding::Finding>) -> ExitCode {
    for finding in &findings {
        println!("{finding}");
    }
    println!("{chore}: {} findings", findings.len());
    exit_code(findings.is_empty())
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
    Ok(exit_code(findings.is_empty()))
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
    Ok(exit_code(module.imports.is_empty()))
}

fn exit_code(is_good: bool) -> ExitCode {
    if is_good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn repository_root() -> anyhow::Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask stands in no repository")
}
