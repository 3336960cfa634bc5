//! Baselines: the earlier report with which `bench`, `load` and `report` compare.

use clap::Args;
use std::path::PathBuf;

use tidewire_load::Report;
use tidewire_load::report::baseline;

use crate::failure::Failure;

/// The options of a comparison with an earlier report.
#[derive(Debug, Clone, Args)]
pub(crate) struct BaselineFlags {
    /// Compare with this earlier report: faster, slower or cannot tell, for each figure of the tests
    /// that both have
    #[arg(long, value_name = "REPORT.json")]
    pub(crate) baseline: Option<PathBuf>,
    /// With --baseline: exit code 5 if a figure is slower
    #[arg(long, requires = "baseline")]
    pub(crate) fail_if_slower: bool,
}

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
    pub(crate) fn read(flags: &BaselineFlags) -> Result<Option<Self>, Failure> {
        let Some(file) = &flags.baseline else {
            return Ok(None);
        };
        Ok(Some(Self {
            report: Report::load(file).map_err(Failure::usage)?,
            file: file.display().to_string(),
            fail_if_slower: flags.fail_if_slower,
        }))
    }

    /// Adds the comparison of each figure to the report.
    pub(crate) fn compare(&self, report: &mut Report) {
        baseline::compare(report, &self.report, &self.file, self.fail_if_slower);
    }
}
