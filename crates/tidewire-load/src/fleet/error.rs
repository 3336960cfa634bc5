//! The error of a fleet.

use std::io;

/// The end of a worker, which only a failure of this program or of the operating system's event
/// queue causes.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// A thread or event queue could not be created.
    #[error("the generator's threads could not be started: {0}")]
    Start(io::Error),
    /// An event loop failed.
    #[error("an event loop of the generator failed: {0}")]
    Loop(io::Error),
    /// A worker ended without an answer.
    #[error("a thread of the generator ended unexpectedly")]
    Gone,
    /// The user did not wait for the workers.
    #[error("interrupted before the workers had started")]
    Interrupted,
    /// A worker's process could not participate.
    #[error("{name}: {reason}")]
    Worker {
        /// Its name.
        name: String,
        /// The reason.
        reason: String,
        /// The process ended before its first line: the command does not start a worker.
        is_mute: bool,
    },
}
