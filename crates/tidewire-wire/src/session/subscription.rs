//! `subscription_update` as a client sends it.

use super::history::parse_position;
use super::objection::{Objection, parse_flag, parse_number};
use super::token::{TOKEN_BYTES_MAX, Token};
use crate::codes::ErrorCode;
use crate::envelope::check_payload;
use crate::envelope::raw::Raw;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Topics to have or to have no longer.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// Which of the two.
    pub action: Action,
    /// The topics: 1 to [`TOPICS_PER_REQUEST_MAX`], none of them empty.
    pub topics: Vec<String>,
    /// The data that other subscribers receive about this one: a JSON object as text, without white space.
    pub presence: Option<String>,
    /// Whether missed messages are wanted.
    pub recover: bool,
    /// From where on, for topics of this request.
    pub recovery: Vec<RecoveryPosition>,
    /// How many of the newest publications of each topic's history a new subscriber wants.
    pub replay: u64,
    /// The group of which each message goes to one member only.
    pub queue_group: Option<String>,
    /// Which publications are wanted: a filter document, a JSON object as text without white space, not looked into.
    pub filter: Option<String>,
    /// The treatment of publications that the client does not read in time; the server's choice if it is
    /// missing.
    pub overload: Option<Overload>,
    /// Whether the client, as a member of a queue group, acknowledges its deliveries.
    pub acknowledge: bool,
    /// Deliveries that may be unacknowledged at once, from 1 on.
    pub window: Option<u64>,
    /// Tokens that allow topics, by topic: at most [`TOKENS_PER_REQUEST_MAX`].
    pub tokens: Vec<(String, Token)>,
    /// Whether these are subscriptions that the server made: they are recovered although the connection has them.
    pub renew: bool,
    /// Topics whose names are no Unicode text, with U+FFFD or `?` in place of what cannot be read. They are not among
    /// [`Self::topics`], which may be empty then, and fail.
    pub unreadable: Vec<String>,
}

impl Subscription {
    /// A request for subscriptions that the server made: nothing else counts of it.
    fn renewal(
        action: Action,
        topics: Vec<String>,
        recover: bool,
        recovery: Vec<RecoveryPosition>,
    ) -> Self {
        Self {
            action,
            topics,
            presence: None,
            recover,
            recovery,
            replay: 0,
            queue_group: None,
            filter: None,
            overload: None,
            acknowledge: false,
            window: None,
            tokens: Vec::new(),
            renew: true,
            unreadable: Vec::new(),
        }
    }

    /// Moves the topics at these places, whose names are no text, to the unreadable ones.
    pub(super) fn take_unreadable(&mut self, places: &BTreeSet<usize>) {
        let topics = std::mem::take(&mut self.topics).into_iter().enumerate();
        for (place, topic) in topics {
            if places.contains(&place) {
                self.unreadable.push(topic);
            } else {
                self.topics.push(topic);
            }
        }
    }
}

/// The treatment of a subscription's publications when its client does not read them in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overload {
    /// `disconnect`: the connection is closed.
    Disconnect,
    /// `conflate`: of each key the newest is kept.
    Conflate,
    /// `drop_oldest`: the oldest that wait are dropped.
    DropOldest,
}

impl Overload {
    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Disconnect => "disconnect",
            Self::Conflate => "conflate",
            Self::DropOldest => "drop_oldest",
        }
    }

    /// The policy with this spelling.
    pub fn parse(spelling: &str) -> Option<Self> {
        [Self::Disconnect, Self::Conflate, Self::DropOldest]
            .into_iter()
            .find(|overload| overload.as_str() == spelling)
    }
}

/// The action for the topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// `subscribe`.
    Subscribe,
    /// `unsubscribe`.
    Unsubscribe,
}

impl Action {
    /// The spelling on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
        }
    }

    /// The action with this spelling.
    pub fn parse(spelling: &str) -> Option<Self> {
        [Self::Subscribe, Self::Unsubscribe]
            .into_iter()
            .find(|action| action.as_str() == spelling)
    }
}

/// The last message of a topic that the client has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryPosition {
    /// The topic.
    pub topic: String,
    /// The epoch of its history.
    pub epoch: String,
    /// The offset.
    pub offset: u64,
}

#[expect(
    clippy::too_many_lines,
    reason = "it is the list of the fields of a request"
)]
pub(super) fn parse_subscription(payload: Raw<'_>) -> Result<Subscription, Objection> {
    let wrong = |words| (ErrorCode::InvalidSubscription, words);
    let [action, topics, presence, filter, queue_group, overload] = payload.pick([
        "action",
        "topics",
        "presence",
        "filter",
        "queue_group",
        "overload",
    ]);
    let [
        window,
        acknowledge,
        recover,
        recovery,
        tokens,
        replay,
        renew,
    ] = payload.pick([
        "window",
        "acknowledge",
        "recover",
        "recovery",
        "tokens",
        "replay",
        "renew",
    ]);
    let action = action.text().and_then(|action| Action::parse(&action));
    let action = action.ok_or((
        ErrorCode::InvalidAction,
        "action is subscribe or unsubscribe",
    ))?;
    let topics = parse_topics(topics, TOPICS_PER_REQUEST_MAX)?;
    if topics.is_empty() {
        return Err(wrong("topics is empty"));
    }
    let presence = parse_object(presence, "presence is not an object")?;
    let presence = presence.map(|data| {
        let words = "presence is longer than 1 MiB";
        let text = data.to_json(PRESENCE_BYTES_MAX).ok_or(wrong(words))?;
        let too_deep = (ErrorCode::InvalidMessage, "presence is nested too deep");
        check_payload(&text).map(|()| text).or(Err(too_deep))
    });
    let filter = parse_object(filter, "filter is not an object")?;
    let filter = filter.map(|document| {
        let words = "the filter: more than 384 KiB of text";
        document.to_json(FILTER_BYTES_MAX).ok_or(wrong(words))
    });
    let window = parse_number(window, "window is not a number")?;
    if window == Some(0) {
        return Err(wrong("window is 0"));
    }
    let words = "acknowledge is neither true nor false";
    let acknowledge = parse_flag(acknowledge, words)?;
    let recovery = parse_recovery(recovery, &topics)?;
    let replay = parse_number(replay, "replay is not a number")?;
    let renew = parse_flag(renew, "renew is neither true nor false")?;
    if renew {
        let recover = parse_flag(recover, "recover is neither true nor false")?;
        return Ok(Subscription::renewal(action, topics, recover, recovery));
    }
    Ok(Subscription {
        action,
        topics,
        presence: presence.transpose()?,
        recover: parse_flag(recover, "recover is neither true nor false")?,
        recovery,
        replay: replay.unwrap_or_default(),
        queue_group: parse_group(queue_group)?,
        filter: filter.transpose()?,
        overload: parse_overload(overload)?,
        acknowledge,
        window,
        tokens: parse_tokens(tokens)?,
        renew,
        unreadable: Vec::new(),
    })
}

