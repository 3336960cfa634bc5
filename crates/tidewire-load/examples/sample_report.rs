//! Writes a made-up `report.json`, `report.html` and `report.md`, and a comparison, to look at:
//! `cargo run -p tidewire-load --example sample_report -- DIRECTORY`

use std::path::PathBuf;
use std::process::ExitCode;
use std::{env, fs, io};

use tidewire_load::report::compare::Comparison;
use tidewire_load::report::{save_all, terminal};

#[path = "../tests/fixture/mod.rs"]
mod fixture;

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a terminal"
)]
fn main() -> ExitCode {
    let Some(directory) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: sample_report DIRECTORY");
        return ExitCode::from(2);
    };
    match write(&directory) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write(directory: &std::path::Path) -> io::Result<String> {
    let report = fixture::report();
    save_all(&report, directory)?;
    let mut slower = report.clone();
    for result in &mut slower.results {
        result.rate_per_s = result.rate_per_s.map(|rate| rate * 0.42);
    }
    let text = terminal::render(&report);
    let compared = Comparison::new(&[("this".into(), report), ("other".into(), slower)]);
    fs::write(directory.join("comparison.html"), compared.html())?;
    Ok(text + "\n" + &compared.terminal())
}
