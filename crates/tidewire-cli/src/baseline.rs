//! Baselines: the earlier report with which `bench`, `load` and `report` compare.

use std::path::Path;

use tidewire_load::Report;
use tidewire_load::report::baseline;

use crate::failure::Failure;

/// An earlier report, and whether a slower figure fails the command.
#[derive(Debug)]
pub(crate) struct Baseline {
    report: Report,
    file: String,
    fail_if_slower: bool,
}

impl Baseline {
    /// Reads the file, if one is named. The commands call this before a run, so that a mistyped name
    /// loses no figure.
    ///
    /// # Errors
    /// The file cannot be read, or is not a report.
    pub(crate) fn read(file: Option<&Path>, fail_if_slower: bool) -> Result<Option<Self>, Failure> {
        let Some(file) = file else { return Ok(None) };
        Ok(Some(Self {
            report: Report::load(file).map_err(Failure::usage)?,
            file: file.display().to_string(),
            fail_if_slower,
        }))
    }

    /// Adds the comparison of each figure to the report.
    pub(crate) fn compare(&self, report: &mut Report) {
        baseline::compare(report, &self.report, &self.file, self.fail_if_slower);
    }
}
