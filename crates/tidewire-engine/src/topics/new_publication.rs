//! Publications as the application makes them.

use crate::model::ConnectionKey;
use crate::model::content::Content;
use crate::topics::error::PublishError;
use crate::topics::excluded::{EXCLUDED_MAX, Excluded};
use crate::topics::publication::Draft;
use tidewire_wire::envelope::{Category, Priority};

/// A message to be published.
///
/// ```
/// use tidewire_engine::{NewPublication, Priority};
///
/// let trade = NewPublication::new("trade", r#"{"symbol":"TIDE","price":12.5}"#)
///     .with_priority(Priority::High)
///     .with_id("trade-4711");
/// let image = NewPublication::new("image", tidewire_engine::Content::binary(b"\x89PNG"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPublication {
    pub(crate) t: String,
    pub(crate) payload: Content,
    pub(crate) category: Category,
    pub(crate) priority: Option<Priority>,
    pub(crate) id: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) exclude: Excluded,
    pub(crate) ttl_ms: Option<u64>,
    pub(crate) is_volatile: bool,
}

impl NewPublication {
    /// A publication of type `t` whose payload is this JSON text, or the bytes of [`Content::binary`]. Both are
    /// checked when it is published.
    #[must_use]
    pub fn new(t: impl Into<String>, payload: impl Into<Content>) -> Self {
        Self {
            t: t.into(),
            payload: payload.into(),
            category: Category::Update,
            priority: None,
            id: None,
            key: None,
            exclude: Excluded::Nobody,
            ttl_ms: None,
            is_volatile: false,
        }
    }

    /// A snapshot (`S`) instead of an update (`U`).
    #[must_use]
    pub fn as_snapshot(mut self) -> Self {
        self.category = Category::Snapshot;
        self
    }

    /// The overload policy of lagging subscribers. Default: the topic's. On a topic with history it
    /// is always the topic's.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// An idempotency key: a publication with the same id on the same topic is dropped as long as
    /// the server remembers it.
    #[must_use]
    pub fn with_id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// The conflation key: of several with one key, a lagging subscriber that conflates gets the
    /// newest.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Everyone but this connection gets it. It may be called again for further connections.
    #[must_use]
    pub fn without(self, connection: ConnectionKey) -> Self {
        self.without_all([connection])
    }

    /// Everyone but these connections gets it; with those of other calls at most 1,000. Over a broker all servers
    /// have to know lists of them.
    #[must_use]
    pub fn without_all(mut self, connections: impl IntoIterator<Item = ConnectionKey>) -> Self {
        self.exclude.add(connections);
        self
    }

    /// A connection that lags does not get it at all: what is worth something only at once, such as the place of a
    /// pointer. Not for topics with history, which keep every publication.
    #[must_use]
    pub fn as_volatile(mut self) -> Self {
        self.is_volatile = true;
        self
    }

    /// Nobody gets it later than N milliseconds after it was published.
    #[must_use]
    pub fn with_ttl_ms(mut self, ttl_ms: u64) -> Self {
        self.ttl_ms = Some(ttl_ms);
        self
    }
}

impl NewPublication {
    /// Whether the payload is JSON that a client can read, also behind the levels of the envelope
    /// and of a batch, and not too many connections are excluded.
    pub(crate) fn check(&self) -> Result<(), PublishError> {
        if !self.payload.is_readable() {
            Err(PublishError::Payload)
        } else if self.exclude.connections().len() > EXCLUDED_MAX {
            Err(PublishError::Excluded)
        } else {
            Ok(())
        }
    }

    pub(crate) fn draft(&self) -> Draft<'_> {
        Draft {
            t: &self.t,
            payload: self.payload.as_json().as_bytes(),
            is_binary: self.payload.is_binary(),
            category: self.category,
            priority: self.priority,
            id: self.id.as_deref(),
            key: self.key.as_deref(),
            exclude: &self.exclude,
            ttl_ms: self.ttl_ms,
            is_volatile: self.is_volatile,
            unique: None,
        }
    }
}
