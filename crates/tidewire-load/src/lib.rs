//! The Tidewire load lab as a library: plans, workers, accounting, verdicts and reports.
//!
//! A message is *offered* when it was written and *confirmed* when the other end has accounted for
//! it. No figure in a report is an offered rate.
//!
//! Each room uses only rooms below it: `options`, `plan`, `fleet`, `worker`, `accounting`, `verdict`, `report`.

/// The snippets of the guide to this crate.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/load.md")]
struct Guide;

pub mod accounting;
pub mod fleet;
pub mod options;
pub mod plan;
pub mod report;
pub mod test_server;
pub mod verdict;
pub mod worker;

pub use accounting::recorder::Recorder;
pub use accounting::server::{ServerPidError, check_server_pid};
pub use fleet::preflight::OPEN_FILES_MARGIN;
pub use options::load::LoadOptions;
pub use options::run::{Load, LoadOutcome, RunLoadError};
pub use plan::observe::{Progress, RunLive};
pub use plan::run::{BenchOptions, RunError, run};
pub use report::Report;
pub use verdict::account::Accounting;
pub use verdict::judge;
