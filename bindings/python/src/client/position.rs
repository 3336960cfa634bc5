//! Positions in a history, as Python sees them.

use tidewire_client::sequencer::Position;

/// An epoch as it is spelled, and the offset.
pub(super) fn position(position: Position) -> (String, u64) {
    (format!("{:08x}", position.epoch), position.offset)
}
