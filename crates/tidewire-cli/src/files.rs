//! Files of a report for other programs: JUnit XML and CSV, of `bench`, `load` and `report`.

use clap::Args;
use std::path::PathBuf;
use tidewire_load::Report;
use tidewire_load::report::{csv, junit, save_text, try_file};

use crate::failure::Failure;
use crate::output::print_error;

/// The options of the files.
#[derive(Debug, Clone, Args)]
pub(crate) struct FileFlags {
    /// Also write the verdict, the expectations and the comparison with --fail-if-slower as JUnit XML to
    /// this file: one test case each
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// Also write the results as CSV to this file: one line each
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

impl FileFlags {
    /// Whether any file is wanted.
    pub(crate) fn is_any(&self) -> bool {
        self.junit.is_some() || self.csv.is_some()
    }

    /// Checks that the files can be written. The commands call this before a run, so that a mistyped
    /// name loses no figure.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let mut files = self.junit.iter().chain(&self.csv);
        files.try_for_each(|file| {
            try_file(file).map_err(|error| Failure::usage(format!("cannot write {error}")))
        })
    }

    /// Writes the files and prints their names on standard error.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn write(&self, report: &Report) -> Result<(), Failure> {
        let junit = self.junit.iter().map(|file| (file, junit::render(report)));
        let csv = self.csv.iter().map(|file| (file, csv::render(report)));
        for (file, text) in junit.chain(csv) {
            save_text(&text, file).map_err(|error| Failure::run(format!("cannot save {error}")))?;
            print_error(&format!("written: {}\n", file.display()));
        }
        Ok(())
    }
}
