//! Messages that are kept until the server has acknowledged them (section 20 of the protocol).
//!
//! A [`Store`] holds them, numbers them when they are sent, and deletes them when they are acknowledged. It is
//! used from one thread ([`worker`]), so that a disk delays nobody but those who wait for it.

pub(crate) mod handle;
pub(crate) mod job;
#[cfg(feature = "offline-queue")]
mod lock;
mod memory;
#[cfg(feature = "offline-queue")]
mod private;
mod receipts;
#[cfg(feature = "offline-queue")]
mod sqlite;
mod worker;

use crate::config::{Queue, Uncertain};
use crate::event::QueuedMessage;
use crate::priority_queue::Priority;
use std::fmt;

/// A message to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Durable {
    /// The topic of a publication; `None` for a message to the server's application.
    pub(crate) topic: Option<String>,
    pub(crate) t: String,
    /// One JSON value.
    pub(crate) payload: Vec<u8>,
    /// It is the base64 of bytes.
    pub(crate) is_binary: bool,
    pub(crate) priority: Priority,
    /// The conflation key of a publication.
    pub(crate) key: Option<String>,
    /// Milliseconds since 1970 after which it is of no use.
    pub(crate) expires_unix_ms: Option<u64>,
}

/// A message on its way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// Which of the store's.
    pub(crate) row: u64,
    /// The producer's number.
    pub(crate) number: u64,
    pub(crate) message: Durable,
}

/// The facts that a new connection makes known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Resumed {
    /// The server had accepted them already.
    pub(crate) acknowledged: Vec<u64>,
    /// It is not known whether the server accepted them. With [`Uncertain::Drop`] they are not sent any more, and
    /// stay until [`Store::forget`]; [`Store::uncertain`] returns them. With [`Uncertain::Resend`] they wait to
    /// be sent again.
    pub(crate) uncertain: Vec<u64>,
    /// With [`Uncertain::Resend`], the same messages.
    pub(crate) resent: Vec<QueuedMessage>,
}

/// The messages to send next.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    pub(crate) messages: Vec<Numbered>,
    /// They were too old to be sent, and are gone.
    pub(crate) expired: Vec<u64>,
    /// The server does not accept messages of their size, and they are gone.
    pub(crate) too_large: Vec<u64>,
    /// They are binary, which the server does not know, and are gone.
    pub(crate) unsupported: Vec<u64>,
}

/// The messages that the server of a connection accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MessageLimits {
    /// The largest size in bytes; 0 for any.
    pub(crate) bytes_max: usize,
    pub(crate) takes_binary: bool,
}

impl Default for MessageLimits {
    fn default() -> Self {
        Self {
            bytes_max: 0,
            takes_binary: true,
        }
    }
}

/// How much a store holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueDepth {
    /// Messages.
    pub messages: usize,
    /// Bytes of their payloads.
    pub bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StoreError {
    /// No room; nothing was stored.
    Full,
    /// The file or the disk.
    Failed(String),
}

impl From<StoreError> for crate::error::Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Full => Self::Full,
            StoreError::Failed(words) => Self::Queue(words),
        }
    }
}

/// Keeps messages. What a call has returned survives whatever the store promises to survive.
pub(crate) trait Store: Send + fmt::Debug {
    /// The producer's id, always the same for one store.
    fn producer(&self) -> &str;

    /// Stores messages, all or none; their rows.
    fn push(&mut self, messages: &[Durable], now_unix_ms: u64) -> Result<Vec<u64>, StoreError>;

    /// The server of a connection knows the producer in `epoch` and has accepted all numbers up to `last`.
    /// [`Self::take`] gives out the other numbered messages again. All of it is done, or nothing.
    fn resume(
        &mut self,
        epoch: u32,
        last: u64,
        uncertain: Uncertain,
    ) -> Result<Resumed, StoreError>;

