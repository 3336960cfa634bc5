//! Handshakes whose request waits for a decision of the application or the backend, limited for each source and in all.
//! They are no pending handshakes any more: it is not the client that is slow.

use crate::limits::pending_handshakes::PendingLimits;
use crate::limits::source::Source;
use std::collections::{HashMap, VecDeque};
use tidewire_net::ConnectionId;

/// The undecided handshakes of a shard.
#[derive(Debug)]
pub(crate) struct Undecided {
    max: usize,
    per_source_max: usize,
    /// Those of each source, the oldest first.
    by_source: HashMap<Source, VecDeque<ConnectionId>>,
    sources: HashMap<ConnectionId, Source>,
}

/// There is no room for another one of this source.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

impl Undecided {
    pub(crate) fn new(limits: PendingLimits) -> Self {
        Self {
            max: limits.admitted_max,
            per_source_max: limits.admitted_per_source_max,
            by_source: HashMap::new(),
            sources: HashMap::new(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    /// Adds a handshake, or moves it behind the others if there is another question about it; the one that gives way to it, if
    /// there is no room: the oldest of the source that has the most.
    pub(crate) fn begin(
        &mut self,
        id: ConnectionId,
        source: Source,
    ) -> Result<Option<ConnectionId>, Full> {
        self.end(id);
        let own = self.by_source.get(&source).map_or(0, VecDeque::len);
        if own >= self.per_source_max {
            return Err(Full);
        }
        let mut evicted = None;
        if self.sources.len() >= self.max {
            let most = self.by_source.values().max_by_key(|ids| ids.len());
            let oldest = most.filter(|ids| ids.len() > own + 1);
            let oldest = *oldest.and_then(VecDeque::front).ok_or(Full)?;
            self.end(oldest);
            evicted = Some(oldest);
        }
        self.by_source.entry(source).or_default().push_back(id);
        self.sources.insert(id, source);
        Ok(evicted)
    }

    /// A handshake is decided, or over.
    pub(crate) fn end(&mut self, id: ConnectionId) {
        let Some(source) = self.sources.remove(&id) else {
            return;
        };
        if let Some(ids) = self.by_source.get_mut(&source) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_source.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_share_and_no_more_than_its_limit() {
        let limits = PendingLimits {
            admitted_max: 6,
            admitted_per_source_max: 5,
            parked_max: 0,
        };
        let mut undecided = Undecided::new(limits);
        let id = ConnectionId::from_u64;
        let [greedy, modest, third] = [1, 2, 3].map(Source::V6);
        for number in 0..5 {
            assert_eq!(undecided.begin(id(number), greedy), Ok(None));
        }
        assert_eq!(undecided.begin(id(9), greedy), Err(Full));
        // One that is asked about again has a place already, and then the newest.
        assert_eq!(undecided.begin(id(0), greedy), Ok(None));
        for number in 1..5 {
            assert_eq!(undecided.begin(id(number), greedy), Ok(None));
        }
        assert_eq!(undecided.len(), 5);
        assert_eq!(undecided.begin(id(10), modest), Ok(None));
        assert_eq!(undecided.begin(id(11), modest), Ok(Some(id(0))));
        assert_eq!(undecided.begin(id(12), modest), Ok(Some(id(1))));
        // It would have more than any other: no other one has to end.
        assert_eq!(undecided.begin(id(13), modest), Err(Full));
        assert_eq!(
            undecided.begin(id(14), third).map(|one| one.is_some()),
            Ok(true)
        );
        assert_eq!(undecided.len(), 6);
        undecided.end(id(12));
        undecided.end(id(12));
        undecided.end(id(0));
        assert_eq!(undecided.begin(id(15), greedy), Ok(None));
        for number in 0..20 {
            undecided.end(id(number));
        }
        assert_eq!(undecided.len(), 0);
        assert!(undecided.by_source.is_empty());
    }
}
