//! The program as a user types it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod backend;
mod bench;
mod certificates;
#[cfg(target_os = "linux")]
mod clocks;
mod foreign;
#[cfg(unix)]
mod handover;
mod judged;
mod load;
#[cfg(unix)]
mod log;
mod mistakes;
mod options;
mod partition;
mod program;
#[cfg(unix)]
mod reload;
mod report;
mod robust;
mod serve;
#[cfg(target_os = "linux")]
mod silent_server;
#[cfg(unix)]
mod start;
#[cfg(target_os = "linux")]
mod starved;
mod test_server;
mod token;
mod top;
mod topics;
#[cfg(target_os = "linux")]
mod workers;
