//! Warnings of what clients can cause as often as they like: at most once a minute, with the number of times.

use super::Exchange;
use tidewire_redis::Now;

/// The counts as of the last warning.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    groups_refused: u64,
    messages_lost: u64,
    /// There is none before.
    silent_until_ms: u64,
}

impl Complaints {
    /// How many groups were refused and how many messages were lost since the last warning, if there are any and one
    /// is due.
    fn due(&mut self, groups_refused: u64, messages_lost: u64, now_ms: u64) -> Option<(u64, u64)> {
        let new = (
            groups_refused - self.groups_refused,
            messages_lost - self.messages_lost,
        );
        if new == (0, 0) || now_ms < self.silent_until_ms {
            return None;
        }
        *self = Self {
            groups_refused,
            messages_lost,
            silent_until_ms: now_ms + SILENT_MS,
        };
        Some(new)
    }
}

impl Exchange {
    /// Warns, if something is to be said.
    pub(super) fn complain(&mut self, now: Now) {
        let (refused, lost) = (self.groups.refused, self.broker.commands.lost());
        let Some((groups, messages)) = self.complaints.due(refused, lost, now.ms) else {
            return;
        };
        if groups > 0 {
            tracing::warn!(
                groups,
                "queue groups were refused: their topics have reached groups_per_topic_max",
            );
        }
        if messages > 0 {
            tracing::warn!(
                messages,
                "messages to the other servers were dropped: too much waits for the broker",
            );
        }
    }
}

/// The time between two warnings, in milliseconds.
const SILENT_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_warning_a_minute_with_all_that_happened() {
        let mut complaints = Complaints::default();
        assert_eq!(complaints.due(0, 0, 5), None);
        assert_eq!(complaints.due(1, 0, 10), Some((1, 0)));
        assert_eq!(complaints.due(900, 7, 59_000), None);
        assert_eq!(complaints.due(1_000, 7, 60_010), Some((999, 7)));
        assert_eq!(complaints.due(1_000, 7, 200_000), None);
    }
}
