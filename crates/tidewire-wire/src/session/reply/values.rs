//! Values that several replies carry: producers, presence, gaps and recovery.

/// A producer and how far its messages have been taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerState {
    /// The id that the client gave itself.
    pub id: String,
    /// Drawn when the server first heard of the producer: another one than last time means that the
    /// producer was forgotten, and its numbers begin with 1 again.
    pub epoch: u32,
    /// The last number taken; 0 for none.
    pub last: u64,
}

/// Who is on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicPresence {
    /// The topic.
    pub topic: String,
    /// How many users.
    pub users: u64,
    /// On how many connections.
    pub connections: u64,
    /// Whether there are more members than are named.
    pub truncated: bool,
    /// The members; `None` if only the counts were asked for.
    pub members: Option<Vec<PresenceMember>>,
}

/// A user on a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresenceMember {
    /// Who.
    pub user: String,
    /// On how many connections.
    pub connections: u64,
    /// The subscriber's `presence`, as JSON that is not checked.
    pub data: Option<String>,
}

/// Publications of a topic that a subscriber does not get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicationGap {
    /// The topic.
    pub topic: String,
    /// Why.
    pub reason: GapReason,
    /// How many.
    pub count: u64,
    /// Which; only with history.
    pub range: Option<GapRange>,
}

/// Why publications are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GapReason {
    /// `dropped`: the subscriber did not read them in time.
    Dropped,
    /// `conflated`: a newer one of the same key took their place.
    Conflated,
    /// `expired`: their time to live ended before they could be sent.
    Expired,
}

/// The publications of a gap: all of them lie between two offsets of one epoch, though not all
/// between them need be missing.
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
        }
    }

    /// The reason with this spelling.
    pub fn parse(spelling: &str) -> Option<Self> {
        [Self::Dropped, Self::Conflated, Self::Expired]
            .into_iter()
            .find(|reason| reason.as_str() == spelling)
    }
}

/// Where a subscription stands after recovery.
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
    /// Messages sent again.
    pub count: u64,
}