fn parse_group(value: Raw<'_>) -> Result<Option<String>, Objection> {
    if value.is_null() {
        return Ok(None);
    }
    let group = value.text();
    let group = group.filter(|group| (1..=QUEUE_GROUP_BYTES_MAX).contains(&group.len()));
    group.map(|group| Some(group.into_owned())).ok_or((
        ErrorCode::InvalidSubscription,
        "queue_group is not a name of 1 to 255 bytes",
    ))
}

fn parse_overload(value: Raw<'_>) -> Result<Option<Overload>, Objection> {
    if value.is_null() {
        return Ok(None);
    }
    let policy = value.text().and_then(|policy| Overload::parse(&policy));
    policy.map(Some).ok_or((
        ErrorCode::InvalidSubscription,
        "overload is disconnect, conflate or drop_oldest",
    ))
}

fn parse_tokens(value: Raw<'_>) -> Result<Vec<(String, Token)>, Objection> {
    let wrong = |words| (ErrorCode::InvalidSubscription, words);
    if !(value.is_null() || value.is_object()) {
        return Err(wrong("tokens is not an object"));
    }
    let mut tokens = BTreeMap::new();
    for (topic, token) in value.members() {
        let token = token.text();
        let token = token.filter(|token| (1..=TOKEN_BYTES_MAX).contains(&token.len()));
        let token = token.ok_or(wrong("a token is not a text of 1 to 8192 bytes"))?;
        tokens.insert(topic.into_owned(), Token(token.into_owned()));
        if tokens.len() > TOKENS_PER_REQUEST_MAX {
            return Err(wrong("too many tokens in one message"));
        }
    }
    Ok(tokens.into_iter().collect())
}

fn parse_object<'a>(value: Raw<'a>, words: &'static str) -> Result<Option<Raw<'a>>, Objection> {
    if value.is_null() || value.is_object() {
        Ok(Some(value).filter(|value| value.is_object()))
    } else {
        Err((ErrorCode::InvalidSubscription, words))
    }
}

pub(super) fn parse_topics(value: Raw<'_>, topics_max: usize) -> Result<Vec<String>, Objection> {
    let wrong = |words| (ErrorCode::InvalidSubscription, words);
    if value.is_null() {
        return Ok(Vec::new());
    }
    let mut topics = Vec::new();
    let values = value.elements();
    for name in values.ok_or(wrong("topics is not an array"))? {
        if topics.len() == topics_max {
            return Err(wrong("too many topics in one message"));
        }
        let name = name.text().filter(|name| !name.is_empty());
        topics.push(name.ok_or(wrong("a topic is not a name"))?.into_owned());
    }
    Ok(topics)
}

/// The positions of the topics of the request, by topic; those of other topics have no meaning and are not kept.
fn parse_recovery(value: Raw<'_>, topics: &[String]) -> Result<Vec<RecoveryPosition>, Objection> {
    let wrong = |words| (ErrorCode::InvalidSubscription, words);
    if !(value.is_null() || value.is_object()) {
        return Err(wrong("recovery is not an object"));
    }
    let mut positions: BTreeMap<&str, Option<(Cow<'_, str>, u64)>> = BTreeMap::new();
    for (topic, position) in value.members() {
        if positions.is_empty() {
            positions.extend(topics.iter().map(|topic| (topic.as_str(), None)));
        }
        let position =
            parse_position(position).ok_or(wrong("a recovery has no epoch and offset"))?;
        if let Some(place) = positions.get_mut(&*topic) {
            *place = Some(position);
        }
    }
    let positions = positions.into_iter().filter_map(|(topic, position)| {
        let (epoch, offset) = position?;
        Some(RecoveryPosition {
            topic: topic.to_owned(),
            epoch: epoch.into_owned(),
            offset,
        })
    });
    Ok(positions.collect())
}

/// The longest text of a filter, without white space: a server may allow less. It is six times what the document of a
/// filter may have, because an escape is six bytes.
pub const FILTER_BYTES_MAX: usize = 6 * 64 * 1024;

/// The longest data about a subscriber as JSON text: a server may allow less.
pub const PRESENCE_BYTES_MAX: usize = 1024 * 1024;

/// The longest name of a queue group, in bytes.
pub const QUEUE_GROUP_BYTES_MAX: usize = 255;

/// Subscription tokens that one request may have.
pub const TOKENS_PER_REQUEST_MAX: usize = 100;

/// Topics that one `subscription_update` or `sync_request` may name.
pub const TOPICS_PER_REQUEST_MAX: usize = 1000;
