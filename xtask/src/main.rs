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
mod dead_files;
mod finding;
mod generated;
mod layers;
mod lines;
mod modules;
mod options;
mod rooms;
mod tidy;
mod tree;
mod wasm;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    run(&arguments).unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &[&str]) -> anyhow::Result<ExitCode> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = root.parent().context("xtask stands in no repository")?;
    let tree = || tree::Tree::of_repository(root);
    Ok(match arguments {
        ["codes"] => report_written("codes", codes::write(root)?),
        ["codes", "--check"] => report_findings("codes", &codes::check(&tree()?)),
        ["options"] => report_written("options", options::write(root)?),
        ["options", "--check"] => report_findings("options", &options::check(&tree()?)),
        ["tidy"] => report_findings(
            "tidy",
            &tidy::check(&tree()?, &workspace::Workspace::load(root)?)?,
        ),
        ["wasm"] => run_wasm(root)?,
        _ => {
            eprintln!("usage: cargo xtask codes [--check] | options [--check] | tidy | wasm");
            ExitCode::from(2)
        }
    })
}

/// What `codes` and `options` say.
fn report_written(chore: &str, written: Vec<PathBuf>) -> ExitCode {
    for path in &written {
        println!("written: {}", path.display());
    }
    println!("{chore}: {} files written", written.len());
    ExitCode::SUCCESS
}

fn report_findings(chore: &str, findings: &[finding::Finding]) -> ExitCode {
    for finding in findings {
        println!("{finding}");
    }
    println!("{chore}: {} findings", findings.len());
    exit_code(findings.is_empty())
}

fn run_wasm(root: &Path) -> anyhow::Result<ExitCode> {
    let module = wasm::build(root)?;
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
