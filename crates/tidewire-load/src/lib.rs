//! The Tidewire load lab as a library: accounting, latency recording, verdicts, the resources a run
//! used, the checks before it, and the report that tells all of it.
//!
//! A message is *offered* when it was written and *confirmed* when the other end has accounted for
//! it. No figure in a report is an offered rate.

pub mod accounting;
pub mod bench_tests;
mod channel;
pub mod evidence;
pub mod failure;
pub mod fan_out;
pub mod fleet;
mod generator;
pub mod layer;
pub mod live;
mod number;
pub mod pace;
pub mod payload;
pub mod plan;
pub mod preflight;
pub mod profile;
mod pulse;
pub mod recorder;
pub mod report;
pub mod resources;
pub mod ring;
pub mod run;
mod server;
mod session;
pub mod stats;
pub mod stop;
pub mod target;
pub mod usage;
pub mod verdict;
mod worker;

pub use accounting::Accounting;
pub use preflight::OPEN_FILES_MARGIN;
pub use recorder::Recorder;
pub use report::Report;
pub use run::{BenchOptions, Progress, RunError, run};
pub use server::{ServerPidError, check_server_pid};
pub use verdict::judge;
