//! Unfinished jobs of a connection.

use crate::model::content::Content;
use crate::model::{Encoding, Position};
use crate::state::session_topics::Wanted;
use crate::topics::broker::Refusal;
use crate::topics::history::Page;
use crate::topics::name::{Kind, is_pattern};
use crate::topics::publication::Publication;
use crate::trace::OpenSpan;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tidewire_wire::codes::ErrorCode;
use tidewire_wire::format::Format;
use tidewire_wire::session::{
    Action, HistoryPage, HistoryPosition, PresenceQuery, RecoveryPosition, Reply, Subscription,
    Token, TopicFailure, TopicRecovery,
};

/// The unfinished jobs of a connection, the one to go on with last.
#[derive(Debug, Default)]
pub(crate) struct Jobs(
    #[expect(
        clippy::box_collection,
        reason = "eight bytes instead of 24 for the many connections that have none"
    )]
    Option<Box<Vec<Job>>>,
);

#[derive(Debug)]
pub(crate) enum Job {
    /// A message that needs much work, in a turn that has had enough.
    Message(HeldMessage),
    /// The messages of a `batch`.
    Batch(BatchJob),
    /// A `subscription_update`.
    Subscription(Box<SubscriptionJob>),
    /// The missed publications of a new subscriber of a topic.
    CatchUp(Box<CatchUp>),
    /// A `history_request`.
    History(Box<HistoryJob>),
    /// A `sync_request`.
    Sync(Box<SyncJob>),
    /// Snapshots that answer it.
    Snapshots(Box<SnapshotsJob>),
    /// A `presence_request`.
    Presence(Box<PresenceJob>),
    /// The topics that a session is present on from now on.
    Announcement(Announcement),
    /// An `auth_refresh`.
    Refresh(Box<Refresh>),
    /// A `publish_request` that the backend or the application decides about.
    Publish(Box<PublishJob>),
}

/// A `presence_request` that waits for the broker.
#[derive(Debug)]
pub(crate) struct PresenceJob {
    pub(crate) request: PresenceQuery,
    pub(crate) correlation_id: Option<String>,
}

/// An unanswered `sync_request`: its topics are checked one by one, and then the
/// application is asked about all of them at once.
#[derive(Debug)]
pub(crate) struct SyncJob {
    /// Those that are to be checked.
    pub(crate) topics: std::vec::IntoIter<String>,
    /// Those that the session may have.
    pub(crate) allowed: Vec<String>,
    pub(crate) include_snapshots: bool,
    pub(crate) last_sequence: Option<u64>,
    pub(crate) correlation_id: Option<String>,
}

/// Topics whose newest publications are sent as snapshots, one by one.
#[derive(Debug)]
pub(crate) struct SnapshotsJob {
    pub(crate) topics: std::vec::IntoIter<String>,
    /// The first of them that can be read: the broker was asked for them.
    pub(crate) prepared: usize,
    /// The broker was asked for the next one once more.
    pub(crate) is_asked_again: bool,
    /// The first reason of the broker for not making one ready.
    pub(crate) refusal: Option<Refusal>,
    /// One of them has been sent.
    pub(crate) is_any: bool,
    pub(crate) correlation_id: Option<String>,
}

/// A message that was admitted, and not looked at.
#[derive(Debug)]
pub(crate) struct HeldMessage {
    pub(crate) form: HeldForm,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum HeldForm {
    Plain(Encoding),
    /// Compressed by permessage-deflate.
    Deflated {
        is_text: bool,
    },
}

/// The messages of a batch that have not been handled.
#[derive(Debug)]
pub(crate) struct BatchJob {
    pub(crate) messages: std::vec::IntoIter<Vec<u8>>,
    pub(crate) format: Format,
    /// The batch was admitted as one message; each further one counts too.
    pub(crate) is_first: bool,
}

/// Why jobs are left, if they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JobProgress {
    Done,
    /// The connection has had its part of the turn.
    Yield,
    /// The connection has had its part of the second, or more than its rate limit.
    Later,
    /// The peer has to read first.
    Outbox,
    /// The shards have to deliver first.
    Backlog,
    /// The broker has to answer first.
    Broker,
    /// The application has to be ready first.
    Application,
}

