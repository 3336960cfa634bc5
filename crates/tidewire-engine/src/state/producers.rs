//! Producers of all connections, and what one connection has of them.

use crate::config::ProducerConfig;
use crate::limits::owner::OwnerId;
use crate::topics::producer::{ProducerHandle, ProducerVerdict, Producers};
use crate::topics::remembered::{IdKeys, Remembered};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tidewire_wire::format::Format;
use tidewire_wire::session::Refused;

/// The accepted messages of producers, as all shards know them.
#[derive(Debug)]
pub(crate) struct SharedProducers {
    producers: Mutex<Producers>,
    /// The ids that were seen, if that is asked for.
    pub(crate) seen: Option<SeenIds>,
}

#[derive(Debug)]
pub(crate) struct SeenIds {
    keys: IdKeys,
    ids: Mutex<Remembered<()>>,
}

/// The part of a connection, if its messages have to be checked.
#[derive(Debug, Default)]
pub(crate) struct SessionProducer {
    pub(crate) producer: Option<OpenProducer>,
    /// Where its ids mean something, once it has sent one.
    pub(crate) scope: Option<Box<str>>,
}

/// The producer that a connection speaks for.
#[derive(Debug)]
pub(crate) struct OpenProducer {
    pub(crate) id: String,
    pub(crate) epoch: u32,
    pub(crate) handle: ProducerHandle,
    /// What the broker knows of it, if several servers share it.
    pub(crate) shared: Option<SharedProducer>,
    /// A message was accepted, or repeated, since the last acknowledgement.
    pub(crate) owes_ack: bool,
    /// The gap to be reported: the number that is missing, and the messages that were refused
    /// for it.
    pub(crate) gap: Option<(u64, Refused)>,
}

/// What the broker knows of a producer of a connection.
#[derive(Debug)]
pub(crate) struct SharedProducer {
    /// The opening; the broker refuses requests of earlier ones.
    pub(crate) opening: u64,
    /// The number that it has; larger ones are not acknowledged.
    pub(crate) kept: u64,
    /// When the broker last confirmed the producer.
    pub(crate) kept_unix_ms: u64,
    /// The broker was sent a larger number and has not answered.
    pub(crate) is_keeping: bool,
}

impl SharedProducers {
    pub(crate) fn new(config: &ProducerConfig) -> Self {
        let ids_max = config.remembered_ids_max;
        Self {
            producers: Mutex::new(Producers::new(config.producers_max, config.producer_ttl_ms)),
            seen: config.deduplicate.then(|| SeenIds {
                keys: IdKeys::new(),
                ids: Mutex::new(Remembered::new(ids_max)),
            }),
        }
    }

    /// The state of a new connection.
    pub(crate) fn new_session(&self) -> Option<Box<SessionProducer>> {
        self.seen.is_some().then(Box::default)
    }

    /// A connection is gone.
    pub(crate) fn close(&self, session: Option<&SessionProducer>, now_unix_ms: u64) {
        if let Some(producer) = session.and_then(|session| session.producer.as_ref()) {
            self.locked().close(producer.handle, now_unix_ms);
        }
    }

    /// Forgets producers that were away for too long.
    pub(crate) fn sweep(&self, now_unix_ms: u64) {
        self.locked().sweep(now_unix_ms, SWEPT_MAX);
    }

    pub(crate) fn locked(&self) -> MutexGuard<'_, Producers> {
        self.producers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl SeenIds {
    /// Remembers the id; true if it was not known before.
    pub(crate) fn is_new(&self, owner: OwnerId, scope: &str, id: &str) -> bool {
        let key = self.keys.key(scope, id);
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.insert(owner, key, ()).is_none()
    }
}

impl OpenProducer {
    /// Notes the verdict about a message.
    pub(crate) fn note(&mut self, verdict: ProducerVerdict, (format, bytes): (Format, &[u8])) {
        if let ProducerVerdict::Gap { expected } = verdict {
            let (_, mut refused) = self.gap.take().unwrap_or_default();
            refused.add(format, bytes);
            self.gap = Some((expected, refused));
        } else {
            self.note_answered(verdict);
        }
    }

    /// Notes the verdict about a message that has had its answer.
    pub(crate) fn note_answered(&mut self, verdict: ProducerVerdict) {
        self.owes_ack |= matches!(verdict, ProducerVerdict::Take | ProducerVerdict::Repeat);
    }
}

/// Producers forgotten in one sweep at most, because others wait for the lock.
const SWEPT_MAX: usize = 1_000;
