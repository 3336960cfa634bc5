//! The circuit breakers of a backend: one of its connections, and one of each kind of requests.

use crate::backend::breaker::Breaker;
use crate::backend::kind::{KINDS, RequestKind};
use crate::backend::reach::Reach;
use crate::backend::seen::Seen;
use crate::config::backend::BackendConfig;
use crate::limits::owner::OwnerId;

/// The circuit breakers, and the owners that were seen lately.
#[derive(Debug)]
pub(crate) struct Breakers {
    pub(crate) reach: Reach,
    kinds: [Breaker; KINDS],
    seen: Seen,
    /// A probe has its outcome within these times.
    connect_timeout_ms: u64,
    timeout_ms: u64,
}

impl Breakers {
    pub(crate) fn new(config: &BackendConfig) -> Self {
        Self {
            reach: Reach::default(),
            kinds: Default::default(),
            seen: Seen::default(),
            connect_timeout_ms: config.connect_timeout_ms,
            timeout_ms: config.timeout_ms,
        }
    }

    /// An owner has an event of a kind.
    pub(crate) fn note(&mut self, kind: RequestKind, owner: OwnerId, now_ms: u64) {
        self.seen.note(owner, now_ms);
        self.kinds[kind as usize].note(owner, now_ms);
    }

    /// Why a request of an owner may not be sent now, if so.
    pub(crate) fn admit(
        &mut self,
        kind: RequestKind,
        owner: OwnerId,
        now_ms: u64,
    ) -> Result<(), String> {
        self.reach.check(now_ms)?;
        self.kinds[kind as usize].admit(owner, now_ms, self.timeout_ms)?;
        self.reach.probe(now_ms, self.connect_timeout_ms);
        Ok(())
    }

    /// Whether the circuit breaker of a kind, or that of the connections, is open.
    pub(crate) fn is_open(&self, kind: RequestKind) -> bool {
        self.reach.is_open() || self.kinds[kind as usize].is_open()
    }

    /// When a request of an owner may be sent at the earliest.
    pub(crate) fn due_ms(&self, kind: RequestKind, owner: OwnerId) -> u64 {
        self.reach
            .due_ms()
            .max(self.kinds[kind as usize].due_ms(owner))
    }

    pub(crate) fn succeed(&mut self, kind: RequestKind) -> bool {
        self.kinds[kind as usize].succeed()
    }

    pub(crate) fn fail(
        &mut self,
        kind: RequestKind,
        owner: OwnerId,
        reason: &str,
        now_ms: u64,
    ) -> bool {
        self.kinds[kind as usize].fail(owner, reason, now_ms)
    }

    /// Whether this is the only owner that has had an event lately.
    pub(crate) fn is_only(&self, owner: OwnerId, now_ms: u64) -> bool {
        self.seen.is_only(owner, now_ms)
    }

    /// Whether this is the only owner that has had an event of this kind lately.
    pub(crate) fn is_only_of(&self, kind: RequestKind, owner: OwnerId, now_ms: u64) -> bool {
        self.kinds[kind as usize].is_only(owner, now_ms)
    }
}