impl Jobs {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn push(&mut self, job: Job) {
        self.0.get_or_insert_default().push(job);
    }

    pub(crate) fn pop(&mut self) -> Option<Job> {
        let job = self.0.as_mut()?.pop();
        self.0.take_if(|jobs| jobs.is_empty());
        job
    }

    /// Puts the rest of a job back below those that its last step has started.
    pub(crate) fn insert(&mut self, place: usize, rest: Job) {
        self.0.get_or_insert_default().insert(place, rest);
    }

    /// Whether the next job is a message that was held back.
    pub(crate) fn is_message_next(&self) -> bool {
        let jobs = self.0.as_ref();
        jobs.is_some_and(|jobs| matches!(jobs.last(), Some(Job::Message(_))))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |jobs| jobs.len())
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }

    /// The rights of the session have changed: the topics of its requests are checked again before they are joined.
    pub(crate) fn note_changed_rights(&mut self) {
        for job in self.0.iter_mut().flat_map(|jobs| jobs.iter_mut()) {
            if let Job::Subscription(job) = job {
                job.is_outdated = true;
            }
        }
    }

    /// Forgets that a topic is to be joined; whether it was.
    pub(crate) fn cancel(&mut self, topic: &str) -> bool {
        let Some(jobs) = &mut self.0 else {
            return false;
        };
        let before = jobs.len();
        jobs.retain(|job| !matches!(job, Job::CatchUp(catch_up) if catch_up.is_of(topic)));
        let is_cancelled = jobs.len() < before;
        self.0.take_if(|jobs| jobs.is_empty());
        is_cancelled
    }
}

impl BatchJob {
    pub(crate) fn new(messages: Vec<Vec<u8>>, format: Format) -> Self {
        Self {
            messages: messages.into_iter(),
            format,
            is_first: true,
        }
    }
}

/// A `publish_request`, as it was received.
#[derive(Debug)]
pub(crate) struct PublishJob {
    pub(crate) format: Format,
    pub(crate) bytes: Vec<u8>,
    pub(crate) asked: Asked,
    /// The payload of the backend, if it gave another one.
    pub(crate) payload: Option<Content>,
    /// Its span, once it was asked, if it is traced.
    pub(crate) span: Option<Box<OpenSpan>>,
}

/// Who was asked about a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Nobody,
    /// The backend, with the number of the question.
    Backend(u64),
    /// The application, with the number of the question.
    Application(u64),
}

/// An `auth_refresh`: another token for a session.
#[derive(Debug)]
pub(crate) struct Refresh {
    pub(crate) token: Token,
    pub(crate) correlation_id: Option<String>,
}

impl Refresh {
    pub(crate) fn new(token: Token, correlation_id: Option<String>) -> Self {
        Self {
            token,
            correlation_id,
        }
    }
}

/// A request that is not answered yet: its topics are checked one by one, and then entered all at
/// once, so that the answer precedes all their publications.
#[derive(Debug)]
pub(crate) struct SubscriptionJob {
    pub(crate) action: Action,
    /// Those that are to be checked or, of those to leave, to be left.
    pub(crate) topics: std::vec::IntoIter<String>,
    /// Those that the client may have.
    pub(crate) allowed: Vec<(String, Kind)>,
    pub(crate) positions: HashMap<String, Position>,
    /// Subscription tokens, by topic.
    pub(crate) tokens: HashMap<String, Token>,
    /// Of the topics that are allowed by a token: when they end, if they do.
    pub(crate) by_token: HashMap<String, Option<u64>>,
    /// The document of a filter, as text, that is not compiled yet: only who may have one of the topics gets
    /// so far.
    pub(crate) filter: Option<String>,
    pub(crate) wanted: Wanted,
    pub(crate) group: Option<GroupWish>,
    pub(crate) answer: SubscriptionAnswer,
    /// The application subscribes the session, whatever its rights are.
    pub(crate) is_granted: bool,
    /// The client asks again for subscriptions that the application has made.
    pub(crate) renews: bool,
    /// Of these topics those that the application has subscribed the session to already.
    pub(crate) renewed: Vec<(String, Kind)>,
    /// The backend has decided, if it is asked.
    pub(crate) is_permitted: bool,
    /// The rights have changed since the topics were checked.
    pub(crate) is_outdated: bool,
    /// The number of the question to the backend, once it was asked.
    pub(crate) question: Option<u64>,
    pub(crate) correlation_id: Option<String>,
}