    /// Gives out messages: first those that are numbered already, then others by priority and age, which are
    /// numbered now. At least one if there is any, however large.
    fn take(
        &mut self,
        count_max: usize,
        bytes_max: usize,
        now_unix_ms: u64,
    ) -> Result<Taken, StoreError>;

    /// Deletes all numbers up to `last`, which the server has accepted; the rows that are gone.
    fn acknowledge(&mut self, last: u64) -> Result<Vec<u64>, StoreError>;

    /// Numbers after `last` have to be given out again.
    fn rewind(&mut self, last: u64);

    /// Messages of which it is not known whether the server accepted them, with their rows and in their order:
    /// at least one if there is any, and not all if they are many.
    fn uncertain(&mut self, bytes_max: usize) -> Result<Vec<(u64, Durable)>, StoreError>;

    /// The application knows of these uncertain messages, and they are gone.
    fn forget(&mut self, rows: &[u64]) -> Result<(), StoreError>;

    /// Messages beyond these limits are not given out any more, but those that are numbered already.
    fn limit_messages(&mut self, limits: MessageLimits);

    fn depth(&self) -> QueueDepth;
}

impl From<Durable> for QueuedMessage {
    fn from(message: Durable) -> Self {
        Self {
            topic: message.topic,
            t: message.t,
            // It was checked when it was stored.
            payload: String::from_utf8(message.payload).unwrap_or_default(),
            is_binary: message.is_binary,
            priority: message.priority,
            key: message.key,
        }
    }
}

impl Durable {
    /// Whether it may be sent where messages have N bytes at most.
    fn fits(&self, bytes_max: usize) -> bool {
        let texts = [self.topic.as_ref(), self.key.as_ref(), Some(&self.t)];
        let texts_bytes: usize = texts.into_iter().flatten().map(String::len).sum();
        bytes_max == 0 || self.payload.len() + texts_bytes + PUBLISH_ENVELOPE_BYTES <= bytes_max
    }
}

/// Opens the store that `config` asks for. `fresh_id` becomes the producer's id of a new one.
pub(crate) fn open(config: &Queue, fresh_id: &str) -> Result<Box<dyn Store>, StoreError> {
    match &config.path {
        None => Ok(Box::new(memory::MemoryStore::new(config, fresh_id))),
        #[cfg(feature = "offline-queue")]
        Some(path) => Ok(Box::new(sqlite::SqliteStore::open(path, config, fresh_id)?)),
        #[cfg(not(feature = "offline-queue"))]
        Some(_) => Err(StoreError::Failed(
            "a file needs the feature offline-queue of this crate".to_owned(),
        )),
    }
}

/// When a message stored at `now_unix_ms` is too old; `None` for never.
fn expiry(message: &Durable, config: &Queue, now_unix_ms: u64) -> Option<u64> {
    let age_ms = u64::try_from(config.age_max.as_millis()).unwrap_or(u64::MAX);
    let by_age = (age_ms > 0).then(|| now_unix_ms.saturating_add(age_ms));
    match (message.expires_unix_ms, by_age) {
        (Some(own), Some(by_age)) => Some(own.min(by_age)),
        (own, by_age) => own.or(by_age),
    }
}

