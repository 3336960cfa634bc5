//! `tidewire report`: renders one report, or compares several.

use crate::baseline::{Baseline, BaselineFlags};
use crate::failure::Failure;
use crate::files::FileFlags;
use crate::output::{print, table_width};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use tidewire_load::Report;
use tidewire_load::report::model::EXIT_BROKEN;
use tidewire_load::report::side_by_side::SideBySide;
use tidewire_load::report::{save_all, terminal};

/// The options of `report`.
#[derive(Debug, Args)]
pub(crate) struct ReportFlags {
    /// The reports; ratios are relative to the first
    #[arg(required = true, value_name = "REPORT.json")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    baseline: BaselineFlags,
    /// Also write Markdown and HTML to this directory: `report.…` for one, `comparison.…` for several
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    written: FileFlags,
}

/// Renders the reports.
pub(crate) fn run(flags: &ReportFlags) -> Result<u8, Failure> {
    let mut reports = Vec::new();
    for (path, name) in flags.files.iter().zip(names(&flags.files)) {
        reports.push((name, Report::load(path).map_err(Failure::usage)?));
    }
    if flags.written.is_any() && reports.len() > 1 {
        return Err(Failure::usage(
            "--junit and --csv are of one report, and several were given: give only one",
        ));
    }
    let mut exit_code = 0;
    if let Some(baseline) = Baseline::read(&flags.baseline)? {
        let [(_, report)] = reports.as_mut_slice() else {
            return Err(Failure::usage(
                "--baseline compares one report, and several were given: give only one",
            ));
        };
        baseline.compare(report);
        if flags.baseline.fail_if_slower && report.is_slower() {
            exit_code = EXIT_BROKEN;
        }
    }
    match reports.as_slice() {
        [(_, report)] => {
            print(&terminal::render_within(report, table_width()))?;
            if let Some(directory) = &flags.out {
                let saved = save_all(report, directory).map_err(Failure::usage)?;
                print(&format!("report: {}\n", saved.html.display()))?;
            }
            flags.written.write(report)?;
        }
        _ => {
            let comparison = SideBySide::new(&reports);
            print(&comparison.terminal())?;
            if let Some(directory) = &flags.out {
                let page = save_comparison(&comparison, directory)?;
                print(&format!("comparison: {}\n", page.display()))?;
            }
        }
    }
    Ok(exit_code)
}

/// Writes a comparison as Markdown and as a page, whose path it returns.
pub(crate) fn save_comparison(
    comparison: &SideBySide,
    directory: &Path,
) -> Result<PathBuf, Failure> {
    let page = directory.join("comparison.html");
    fs::create_dir_all(directory)
        .and_then(|()| fs::write(directory.join("comparison.md"), comparison.markdown()))
        .and_then(|()| fs::write(&page, comparison.html()))
        .map_err(|error| Failure::usage(format!("{}: {error}", directory.display())))?;
    Ok(page)
}

/// Short names of the columns: the file's stem, or its directory if several stems are equal.
fn names(files: &[PathBuf]) -> Vec<String> {
    let stem = |path: &PathBuf| {
        path.file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    let stems: Vec<String> = files.iter().map(stem).collect();
    let are_alike = |name: &String| stems.iter().filter(|other| *other == name).count() > 1;
    files
        .iter()
        .zip(&stems)
        .map(|(path, stem)| match path.parent() {
            Some(parent) if are_alike(stem) && parent != Path::new("") => {
                parent.display().to_string()
            }
            _ => stem.clone(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_named_by_what_differs() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(
            names(&paths(&["a/before.json", "after.json"])),
            ["before", "after"]
        );
        assert_eq!(
            names(&paths(&["a/report.json", "b/report.json"])),
            ["a", "b"]
        );
    }
}