/// A member of which group, and how.
#[derive(Debug)]
pub(crate) struct GroupWish {
    pub(crate) name: String,
    pub(crate) acknowledges: bool,
    pub(crate) window: Option<u64>,
}

/// The answer to a request, as it grows.
#[derive(Debug, Default)]
pub(crate) struct SubscriptionAnswer {
    pub(crate) success_topics: Vec<String>,
    pub(crate) failed_topics: Vec<String>,
    pub(crate) failures: Vec<TopicFailure>,
    pub(crate) recovery: Vec<TopicRecovery>,
    /// The steps after the answer, topic by topic.
    pub(crate) catch_ups: Vec<CatchUp>,
    /// Where the session is present from now on.
    pub(crate) entered: Vec<Arc<str>>,
    pub(crate) presence: Option<Arc<str>>,
    pub(crate) error: Option<(ErrorCode, String)>,
}

impl SubscriptionAnswer {
    pub(crate) fn fail(&mut self, topic: String, code: ErrorCode, words: impl std::fmt::Display) {
        let message = words.to_string();
        let error = || (code, format!("{topic}: {message}"));
        self.error.get_or_insert_with(error);
        self.failed_topics.push(topic.clone());
        self.failures.push(TopicFailure {
            topic,
            code: code.as_str().to_owned(),
            message,
        });
    }
}

impl SubscriptionJob {
    pub(crate) fn new(request: Subscription, correlation_id: Option<String>) -> Self {
        let positions = request.recovery.into_iter().filter(|_| request.recover);
        let positions =
            positions.filter_map(|told| Some((told.topic.clone(), position_of(&told)?)));
        let mut answer = SubscriptionAnswer::default();
        for name in request.unreadable {
            let words = "the name of the topic is no Unicode text";
            answer.fail(name, ErrorCode::InvalidSubscription, words);
        }
        Self {
            action: request.action,
            topics: request.topics.into_iter(),
            allowed: Vec::new(),
            positions: positions.collect(),
            tokens: request.tokens.into_iter().collect(),
            by_token: HashMap::new(),
            filter: request.filter,
            wanted: Wanted {
                filter: None,
                overload: request.overload,
                presence: request.presence.map(Into::into),
                since: None,
                replay: request.replay,
            },
            group: request.queue_group.map(|name| GroupWish {
                name,
                acknowledges: request.acknowledge,
                window: request.window,
            }),
            answer,
            is_granted: false,
            renews: request.renew,
            renewed: Vec::new(),
            is_permitted: false,
            is_outdated: false,
            question: None,
            correlation_id,
        }
    }

    /// A subscription that the application makes for a session.
    pub(crate) fn granted(topic: &str) -> Self {
        Self {
            action: Action::Subscribe,
            topics: Vec::new().into_iter(),
            allowed: vec![(topic.to_owned(), kind_of(topic))],
            positions: HashMap::new(),
            tokens: HashMap::new(),
            by_token: HashMap::new(),
            filter: None,
            wanted: Wanted::default(),
            group: None,
            answer: SubscriptionAnswer::default(),
            is_granted: true,
            renews: false,
            renewed: Vec::new(),
            is_permitted: false,
            is_outdated: false,
            question: None,
            correlation_id: None,
        }
    }
}

fn kind_of(topic: &str) -> Kind {
    match is_pattern(topic) {
        true => Kind::Pattern,
        false => Kind::Exact,
    }
}

fn position_of(told: &RecoveryPosition) -> Option<Position> {
    Some(Position {
        epoch: Position::parse_epoch(&told.epoch)?,
        offset: told.offset,
    })
}

/// A subscriber on its way into a topic with history.
#[derive(Debug)]
pub(crate) struct CatchUp {
    pub(crate) name: Arc<str>,
    pub(crate) wanted: Wanted,
    /// Everything up to here has been sent, or is not wanted.
    pub(crate) at: Position,
    /// The newest publication, for a subscriber that does not get all the earlier ones.
    pub(crate) first: Option<Arc<Publication>>,
    /// For the histogram of recoveries.
    pub(crate) started: Instant,
}

