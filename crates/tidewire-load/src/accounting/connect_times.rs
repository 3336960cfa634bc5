//! The times of connections, from their start until they were ready, and of each part of it.

use serde::{Deserialize, Serialize};

use super::recorder::Recorder;
use crate::report::{Latency, LatencyOrigin};
use crate::verdict::expectation::{ConnectPart, Distribution};

/// The times of the connections of one worker, merged into those of all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ConnectTimes {
    /// From the start of a connection to its readiness.
    pub ready: Recorder,
    /// The parts that connections had, in the order of [`ConnectPart::ALL`]. A recorder is large, and most
    /// loads lack some parts.
    parts: [Option<Box<Recorder>>; 5],
}

impl ConnectTimes {
    /// Without a connection.
    #[must_use]
    pub fn new() -> Self {
        Self {
            ready: Recorder::new(),
            parts: Default::default(),
        }
    }

    /// Counts a part that is complete, also of a connection that fails later.
    pub fn record_part(&mut self, part: ConnectPart, time_ns: u64) {
        let recorder = self.parts[part as usize].get_or_insert_default();
        recorder.record_ns(time_ns);
    }

    /// Adds those of another worker.
    pub fn merge(&mut self, other: &Self) {
        self.ready.merge(&other.ready);
        for (mine, theirs) in self.parts.iter_mut().zip(&other.parts) {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) => mine.merge(theirs),
                (mine, theirs) => *mine = mine.take().or_else(|| theirs.clone()),
            }
        }
    }

    /// The times of a part in the form of a report; `None` without any.
    #[must_use]
    pub fn summary(&self, part: ConnectPart) -> Option<Latency> {
        let recorder = self.parts[part as usize].as_deref()?;
        recorder.summary(LatencyOrigin::Sent)
    }

    /// The times of all parts for expectations.
    #[must_use]
    pub fn parts(&self) -> [Option<&dyn Distribution>; 5] {
        let each = self.parts.each_ref();
        each.map(|recorder| recorder.as_deref().map(|one| one as &dyn Distribution))
    }
}

impl Default for ConnectTimes {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_and_those_that_nobody_had_are_absent() {
        let mut all = ConnectTimes::new();
        let mut other = ConnectTimes::new();
        all.record_part(ConnectPart::Tcp, 1_000);
        other.record_part(ConnectPart::Tcp, 3_000);
        other.record_part(ConnectPart::Tls, 9_000);
        all.merge(&other);
        let count = |part| all.summary(part).map(|latency| latency.count);
        assert_eq!(count(ConnectPart::Tcp), Some(2));
        assert_eq!(count(ConnectPart::Tls), Some(1));
        assert_eq!(count(ConnectPart::Upgrade), None);
        let parts = all.parts();
        let max = parts[ConnectPart::Tcp as usize].and_then(Distribution::max_us);
        assert!(max.is_some_and(|us| (us - 3.0).abs() < 0.01), "{max:?}");
        assert!(parts[ConnectPart::Dns as usize].is_none());
    }
}
