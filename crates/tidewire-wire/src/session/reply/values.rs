//! Values that several replies carry: producers, presence, gaps and recovery.

use crate::envelope::readable_correlation_id;
use crate::format::Format;
use crate::session::KEY_BYTES_MAX;

/// A producer, and the number of its last accepted message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The id that the client chose.
    pub id: String,
    /// A random number of the time when the server first saw the producer. Another number than last time means
    /// that the server has forgotten the producer, whose numbers start with 1 again.
    pub epoch: u32,
    /// The last accepted number; 0 for none.
    pub last: u64,
}

/// The producer that a `client_hello` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloProducer {
    /// The id that the client chose, 1 to [`PRODUCER_ID_BYTES_MAX`](crate::session::PRODUCER_ID_BYTES_MAX) bytes.
    pub id: String,
    /// Identifies this connection among the client's connections, if the client states it.
    pub attempt: Option<ProducerAttempt>,
}

/// One of the connections that a client opens for a producer. Of one instance a smaller number is an older connection,
/// in whatever order they reach the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerAttempt {
    /// Random; drawn when the client starts.
    pub instance: u64,
    /// Larger for each next connection; at most 2^53 - 1.
    pub number: u64,
}

/// The presence of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPresence {
    /// The topic.
    pub topic: String,
    /// The number of users.
    pub users: u64,
    /// The number of their connections.
    pub connections: u64,
    /// Whether members are missing in the list.
    pub truncated: bool,
    /// The members; `None` if only the counts were requested.
    pub members: Option<Vec<PresenceMember>>,
}

/// A user on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceMember {
    /// The user.
    pub user: String,
    /// The number of connections.
    pub connections: u64,
    /// The presence data of the subscriber, as unchecked JSON.
    pub data: Option<String>,
}

/// Publications of a topic that a subscriber does not receive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationGap {
    /// The topic.
    pub topic: String,
    /// The reason.
    pub reason: GapReason,
    /// The number of missing publications.
    pub count: u64,
    /// Their offsets; only with history.
    pub range: Option<GapRange>,
}

/// The reason for missing publications.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// `dropped`: the subscriber did not read them in time.
    Dropped,
    /// `conflated`: a newer publication with the same key replaced them.
    Conflated,
    /// `expired`: their time to live was over before they could be sent.
    Expired,
    /// `broker`: the broker behind several servers lost its connection or its data. A count of 0
    /// means that nobody knows how many are missing.
    Broker,
}

/// The range of a gap: all missing publications have offsets between these two of one epoch. Others in the
/// range may have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GapRange {
    /// The epoch of the topic's history.
    pub epoch: u32,
    /// The offset of the first one.
    pub from: u64,
    /// The offset of the last one.
    pub to: u64,
}

impl GapReason {
    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::Conflated => "conflated",
            Self::Expired => "expired",
            Self::Broker => "broker",
        }
    }

    /// The reason with this spelling.
    pub fn parse(spelling: &str) -> Option<Self> {
        [Self::Dropped, Self::Conflated, Self::Expired, Self::Broker]
            .into_iter()
            .find(|reason| reason.as_str() == spelling)
    }
}

/// The reason why a topic could not be subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicFailure {
    /// The topic or pattern, as the request has it.
    pub topic: String,
    /// One of the protocol's error codes, such as `TOPIC_FORBIDDEN`.
    pub code: String,
    /// The same in words.
    pub message: String,
}

/// The state of a subscription after recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicRecovery {
    /// The topic.
    pub topic: String,
    /// The epoch of its history.
    pub epoch: String,
    /// The offset of its newest message.
    pub offset: u64,
    /// Whether nothing was missed.
    pub recovered: bool,
    /// The number of messages that are sent again.
    pub count: u64,
}

/// Messages that one error refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// How many.
    pub count: u64,
    /// `cids`: the correlation ids of those that have one, at most [`REFUSED_IDS_MAX`] of at most [`KEY_BYTES_MAX`] bytes.
    pub correlation_ids: Vec<String>,
}

impl Refused {
    /// Counts a message, and names it.
    pub fn add(&mut self, encoding: Format, bytes: &[u8]) {
        self.count += 1;
        self.name(encoding, bytes);
    }

    /// Keeps the correlation id of a message that is counted already, if it can be read and there is room for it.
    pub fn name(&mut self, encoding: Format, bytes: &[u8]) {
        if self.correlation_ids.len() < REFUSED_IDS_MAX {
            let id = readable_correlation_id(encoding, bytes);
            let id = id.filter(|id| (1..=KEY_BYTES_MAX).contains(&id.len()));
            self.correlation_ids.extend(id);
        }
    }
}

/// The most correlation ids that one error names.
pub const REFUSED_IDS_MAX: usize = 32;
