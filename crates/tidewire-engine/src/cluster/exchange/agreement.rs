//! Statements of this server to the others about itself: which topics keep history, and the limits of its clients.

use super::{Exchange, TELL_MS, keep};
use crate::topics::config::RuleSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidewire_redis::{HistoryRules, Now};

/// The statements that were made last.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    rules: Option<Arc<RuleSet>>,
    limits: String,
    next_ms: u64,
}

impl Exchange {
    /// Makes the statements before the first connection, and again when a reload has changed them.
    pub(super) fn agree(&mut self, now: Now) {
        if now.ms < self.agreement.next_ms {
            return;
        }
        self.agreement.next_ms = now.ms + TELL_MS;
        self.broker.ahead_ms.store(self.link.ahead_ms(), Relaxed);
        let (Some(hub), Some(server)) = (self.hub.upgrade(), &self.server) else {
            return;
        };
        let (rules, limits) = (hub.rules.owned(), server.0.limits());
        let agreement = &mut self.agreement;
        let known = agreement.rules.as_ref();
        if known.is_some_and(|known| Arc::ptr_eq(known, &rules)) && agreement.limits == limits {
            return;
        }
        let histories = rules.histories().map(|(pattern, limits)| {
            let history = limits.map(|limits| keep(limits.publications_max));
            (pattern.to_owned(), history)
        });
        self.link
            .agree(HistoryRules::new(histories.collect()), &limits);
        agreement.rules = Some(rules);
        agreement.limits = limits;
    }
}
