//! The allowance: how many bytes of a connection may be unconfirmed at full speed.

/// Grows while the server confirms soon, shrinks when it confirms late.
///
/// A confirmation costs both sides a small packet, so a fast server needs few of them. For a slow
/// server all that is unconfirmed has to be read after the end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Allowance {
    bytes: u64,
}

impl Allowance {
    /// The bytes that may be unconfirmed.
    pub(super) fn bytes(self) -> u64 {
        self.bytes
    }

    /// Adapts to the time of a confirmation. `bytes_max` is the limit of every connection.
    pub(super) fn adapt(&mut self, took_ns: u64, bytes_max: u64) {
        if took_ns <= SOON_NS {
            self.bytes = (self.bytes * 2).min(bytes_max);
        } else if took_ns >= LATE_NS {
            self.bytes = (self.bytes / 2).max(BYTES_MIN);
        }
        self.bytes = self.bytes.min(bytes_max);
    }
}

impl Default for Allowance {
    fn default() -> Self {
        Self { bytes: BYTES_MIN }
    }
}

/// Frames that are written at once, of `frames` that may be unconfirmed and `bytes` in them: half of
/// them, so that the other half is on its way meanwhile, or all of them where the half would be less
/// than what a write costs.
pub(super) fn stride_frames(frames: u64, bytes: u64) -> u64 {
    if bytes < WHOLE_BYTES_MAX {
        frames
    } else {
        (frames / 2).max(1)
    }
}

/// The first allowance. Below it a confirmation costs too much.
const BYTES_MIN: u64 = 16 * 1024;

/// Below this number of unconfirmed bytes they are written at once.
const WHOLE_BYTES_MAX: u64 = 256 * 1024;

const SOON_NS: u64 = 250_000_000;
const LATE_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn it_grows_to_the_limit_with_soon_confirmations_and_shrinks_with_late_ones() {
        let mut allowance = Allowance::default();
        for _ in 0..4 {
            allowance.adapt(10 * MS, 100_000);
        }
        assert_eq!(allowance.bytes(), 100_000);
        // Neither soon nor late: it stays.
        allowance.adapt(600 * MS, 100_000);
        assert_eq!(allowance.bytes(), 100_000);
        for _ in 0..10 {
            allowance.adapt(2_000 * MS, 100_000);
        }
        assert_eq!(allowance.bytes(), 16 * 1024);
    }

    #[test]
    fn much_is_written_in_halves_and_little_at_once() {
        assert_eq!(stride_frames(10, 100_000), 10);
        assert_eq!(stride_frames(10, 1_000_000), 5);
        assert_eq!(stride_frames(1, 1_000_000), 1);
    }
}
