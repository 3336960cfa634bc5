//! The earlier report that `bench`, `load` and `report` compare with.

use std::path::Path;

use tidewire_load::Report;
use tidewire_load::report::baseline;

use crate::failure::Failure;

/// An earlier report, and what a slower figure means.
#[derive(Debug)]
pub(crate) struct Baseline {
    report: Report,
    file: String,
    fail_if_slower: bool,
}

impl Baseline {
    /// Reads the file, if one is named: before a run and not after it, so that no figure is lost for a mistyped name.
    ///
    /// # Errors
    /// It cannot be read, or is no report.
    pub(crate) fn read(file: Option<&Path>, fail_if_slower: bool) -> Result<Option<Self>, Failure> {
        let Some(file) = file else { return Ok(None) };
        Ok(Some(Self {
            report: Report::load(file).map_err(Failure::usage)?,
            file: file.display().to_string(),
            fail_if_slower,
        }))
    }

    /// Notes in the report what came of each of its figures.
    pub(crate) fn compare(&self, report: &mut Report) {
        baseline::compare(report, &self.report, &self.file, self.fail_if_slower);
    }
}
