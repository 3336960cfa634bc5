//! Warnings with a limited rate. Those that clients can cause are logged at most once a minute, with a count.
//! Each reason why the broker does not answer is logged once in an outage.

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

/// The reasons that were logged since the broker answered.
#[derive(Debug)]
pub(super) struct Outage {
    told: Vec<Option<String>>,
}

impl Outage {
    /// At the start. The link connects for the first time, so the lack of a reason is not logged.
    pub(super) fn before_first_answer() -> Self {
        Self { told: vec![None] }
    }

    /// After an answer. No reason of the next outage has been logged.
    pub(super) fn after_answer() -> Self {
        Self { told: Vec::new() }
    }

    /// True if this reason should be logged: only the first few different reasons of an outage are.
    pub(super) fn is_new(&mut self, reason: Option<&str>) -> bool {
        let is_known = self.told.iter().any(|told| told.as_deref() == reason);
        if is_known || self.told.len() >= REASONS_MAX {
            return false;
        }
        self.told.push(reason.map(str::to_owned));
        true
    }
}

impl Exchange {
    /// Logs the warnings that are due.
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

/// Each of three connections may have a reason of its own, and the broker others while it starts.
const REASONS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_told_once_in_an_outage() {
        let mut outage = Outage::after_answer();
        let reasons = [
            None,
            Some("refused"),
            None,
            Some("refused"),
            Some("LOADING"),
        ];
        let told = reasons.map(|reason| outage.is_new(reason));
        assert_eq!(told, [true, true, false, false, true]);
        let many = (0..100).filter(|n| outage.is_new(Some(&n.to_string())));
        assert_eq!(many.count(), REASONS_MAX - 3);
    }

    #[test]
    fn a_link_that_connects_for_the_first_time_is_no_outage() {
        let mut outage = Outage::before_first_answer();
        let told = [None, Some("refused"), None].map(|reason| outage.is_new(reason));
        assert_eq!(told, [false, true, false]);
    }

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
