//! Owners seen lately, as far as it must be known whether there is more than one. The memory is that of two.

use crate::limits::owner::OwnerId;

/// The owner seen last, and when another one was seen.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    last: Option<(OwnerId, u64)>,
    /// When another one than the last was seen last.
    other_ms: Option<u64>,
}

impl Seen {
    pub(crate) fn note(&mut self, owner: OwnerId, now_ms: u64) {
        if let Some((last, last_ms)) = self.last.replace((owner, now_ms))
            && last != owner
        {
            self.other_ms = Some(last_ms);
        }
    }

    /// Whether an owner is the only one of the last [`SEEN_MS`].
    pub(crate) fn is_only(&self, owner: OwnerId, now_ms: u64) -> bool {
        let is_last = self.last.is_none_or(|(last, _)| last == owner);
        let other_ms = self.other_ms;
        is_last && other_ms.is_none_or(|other_ms| now_ms.saturating_sub(other_ms) > SEEN_MS)
    }
}

/// How long an owner counts, in milliseconds.
const SEEN_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_owner_counts_for_a_minute() {
        let (ann, bob) = (OwnerId(1), OwnerId(2));
        let mut seen = Seen::default();
        seen.note(ann, 0);
        assert!(seen.is_only(ann, 0));
        seen.note(bob, 1);
        assert!(!seen.is_only(ann, 1) && !seen.is_only(bob, 1));
        seen.note(ann, 2);
        seen.note(ann, 30_000);
        assert!(!seen.is_only(ann, 1 + SEEN_MS));
        assert!(seen.is_only(ann, 2 + SEEN_MS));
    }
}