/// The largest size of a request to publish besides its texts, a signature included.
const PUBLISH_ENVELOPE_BYTES: usize = 768;

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn message(text: &str, priority: Priority) -> Durable {
        Durable {
            topic: None,
            t: "order".to_owned(),
            payload: format!("\"{text}\"").into_bytes(),
            is_binary: false,
            priority,
            key: None,
            expires_unix_ms: None,
        }
    }

    fn texts(taken: &Taken) -> Vec<(u64, String)> {
        let text = |message: &Numbered| {
            let payload = String::from_utf8(message.message.payload.clone()).unwrap();
            (message.number, payload.trim_matches('"').to_owned())
        };
        taken.messages.iter().map(text).collect()
    }

    /// Runs `test` with a store of each kind.
    fn each(config: &Queue, test: impl Fn(&mut dyn Store)) {
        test(&mut *open(config, "p").unwrap());
        #[cfg(feature = "offline-queue")]
        {
            let folder = tempfile::tempdir().unwrap();
            let path = Some(folder.path().join("queue.db"));
            let config = Queue {
                path,
                ..config.clone()
            };
            test(&mut *open(&config, "p").unwrap());
        }
    }

    fn named(expected: &[(u64, &str)]) -> Vec<(u64, String)> {
        expected
            .iter()
            .map(|(number, text)| (*number, (*text).to_owned()))
            .collect()
    }

    #[test]
    fn by_priority_then_age_and_numbered_without_a_hole() {
        each(&Queue::default(), |store| {
            let [low, a, b] = [
                ("low", Priority::Low),
                ("a", Priority::High),
                ("b", Priority::High),
            ]
            .map(|(text, priority)| message(text, priority));
            store.push(&[low, a, b], 0).unwrap();
            assert_eq!(
                store.resume(1, 0, Uncertain::Drop).unwrap(),
                Resumed::default()
            );
            let taken = store.take(2, 1_000, 0).unwrap();
            assert_eq!(texts(&taken), named(&[(1, "a"), (2, "b")]));
            store
                .push(&[message("now", Priority::Critical)], 0)
                .unwrap();
            let taken = store.take(10, 1_000, 0).unwrap();
            assert_eq!(texts(&taken), named(&[(3, "now"), (4, "low")]));
            assert_eq!(store.take(10, 1_000, 0).unwrap(), Taken::default());
            assert_eq!(store.acknowledge(3).unwrap().len(), 3);
            assert_eq!(
                store.depth(),
                QueueDepth {
                    messages: 1,
                    bytes: 5
                }
            );
        });
    }

    #[test]
    fn after_a_lost_connection_the_rest_has_the_same_numbers() {
        each(&Queue::default(), |store| {
            let messages: Vec<_> = ["a", "b", "c", "d"]
                .map(|t| message(t, Priority::Normal))
                .into();
            let rows = store.push(&messages, 0).unwrap();
            store.resume(9, 0, Uncertain::Drop).unwrap();
            store.take(3, 1_000, 0).unwrap();
            let resumed = store.resume(9, 1, Uncertain::Drop).unwrap();
            assert_eq!(resumed.acknowledged, rows[..1]);
            let taken = store.take(10, 1_000, 0).unwrap();
            assert_eq!(texts(&taken), named(&[(2, "b"), (3, "c"), (4, "d")]));
            store.rewind(3);
            assert_eq!(
                texts(&store.take(10, 1_000, 0).unwrap()),
                named(&[(4, "d")])
            );
        });
    }

    #[test]
    fn another_epoch_makes_what_was_sent_uncertain() {
        for uncertain in [Uncertain::Drop, Uncertain::Resend] {
            each(&Queue::default(), |store| {
                let messages: Vec<_> = ["a", "b", "c"].map(|t| message(t, Priority::Normal)).into();
                let rows = store.push(&messages, 0).unwrap();
                store.resume(1, 5, uncertain).unwrap();
                assert_eq!(
                    texts(&store.take(2, 1_000, 0).unwrap()),
                    named(&[(6, "a"), (7, "b")])
                );
                let resumed = store.resume(2, 0, uncertain).unwrap();
                assert_eq!(resumed.uncertain, rows[..2]);
                let again = texts(&store.take(10, 1_000, 0).unwrap());
                match uncertain {
                    Uncertain::Drop => assert_eq!(again, named(&[(1, "c")])),
                    Uncertain::Resend => assert_eq!(again, named(&[(1, "a"), (2, "b"), (3, "c")])),
                }
                let resent: Vec<_> = match uncertain {
                    Uncertain::Drop => Vec::new(),
                    Uncertain::Resend => messages[..2].iter().cloned().map(Into::into).collect(),
                };
                assert_eq!(resumed.resent, resent);
            });
        }
    }

    #[test]
    fn what_is_uncertain_stays_until_it_is_forgotten() {
        each(&Queue::default(), |store| {
            let messages: Vec<_> = ["a", "b", "c"].map(|t| message(t, Priority::Normal)).into();
            let rows = store.push(&messages, 0).unwrap();
            store.resume(1, 0, Uncertain::Drop).unwrap();
            store.take(2, 1_000, 0).unwrap();
            store.resume(2, 0, Uncertain::Drop).unwrap();
            // Another one of the same number, from another epoch.
            store.take(1, 1_000, 0).unwrap();
            store.resume(3, 0, Uncertain::Drop).unwrap();
            assert_eq!(store.depth().messages, 3);
            assert!(store.take(9, 1_000, 0).unwrap().messages.is_empty());
            assert_eq!(store.acknowledge(u64::MAX), Ok(Vec::new()));
            let first = store.uncertain(3).unwrap();
            assert_eq!(first, [(rows[0], messages[0].clone())]);
            assert_eq!(store.uncertain(1_000).unwrap().len(), 3);
            store.forget(&[rows[0], rows[2], 4_711]).unwrap();
            let left = store.uncertain(1_000).unwrap();
            assert_eq!(left, [(rows[1], messages[1].clone())]);
            assert_eq!(store.depth().messages, 1);
        });
    }

    #[test]
    fn limits_of_count_bytes_and_age() {
        let config = Queue {
            messages_max: 3,
            bytes_max: 20,
            age_max: Duration::from_millis(100),
            ..Queue::default()
        };
        each(&config, |store| {
            let small = message("a", Priority::Normal);
            store.push(&[small.clone(), small.clone()], 0).unwrap();
            assert_eq!(
                store.push(&[small.clone(), small.clone()], 0),
                Err(StoreError::Full)
            );
            let large = message("0123456789012345", Priority::Normal);
            assert_eq!(store.push(&[large], 0), Err(StoreError::Full));
            let short = Durable {
                expires_unix_ms: Some(10),
                ..small.clone()
            };
            let short_row = store.push(&[short], 0).unwrap();
            assert_eq!(
                store.depth(),
                QueueDepth {
                    messages: 3,
                    bytes: 9
                }
            );
            store.resume(1, 0, Uncertain::Drop).unwrap();
            let taken = store.take(1, 1_000, 50).unwrap();
            assert_eq!((taken.messages.len(), taken.expired), (1, short_row));
            let taken = store.take(10, 1_000, 101).unwrap();
            assert_eq!((taken.messages.len(), taken.expired.len()), (0, 1));
            // A sent message does not expire: it may have arrived.
            assert_eq!(store.depth().messages, 1);
            store.rewind(0);
            assert_eq!(store.take(10, 1_000, 101).unwrap().messages.len(), 1);
        });
    }

    #[test]
    fn takes_are_bounded_by_bytes_but_never_empty() {
        each(&Queue::default(), |store| {
            let large = message(&"x".repeat(100), Priority::Normal);
            store.push(&[large.clone(), large], 0).unwrap();
            store.resume(1, 0, Uncertain::Drop).unwrap();
            assert_eq!(store.take(10, 50, 0).unwrap().messages.len(), 1);
            assert_eq!(store.take(10, 50, 0).unwrap().messages.len(), 1);
        });
    }

    #[test]
    fn a_server_that_counts_to_the_end_is_an_error_not_a_panic() {
        each(&Queue::default(), |store| {
            store.push(&[message("a", Priority::Normal)], 0).unwrap();
            store.resume(1, u64::MAX, Uncertain::Drop).unwrap();
            assert!(matches!(store.take(1, 1, 0), Err(StoreError::Failed(_))));
            assert_eq!(store.acknowledge(u64::MAX), Ok(Vec::new()));
        });
    }
}
