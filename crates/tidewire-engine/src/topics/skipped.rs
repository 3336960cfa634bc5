//! Publications that no filter was asked about, because the owner of the subscription had used its
//! part of the second. They are reported as a gap when the next second begins.

use super::item::{Item, Slot};
use crate::model::Position;
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_net::ConnectionId;
use tidewire_wire::session::{GapRange, GapReason, PublicationGap};

/// The subscriptions of a shard that have missed publications in this way.
#[derive(Debug, Default)]
pub(crate) struct Skipped {
    gaps: HashMap<(ConnectionId, Slot), SkippedGap>,
    /// Those of an earlier second, which are being reported.
    reporting: Vec<((ConnectionId, Slot), SkippedGap)>,
    /// The second in which the first of them was missed.
    second: u64,
}

#[derive(Debug)]
struct SkippedGap {
    /// A slot may have a new topic by the time of the report.
    topic: Arc<str>,
    missed: Missed,
}

/// How many publications, and their offsets if they are of one history.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Missed {
    count: u64,
    range: Option<GapRange>,
}

/// A gap to report.
#[derive(Debug)]
pub(crate) struct SkippedReport {
    pub(crate) id: ConnectionId,
    pub(crate) slot: Slot,
    pub(crate) gap: PublicationGap,
}

impl Skipped {
    pub(crate) fn is_empty(&self) -> bool {
        self.gaps.is_empty() && self.reporting.is_empty()
    }

    /// Whether gaps of an earlier second are to be reported.
    pub(crate) fn is_due(&self, second: u64) -> bool {
        !self.reporting.is_empty() || (!self.gaps.is_empty() && self.second != second)
    }

    /// Adds to what a subscription has missed.
    pub(crate) fn add(
        &mut self,
        (id, slot): (ConnectionId, Slot),
        topic: &Arc<str>,
        missed: Missed,
        second: u64,
    ) {
        if self.gaps.is_empty() {
            self.second = second;
        }
        match self.gaps.get_mut(&(id, slot)) {
            Some(gap) if gap.topic == *topic => gap.missed = gap.missed.with(missed),
            _ => {
                let topic = Arc::clone(topic);
                self.gaps.insert((id, slot), SkippedGap { topic, missed });
            }
        }
    }

    /// Removes and returns one of the gaps of an earlier second.
    pub(crate) fn pop(&mut self) -> Option<SkippedReport> {
        if self.reporting.is_empty() {
            self.reporting = std::mem::take(&mut self.gaps).into_iter().collect();
        }
        let ((id, slot), SkippedGap { topic, missed }) = self.reporting.pop()?;
        if self.reporting.is_empty() {
            self.reporting = Vec::new();
        }
        let gap = PublicationGap {
            topic: topic.to_string(),
            reason: GapReason::Dropped,
            count: missed.count,
            range: missed.range,
        };
        Some(SkippedReport { id, slot, gap })
    }
}

impl Missed {
    /// These publications, for a subscription to `topic`; `None` for no publications.
    pub(crate) fn of(items: &[Item], topic: &str) -> Option<Self> {
        let missed = items.iter().map(|item| {
            let publication = &item.publication;
            let is_of_topic = publication.topic.as_deref() == Some(topic);
            let position = publication.position.filter(|_| is_of_topic);
            Self {
                count: 1,
                range: position.map(Position::as_range),
            }
        });
        missed.reduce(Self::with)
    }

    fn with(self, newer: Self) -> Self {
        let range = match (self.range, newer.range) {
            (Some(range), Some(newer)) if range.epoch == newer.epoch => Some(GapRange {
                from: range.from.min(newer.from),
                to: range.to.max(newer.to),
                ..range
            }),
            (range, newer) => newer.or(range),
        };
        Self {
            count: self.count + newer.count,
            range,
        }
    }
}