impl CatchUp {
    pub(crate) fn new(
        name: &Arc<str>,
        wanted: &Wanted,
        at: Position,
        first: Option<Arc<Publication>>,
    ) -> Self {
        Self {
            name: Arc::clone(name),
            wanted: wanted.clone(),
            at,
            first,
            started: Instant::now(),
        }
    }

    pub(crate) fn is_of(&self, topic: &str) -> bool {
        *self.name == *topic
    }
}

/// The topics that a session is present on from now on, still to be announced to their subscribers.
#[derive(Debug)]
pub(crate) struct Announcement {
    pub(crate) topics: std::vec::IntoIter<Arc<str>>,
    pub(crate) data: Option<Arc<str>>,
    /// The topics on which its data was refused, because of what it would make the server send.
    pub(crate) refused: u64,
    /// The time until the data may be sent again, in seconds.
    pub(crate) retry_after_s: u64,
    /// That of the request.
    pub(crate) correlation_id: Option<String>,
}

impl Announcement {
    pub(crate) fn new(
        topics: Vec<Arc<str>>,
        data: Option<Arc<str>>,
        correlation_id: Option<String>,
    ) -> Self {
        Self {
            topics: topics.into_iter(),
            data,
            correlation_id,
            refused: 0,
            retry_after_s: 0,
        }
    }
}

/// A request that is not answered yet.
#[derive(Debug)]
pub(crate) struct HistoryJob {
    pub(crate) name: Arc<str>,
    pub(crate) since: Option<HistoryPosition>,
    pub(crate) limit: usize,
    pub(crate) newest_first: bool,
    /// The answer so far; `None` before the request has been checked.
    pub(crate) answer: Option<HistoryPage>,
    /// Of the publications in the answer.
    pub(crate) bytes: usize,
    /// The publication that was looked at last, or the position that was asked from.
    pub(crate) at: Option<u64>,
    pub(crate) correlation_id: Option<String>,
    /// For the histogram of history requests.
    pub(crate) started: Instant,
}

impl HistoryJob {
    pub(crate) fn refused(&self, code: ErrorCode, words: impl std::fmt::Display) -> Reply {
        Reply::Error {
            code,
            message: format!("{}: {words}", self.name).into(),
            retry_after_s: None,
            refused: None,
            correlation_id: self.correlation_id.clone(),
        }
    }

    /// Begins the answer at a page; false if the answer ends there, because the position in the
    /// request is not known any more.
    pub(crate) fn begin(&mut self, page: &Page<Arc<Publication>>, position: Position) -> bool {
        let since = self.since.take();
        let is_known = |since: &HistoryPosition| {
            Position::parse_epoch(&since.epoch) == Some(position.epoch)
                && since.offset <= position.offset
        };
        let before_oldest = page.oldest.saturating_sub(1);
        let (begins, complete) = match &since {
            None => (true, true),
            Some(since) if !is_known(since) => (false, false),
            Some(since) if self.newest_first => {
                let before = since.offset.saturating_sub(1);
                (true, before == 0 || before >= before_oldest)
            }
            Some(since) => (true, since.offset >= before_oldest),
        };
        self.at = since.map(|since| since.offset);
        self.answer = Some(HistoryPage {
            topic: self.name.to_string(),
            epoch: position.epoch,
            offset: position.offset,
            oldest: page.oldest,
            publications: Vec::new(),
            more: false,
            complete,
        });
        begins
    }

    /// Whether a page continues where the last one ended: no publication between them was dropped
    /// meanwhile.
    pub(crate) fn joins(&self, page: &Page<Arc<Publication>>, position: Position) -> bool {
        let Some(answer) = &self.answer else {
            return false;
        };
        let is_lost = !self.newest_first
            && !answer.publications.is_empty()
            && self.at.is_some_and(|at| at + 1 < page.oldest);
        answer.epoch == position.epoch && !is_lost
    }

    /// Whether a publication of `bytes` bytes fits into the answer.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        let count = self
            .answer
            .as_ref()
            .map_or(0, |page| page.publications.len());
        count < self.limit && (count == 0 || self.bytes + bytes <= ANSWER_BYTES)
    }
}

/// Bytes of publications that one answer has, unless its first one alone is larger.
const ANSWER_BYTES: usize = 512 * 1024;
