//! Form: how a group of subscribers receives its publications.

use tidewire_wire::format::Format;

/// How a group of subscribers receives its publications.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// All the same frames.
    Shared {
        format: Format,
        /// The clients accept several publications in one `batch` message.
        batches: bool,
    },
    /// Each member by itself, through its layers.
    Individual,
    /// Each member by itself, because what it does when it lags is its own.
    Lossy,
}
